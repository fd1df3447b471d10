"""Importers: tasks of other benchmarks, written as task folders."""
