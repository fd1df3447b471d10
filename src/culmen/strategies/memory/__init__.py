"""Containers in which strategies keep candidates: queue, epsilon-net, grid, islands."""
