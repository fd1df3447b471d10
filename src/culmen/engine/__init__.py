"""The loop: a search as a state machine without I/O, its driver, hard budgets, replay and the final choice."""
