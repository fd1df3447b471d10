"""Adapters beside the packages that they follow, on generated inputs.

Outside the quick tests: `python -m tests.differential` runs all of them, each in an environment
of its own.
"""
