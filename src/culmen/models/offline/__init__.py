"""A proposer without a language model: program edits, tuned numbers, operator credits."""
