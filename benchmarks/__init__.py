"""One script for each operation. In a checkout, each runs as `python -m benchmarks.NAME` and has its own --help."""
