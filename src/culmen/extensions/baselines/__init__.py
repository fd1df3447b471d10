"""Baselines: loops of other tools, as strategies beside culmen's own."""
