"""Evaluations on Ray, in Slurm jobs and by workers of a queue, and journals in PostgreSQL."""
