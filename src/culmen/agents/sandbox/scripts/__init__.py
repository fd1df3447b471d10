"""Programs that run on the agents' side of the fence: standard library only, and nothing of culmen is imported."""
