"""Evaluations on Ray and in Slurm jobs, and journals in PostgreSQL."""
