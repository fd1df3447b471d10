"""Rollouts: an agent works on a Harbor task with a skill, and tests judge its work."""
