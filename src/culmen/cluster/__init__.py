"""Evaluations on Ray clusters and in Slurm jobs, and journals in PostgreSQL."""
