"""Agent sessions, acting: repository, queue, sandbox, adapters."""
