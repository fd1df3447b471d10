"""A prompt over labelled cases: table to task, metrics, answers of a model, and the result."""
