"""Watching a run while it goes on. Nothing here can slow or alter the search."""
