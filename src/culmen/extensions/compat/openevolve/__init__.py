"""OpenEvolve's task folders and evaluators, unmodified; candidates have their own process."""
