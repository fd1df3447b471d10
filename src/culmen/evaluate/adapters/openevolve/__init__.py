"""OpenEvolve's task folders and evaluators, unmodified; candidates run in a process apart."""
