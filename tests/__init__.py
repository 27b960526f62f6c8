"""Tests mirror the package: rela/x/y.py is tested by tests/x/test_y.py."""
