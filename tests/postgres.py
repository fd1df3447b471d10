"""A PostgreSQL server of the tests' own: a fresh cluster in a temporary folder.

It is reached by a socket there alone.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

PASSWORD = "pass word/№1"  # must be quoted in a URL, and must never be seen again
USER = "culmen"


def programs():
    """The folder of Debian's newest server programs, or of those on PATH; None without any."""
    places = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found = shutil.which("initdb")
    places += [Path(found).resolve().parent] if found else []
    return max(
        places,
        default=None,
        key=lambda place: (place.parent.name.isdigit() and int(place.parent.name), place),
    )


class Server:
    """`url(database)` reaches a database as the cluster's owner, password included."""

    def __init__(self, home):
        self.home = home

    def url(self, database, password=PASSWORD):
        login = f"{USER}:{quote(password, safe='')}" if password else USER
        return f"postgresql+psycopg://{login}@/{database}?host={self.home}"

    def connect(self, database="postgres"):
        import psycopg

        return psycopg.connect(
            host=str(self.home), user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def new_database(self):
        """An empty database; its URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def cut_connections(self, but=-1):
        """End every other session, as a network that fails would; how many there were."""
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'culmen'"
        with self.connect() as connection:
            return connection.execute(f"{query} AND pid <> {but}").fetchone()[0]


@contextmanager
def server(inside=(), **more):
    """A server that runs until the block ends; it dies with the tests' process.

    `inside` is a command that it is started through.
    """
    bin_folder = programs()
    assert bin_folder is not None
    home = Path(tempfile.mkdtemp(prefix="culmen-pg-"))
    as_user = _as_user(home)
    (home / "password").write_text(PASSWORD)
    subprocess.run(
        [
            *as_user,
            bin_folder / "initdb",
            "-D",
            home / "data",
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--no-sync",
            "--pwfile",
            home / "password",
            "-E",
            "UTF8",
            "--locale",
            "C.UTF-8",
        ],
        check=True,
        capture_output=True,
        cwd=home,
    )
    with (home / "data" / "pg_hba.conf").open("a") as rules:
        rules.write("host all all samenet scram-sha-256\n")
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": home,
        "fsync": "off",
        "max_connections": "100",
        "autovacuum": "off",
        "shared_buffers": "32MB",
        **more,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*inside, *as_user, bin_folder / "postgres", "-D", home / "data", *options],
            stdout=log,
            stderr=log,
            cwd=home,
        )
    running = Server(home)
    try:
        _wait(running, process, home / "log")
        yield running
    finally:
        process.terminate()  # to the server: a smart shutdown; the next one does not wait for clients
        process.send_signal(2)
        process.wait(60)
        shutil.rmtree(home)


def _as_user(home):
    """A prefix of command lines: the server refuses to run as root.

    For root it switches to the system's own user for it, or to the unprivileged one.
    """
    setpriv = shutil.which("setpriv")
    bound = [setpriv, "--pdeathsig", "INT"] if setpriv else []
    if os.geteuid() != 0:
        return bound
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(home, user.pw_uid, user.pw_gid)
    return [*bound, "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]


def _wait(running, process, log):
    import psycopg

    ends = time.monotonic() + 60
    while True:
        try:
            running.connect().close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > ends:
                raise AssertionError(f"the server did not start: {log.read_text()}") from error
            time.sleep(0.02)
