"""Harbor's own configuration and verifier beside `culmen.extensions.compat.harbor_task`."""
