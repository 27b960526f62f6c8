"""Work on a corpus of any size: its shards, the engine that hands them to workers (Ray Data), and a manifest."""
