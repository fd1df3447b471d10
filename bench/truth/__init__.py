"""Worlds with known true scores, their hazards, and rules of choice to compare with."""
