"""What is built from the checkout, beside the wheel."""
