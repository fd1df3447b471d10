"""Tests of `culmen.extensions.timing`."""
