"""Displays, summary and diagnosis of a run; nothing here can slow or alter a search."""
