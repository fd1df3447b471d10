"""Revisions of a run's tables. `env.py` is Alembic's entry."""
