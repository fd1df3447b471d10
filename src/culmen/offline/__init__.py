"""A proposer without a language model: program edits, tuned numbers, and what each earned."""
