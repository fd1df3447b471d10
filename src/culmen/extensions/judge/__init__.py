"""Verdicts on edits: before and after, compared by a command, with receipts."""
