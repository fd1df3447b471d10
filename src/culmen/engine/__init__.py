"""The search loop: a state machine without I/O, its driver, budgets, replay, final choice."""
