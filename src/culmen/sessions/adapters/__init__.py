"""Adapters for agent programs: `named("claude")`, `named("acp:opencode")`, `named("cmd: my-agent {prompt}")`."""
