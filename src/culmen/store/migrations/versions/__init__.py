"""Revisions of a run's tables, oldest first."""
