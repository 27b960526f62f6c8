"""Text in, batches out: corpora, subwords, prepared shards and the embedded toy corpus."""
