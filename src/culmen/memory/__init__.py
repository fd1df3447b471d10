"""Plain synchronous containers that strategies keep candidates in: queue, epsilon-net, grid, islands, statistics."""
