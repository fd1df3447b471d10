"""A worker in a network namespace of its own, behind a line that drops a fifth of all packets each way."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from culmen.cluster.queue_link import new_token, prepare_queue
from culmen.core.options import BackendChoice
from culmen.evaluate.backends import make_backend
from culmen.store.address import parse_address
from culmen.testing.backend_kit import kit_task
from tests import postgres
from tests.cluster.test_cluster_queue import TOKEN, folder, programs, scores
from tests.store.test_store_cable import Cable, cable

__all__ = ["cable"]
pytestmark = pytest.mark.slow  # not "postgres": it must not fail where namespaces are not permitted


def make_lossy(namespace: str) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("there is no program 'iptables' to drop packets with")
    for chain in ("INPUT", "OUTPUT"):
        words = f"iptables -A {chain} -p tcp -m statistic --mode random --probability 0.2 -j DROP".split()
        done = subprocess.run(["ip", "netns", "exec", namespace, *words], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"packets cannot be dropped here: {done.stderr.decode().strip()}")


def test_nothing_is_lost_over_a_line_that_loses_packets(cable: Cable, tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL's server is not installed")
    make_lossy(cable.names[1])
    with postgres.server(cable.inside[0], listen_addresses=cable.addresses[0]) as server:
        here = server.new_database()
        there = here.replace("@/", f"@{cable.addresses[0]}/").partition("?")[0]
        prepare_queue(parse_address(here))
        token = new_token(parse_address(here), "far", None, False)
        culmen = str(Path(sys.executable).with_name("culmen"))
        words = [*cable.inside[1], culmen, "worker", there, "--slots", "4"]
        worker = subprocess.Popen(words, env={**os.environ, TOKEN: token}, stderr=subprocess.DEVNULL)
        task = msgspec.structs.replace(kit_task(folder(tmp_path)), deterministic=True)

        async def work() -> list[float | None]:
            backend = make_backend(BackendChoice("queue", parse_address(here).url, wait=90.0), task, 8)
            await backend.start()
            try:
                return await scores(backend, task, programs(16))
            finally:
                await backend.close()

        try:
            assert asyncio.run(work()) == [-float(n) for n in range(16)]
        finally:
            worker.kill()
            worker.wait()
