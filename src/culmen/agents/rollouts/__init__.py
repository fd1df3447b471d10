"""Rollouts: an agent works on a Harbor task with a skill, and the task's tests judge its work."""
