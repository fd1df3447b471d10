"""Prompts for models, and the parsing of their replies into candidates."""
