"""Signs that a candidate or a task is not what it claims: found in texts, outputs and files, and acted on."""
