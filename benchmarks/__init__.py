"""One script an operation; each runs in a checkout as `python -m benchmarks.NAME` and has its own --help."""
