"""Runs in trackers of experiments: TensorBoard, MLflow, Weights & Biases, OpenTelemetry."""
