"""Extensions: what the core does without, each registered through `core/extensions.py`."""
