"""Messages where a database cannot be used: the fault, the database, and the remedy.

A password is never part of them.
"""

import sys

import pytest

from culmen.core.errors import Unavailable, UserError
from culmen.store import transfer
from culmen.store.address import local_folder, parse_address
from culmen.store.database import run_database, run_folders
from tests.postgres import USER
from tests.store.runs import new_run

pytestmark = pytest.mark.postgres
SECRET = "hush-hush"


@pytest.fixture
def guest(postgres_server, database):
    """The URL of the database for a user who may connect to it, and no more."""
    with postgres_server.connect() as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'guest'").fetchone():
            connection.execute(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
    login = database.partition("//")[2].partition("@")[0]
    return database.replace(login, f"guest:{SECRET}")


def listed(url):
    return run_database(parse_address(url)).list_runs()


@pytest.mark.parametrize(
    ("change", "kind", "what", "fix"),
    [
        (
            (":pass%20word%2F%E2%84%961@", f":{SECRET}@"),
            UserError,
            f'failed for user "{USER}"',
            "PGPASSWORD",
        ),
        ((":pass%20word%2F%E2%84%961@", "@"), UserError, "no password supplied", "CULMEN_DB"),
        (("/test_", "/none_"), UserError, '"none_', f"psql 'postgresql://{USER}@/none_"),
        (
            ("?host=", "?host=/nowhere"),
            Unavailable,
            "does not answer",
            "pg_isready -d 'postgresql://",
        ),
        (("?host=", "?nonsense=1&host="), UserError, 'parameter: "nonsense"', "psql"),
        ((f"{USER}:pass%20word%2F%E2%84%961", "stranger:x"), UserError, "refuses", "PGPASSWORD"),
    ],
)
def test_why_a_database_cannot_be_reached(database, change, kind, what, fix):
    url = database.replace(*change)
    assert url != database
    with pytest.raises(kind) as caught:
        listed(url)
    told = caught.value
    assert what in told.what and fix in told.fix and told.where == str(parse_address(url))
    assert (
        SECRET not in str(told) and "pass%20word" not in str(told) and "pass word" not in str(told)
    )


def test_nobody_there_and_no_such_host():
    for url in (
        f"postgresql://u:{SECRET}@127.0.0.1:9/x",
        f"postgresql://u:{SECRET}@nowhere.invalid:9/x",
    ):
        with pytest.raises(Unavailable, match="does not answer") as caught:
            listed(url)
        assert "u@" in caught.value.fix and ":9/x' says whether it does" in caught.value.fix
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["mysql://h/d", "postgresql://h", "postgresql://h:port/d", "postgresql://[::1]:x/d"]
)
def test_what_is_no_url_comes_with_an_example(text):
    with pytest.raises(UserError) as caught:
        parse_address(text)
    assert "postgresql+psycopg://user@host/database" in caught.value.fix and caught.value.where


def test_rights_that_are_missing_are_named(database, guest, postgres_server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    new_run(tmp_path).close()
    assert listed(guest) == [] == run_folders(local_folder(parse_address(guest)))
    with pytest.raises(UserError, match="permission denied for database test_"):
        transfer.copy_run(tmp_path / "run-1", parse_address(guest, "copy"))
    transfer.copy_run(tmp_path / "run-1", parse_address(database, "copy"))
    for use in (
        listed,
        lambda url: run_database(parse_address(url, "copy")).drop_run(),
        lambda url: run_folders(local_folder(parse_address(url))),
    ):
        with pytest.raises(UserError, match="permission denied for schema culmen") as caught:
            use(guest)
        assert "psql 'postgresql://guest@" in caught.value.fix and SECRET not in str(caught.value)
    with postgres_server.connect() as connection:
        connection.execute(f"GRANT {USER} TO guest")
    assert listed(guest) == ["copy"]
    run_database(parse_address(guest, "copy")).drop_run()
    with postgres_server.connect() as connection:
        connection.execute(f"REVOKE {USER} FROM guest")


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match="psycopg") as caught:
        listed("postgresql://u@h/never-connected")
    assert caught.value.fix == "pip install 'culmen[postgres]'"
