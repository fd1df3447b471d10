"""OpenEvolve's task folders and evaluators, unmodified; the candidate runs in a process of its own."""
