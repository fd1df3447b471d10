"""Benches: the same tasks, strategies and seeds under equal budgets."""
