"""Confined processes for candidates: the fork server, the confinement, the scorer."""
