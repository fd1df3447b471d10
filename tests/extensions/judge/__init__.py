"""Tests of `culmen.extensions.judge`."""
