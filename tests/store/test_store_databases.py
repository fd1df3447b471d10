"""Databases of runs as the registry gives them: each against the public kit.

They are found by scheme; some schemes belong to none.
"""

import uuid

import pytest

from culmen.core.errors import UserError
from culmen.core.extensions import installed_extensions, part_addresses
from culmen.core.task import Task
from culmen.store import views
from culmen.store.address import Address, parse_address, write_pointer
from culmen.store.database import RunMeta, run_database
from culmen.store.journal import SqlJournal
from tests.store.contracts import JournalContract, RunDatabaseContract

KINDS = {part: scheme for scheme, part in reversed(part_addresses("journals").items())}
SERVERS = {
    "postgresql+psycopg": "shared_database"
}  # the fixture with a server of each kind, by its stored scheme


@pytest.fixture(params=KINDS.values())
def url(request, monkeypatch, tmp_path):
    """The URL of an empty database, of each kind that is registered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return request.getfixturevalue(SERVERS[request.param])


@pytest.mark.postgres
class TestRegisteredDatabase(RunDatabaseContract):
    @pytest.fixture(autouse=True)
    def _served(self, url):
        self.url = url

    def make_address(self):
        return parse_address(self.url, f"run-{uuid.uuid4().hex[:8]}")


@pytest.mark.postgres
class TestRegisteredJournal(JournalContract):
    @pytest.fixture(autouse=True)
    def _served(self, url):
        self.url = url

    def make(self, folder):
        return SqlJournal.create(
            folder / "run",
            RunMeta("run", Task("task")),
            db=f"{self.url}#run-{uuid.uuid4().hex[:8]}",
        )

    def reopen(self, journal, folder):
        journal.close()
        return SqlJournal.open(folder / "run", write=True)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql", "postgres"])
@pytest.mark.extension("cluster")
def test_all_spellings_of_a_scheme_are_stored_as_one(scheme):
    assert parse_address(f"{scheme}://u@h/d#one") == Address("postgresql+psycopg://u@h/d", "one")


@pytest.mark.extension("cluster")
def test_a_scheme_of_no_extension_is_refused_with_what_to_install(tmp_path):
    with pytest.raises(UserError, match="'mysql'") as caught:
        parse_address("mysql://u:hush@h/d#one")
    assert caught.value.where == "the URL of the database"
    assert (
        "postgresql+psycopg://user@host/database" in caught.value.fix
        and "'mysql'" in caught.value.fix
    )
    assert "hush" not in str(caught.value)


def test_a_run_in_a_database_whose_extension_is_gone_says_so(tmp_path):
    write_pointer(tmp_path / "run", Address("mysql://u@h/d", "one"))
    with pytest.raises(UserError, match="'mysql'") as caught:
        views.run_status(tmp_path / "run")
    assert caught.value.where == "mysql://u@h/d#one" and "culmen.extensions" in caught.value.fix


OTHER = """
from culmen.extensions.cluster.postgres import PostgresDatabase
from culmen.core.extensions import Extension

class Other(PostgresDatabase):
    pass

EXTENSION = Extension(name="other", journals={"other": "culmen_other:Other", "oth": "culmen_other:Other"})
"""


def forget_extensions() -> None:
    installed_extensions.cache_clear()
    part_addresses.cache_clear()


@pytest.mark.extension("cluster")
def test_another_package_adds_a_scheme(tmp_path, monkeypatch):
    (tmp_path / "culmen_other.py").write_text(OTHER)
    metadata = tmp_path / "culmen_other-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: culmen-other\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[culmen.extensions]\nother = culmen_other:EXTENSION\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_extensions()
    try:
        address = parse_address("oth://u@h/d#one")
        assert address.url == "other://u@h/d"
        assert type(run_database(address)).__name__ == "Other"
        assert type(run_database(parse_address("postgres://u@h/d"))).__name__ == "PostgresDatabase"
    finally:
        forget_extensions()
