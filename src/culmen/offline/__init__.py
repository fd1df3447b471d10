"""A proposer without a language model: edits of Python programs, tuned numbers, and what each edit earned."""
