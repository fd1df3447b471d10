"""Candidates in confined processes: the fork-server, what a child gives up first, and the scorer."""
