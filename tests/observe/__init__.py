"""Observers."""
