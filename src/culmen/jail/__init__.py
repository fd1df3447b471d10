"""Confined processes for candidates: fork-server, confinement, scorer."""
