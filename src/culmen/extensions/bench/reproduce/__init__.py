"""Tables and figures of papers, made again: each place a record, all run by one command."""
