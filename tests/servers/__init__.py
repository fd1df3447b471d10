"""Servers on the loopback that stand in for providers, and what a few test packages share."""
