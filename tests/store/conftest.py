"""Tests that ask for `each_store` run twice: with runs in folders and in PostgreSQL."""

import pytest

from tests.store import runs


@pytest.fixture(scope="session")
def shared_database(postgres_server):
    """One database for many tests: their runs have names of their own."""
    return postgres_server.new_database()


@pytest.fixture(params=["folder", pytest.param("postgresql", marks=pytest.mark.postgres)])
def each_store(request, monkeypatch):
    """The kind of store that `new_run` uses."""
    if request.param == "postgresql":
        monkeypatch.setattr(runs, "DATABASE", request.getfixturevalue("shared_database"))
    return request.param
