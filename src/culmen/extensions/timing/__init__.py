"""Timing: the time of programs against a reference, as the score of a task."""
