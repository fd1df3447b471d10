"""A run on disk or in PostgreSQL: journal, texts, writer's lease, copies, archives."""
