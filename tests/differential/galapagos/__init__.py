"""Comparison with a package, see `tests.differential`."""
