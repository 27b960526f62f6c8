"""Work on a corpus of any size by many workers: its shards, the engine that hands them out (Ray Data), and a manifest."""
