"""Evidence: one account of a run's observations, and one verdict for all views."""
