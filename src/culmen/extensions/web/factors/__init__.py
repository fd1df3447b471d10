"""Gain of each kind of origin (what mattered), for the page Story alone."""
