"""A PostgreSQL server of the tests' own: a fresh cluster in a temporary folder, reached by a socket there alone."""

import os
import pwd
import re
import shutil
import signal
import socket
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
    """The folder of Debian's newest server programs, or of those on PATH; None if there are none."""
    places = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found = shutil.which("initdb")
    places += [Path(found).resolve().parent] if found else []
    return max(places, default=None, key=lambda place: (place.parent.name.isdigit() and int(place.parent.name), place))


class Server:
    """`url(database)` reaches a database as the cluster's owner, password included."""

    def __init__(self, home, command=(), port=5432):
        self.home, self._command, self.port = home, command, port
        self.process = None

    def start(self):
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.home)
        _wait(self, self.process, self.home / "log")

    def crash(self):
        """End it at once, without a word to its clients' transactions; `start` recovers what was committed."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(60)

    def url(self, database, password=PASSWORD):
        login = f"{USER}:{quote(password, safe='')}" if password else USER
        port = "" if self.port == 5432 else f"&port={self.port}"
        return f"postgresql+psycopg://{login}@/{database}?host={self.home}{port}"

    def connect(self, database="postgres"):
        import psycopg

        return psycopg.connect(
            host=str(self.home), port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
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
def server(inside=(), tls=None, **more):
    """Runs until the block ends; dies with the tests' process. `inside` is a command that it is started through.

    `tls` is a folder with the files server.crt and server.key: then it listens on the loopback, too, with TLS alone.
    """
    bin_folder = programs()
    assert bin_folder is not None
    home = Path(tempfile.mkdtemp(prefix="culmen-pg-"))
    as_user = _as_user(home)
    (home / "password").write_text(PASSWORD)
    subprocess.run(
        [*as_user, bin_folder / "initdb", "-D", home / "data", "-U", USER, "-A", "scram-sha-256", "--no-sync",
         "--pwfile", home / "password", "-E", "UTF8", "--locale", "C.UTF-8"],
        check=True, capture_output=True, cwd=home,
    )  # fmt: skip
    rules = home / "data" / "pg_hba.conf"
    lines = f"{rules.read_text()}host all all samenet scram-sha-256\n"
    rules.write_text(re.sub("^host ", "hostssl ", lines, flags=re.M) if tls else lines)
    settings = {"listen_addresses": "", "unix_socket_directories": home, "fsync": "off", "max_connections": "100",
                "autovacuum": "off", "shared_buffers": "32MB", **more}  # fmt: skip
    if tls:
        for name in ("server.crt", "server.key"):
            shutil.copy(tls / name, home)
            (home / name).chmod(0o600)
            shutil.chown(home / name, home.stat().st_uid, home.stat().st_gid)
        settings |= {"ssl": "on", "ssl_cert_file": home / "server.crt", "ssl_key_file": home / "server.key"}
        settings |= {"listen_addresses": "localhost", "port": free_port()}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [*inside, *as_user, bin_folder / "postgres", "-D", home / "data", *options]
    running = Server(home, command, settings.get("port", 5432))
    try:
        running.start()
        yield running
    finally:
        running.process.terminate()  # to the server: a smart shutdown; the next one does not wait for clients
        running.process.send_signal(2)
        running.process.wait(60)
        shutil.rmtree(home)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def make_certificates(folder):
    """A root certificate root.crt and one of it for localhost, and other.crt, the root of another; by openssl."""

    def run(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("root", "other"):
        run(*new, "-subj", f"/CN=tests' {name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")
    own = ("-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE")
    own += ("-CA", "root.crt", "-CAkey", "root.key", "-keyout", "server.key", "-out", "server.crt")
    run(*new, "-subj", "/CN=localhost", *own)
    return folder


def _as_user(home):
    """The server refuses to run as root: then it is the system's own user for it, or nobody."""
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
