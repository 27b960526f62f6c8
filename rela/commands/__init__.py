"""What each subcommand does: thin functions over the library, heavy imports inside them."""
