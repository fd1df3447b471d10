"""A run on disk or in PostgreSQL: the journal, long texts, the lease of its one writer, copies and archives."""
