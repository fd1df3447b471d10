"""A driver's machine that vanishes, as the cable to the server is pulled.

The server is in one network namespace, the driver in another. The lock is given back, another
machine goes on, and the first driver, plugged in again, writes nothing.
"""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from culmen.store import views
from culmen.store.address import local_folder, parse_address
from culmen.store.inbox import send_stop
from culmen.store.journal import SqlJournal
from culmen.store.lease import current_owner
from tests import postgres
from tests.cli.conftest import Place
from tests.cli.test_cli_attend import NOISY, begun, wait
from tests.postgres import PASSWORD

pytestmark = (
    pytest.mark.slow
)  # neither "postgres" nor "jail", which must not be skipped where those are required
QUICK = {
    "tcp_keepalives_idle": 1,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 2,
    "tcp_user_timeout": 2000,
}
UNREACHABLE = 75  # the exit code of a driver whose database answers no more
PATIENCE = 240.0  # seconds, for a machine that is busy
IMPATIENT = "keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=2000&connect_timeout=2"


class Cable:
    """Two machines with one cable between them.

    `inside[0]` and `inside[1]` are commands to start something through.
    """

    def __init__(self, name):
        self.names = (f"{name}-a", f"{name}-b")
        self.inside = [("ip", "netns", "exec", each) for each in self.names]
        self.addresses = ("192.0.2.1", "192.0.2.2")

    def lay(self):
        for name in self.names:
            _ip("netns", "add", name)
        ends = [name.replace("culmen", "cu") for name in self.names]
        _ip(
            "link",
            "add",
            ends[0],
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            ends[1],
            "netns",
            self.names[1],
        )
        for name, end, address in zip(self.names, ends, self.addresses):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", end, "up")

    def plug(self, how):
        _ip("-n", self.names[1], "link", "set", self.names[1].replace("culmen", "cu"), how)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def cable():
    if shutil.which("ip") is None:
        pytest.skip("there is no program 'ip' (package iproute2) to make network namespaces with")
    made = Cable(f"culmen{os.getpid() % 10_000}")
    try:
        try:
            made.lay()
        except OSError as error:
            pytest.skip(f"network namespaces are not permitted here: {error}")
        yield made
    finally:
        made.remove()


@contextmanager
def driver(place, inside, *arguments, **environment):
    """A search as a process, which ends with the block."""
    env = {**os.environ, "HOME": str(place.root), **environment}
    command = [*inside, sys.executable, "-m", "culmen.cli.main", *arguments, "--quiet"]
    process = subprocess.Popen(
        command,
        cwd=place.root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.timeout(600)
@pytest.mark.extension("cluster")
def test_a_machine_that_vanishes_loses_the_run_and_is_fenced_when_it_is_back(
    cable, tmp_path, monkeypatch
):
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL's server is not installed")
    place = Place(tmp_path)
    place.task("peak", toml=NOISY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other-machine"))
    with postgres.server(cable.inside[0], listen_addresses=cable.addresses[0], **QUICK) as server:
        here = (
            server.new_database()
        )  # by the socket in the file system, which reaches beyond the namespace
        there = here.replace("@/", f"@{cable.addresses[0]}/").partition("?")[0] + f"?{IMPATIENT}"
        run = local_folder(parse_address(here, "far"))
        far = (
            "run",
            "peak",
            "--budget",
            "evaluations=1000000",
            "--run-dir",
            "far",
            "--db",
            f"{there}#far",
        )
        with driver(
            place, cable.inside[1], *far, XDG_CACHE_HOME=str(tmp_path / "first-machine")
        ) as first:
            wait(lambda: begun(run), "the first machine never began", PATIENCE)
            assert current_owner(run).pid == first.pid
            cable.plug("down")
            wait(lambda: current_owner(run) is None, "the server never noticed", PATIENCE)
            left = views.run_status(run)
            assert left.state == "interrupted"
            # the first one waits for its cable, or its own connection has timed out as well
            assert first.poll() in (None, UNREACHABLE)
            with driver(place, (), "resume", f"{here}#far") as second:
                more = left.evaluations + 3
                wait(
                    lambda: views.run_status(run).evaluations > more,
                    "the second machine did not go on",
                    PATIENCE,
                )
                assert current_owner(run).pid == second.pid
                cable.plug("up")
                said, _ = first.communicate(timeout=PATIENCE)
                assert first.returncode not in (0, 70) and "Traceback" not in said, said
                # the new owner is named, unless the old connection timed out before the cable was
                # back
                assert f"process {second.pid}" in said or "the database does not answer" in said, (
                    said
                )
                assert PASSWORD not in said
                assert current_owner(run).pid == second.pid
                send_stop(run)
                said, _ = second.communicate(timeout=PATIENCE)
                assert second.returncode == 0, said
        events = list(SqlJournal.open(run).read())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert (views.run_status(run).state, views.run_status(run).reason) == ("finished", "user")
        states = [event.entry.body["state"] for event in events if event.entry.kind == "state"]
        assert states == [
            "running",
            "running",
            "finished",
        ]  # the first one added nothing after it was cut off
        assert place.here("runs", "replay", f"{here}#far", "--json").document["matches"]
