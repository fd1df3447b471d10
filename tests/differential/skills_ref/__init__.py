"""The reference library of Agent Skills beside `culmen.tasks.surface`."""
