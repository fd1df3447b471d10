"""Skills for coding agents: faults mined from sessions, rollouts of agents on task folders."""
