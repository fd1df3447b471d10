"""Effects of agent sessions: repository, queue, sandbox, adapters."""
