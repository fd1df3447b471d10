"""Detection of cheating in texts, outputs and files, and the response to it."""
