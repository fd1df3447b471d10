"""Evidence: one account of what was observed, and one verdict that everything shows."""
