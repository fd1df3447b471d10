"""Displays, and one table of sentences on a run; nothing here slows or alters a search."""
