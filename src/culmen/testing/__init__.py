"""Conformance kits, a simulated task on a virtual clock and a scripted model, for tests."""
