"""Harbor's own configuration and verifier beside `culmen.tasks.harbor`."""
