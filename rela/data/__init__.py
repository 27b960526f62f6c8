"""Text in, batches out: corpora, subwords and prepared shards."""
