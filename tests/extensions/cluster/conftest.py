"""A Ray cluster of several nodes on this machine's loopback."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from culmen.testing.backend_kit import processes_called, wait_for_condition

HAS_RAY = importlib.util.find_spec("ray") is not None
HAS_SUBMITIT = importlib.util.find_spec("submitit") is not None
if HAS_RAY:  # read when Ray is imported: loopback only, a token, no telemetry
    os.environ.update(
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN="0123456789abcdef" * 4,
        RAY_USAGE_STATS_ENABLED="0",
    )


async def killed(driver: subprocess.Popen[bytes], name: str) -> None:
    """Kill a driver while a candidate with this name runs, and see that it ends."""
    await wait_for_condition(
        lambda: bool(processes_called(name)) or driver.poll() is not None, "the candidate runs"
    )
    assert driver.poll() is None
    driver.kill()
    driver.wait()
    await wait_for_condition(lambda: not processes_called(name), "the candidate has ended")


def patiently(start: Callable[[], Any]) -> Any:
    """Start something of Ray, which may give up on the first try on a busy machine."""
    for last in (False, False, True):
        try:
            return start()
        except Exception:
            if last:
                raise


class Nodes:
    """A head without cores, and nodes that the tests add and kill."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

        small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
        self._small = small
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.outside = f"ray://127.0.0.1:{port}"  # Ray's client server
        head = {"num_cpus": 0, "ray_client_server_port": port, **small}
        self.cluster: Any = patiently(
            lambda: Cluster(initialize_head=True, connect=False, head_node_args=head)
        )

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self, cpus: int = 2, **resources: float) -> Any:
        """A node with this number of cores and these resources."""
        return patiently(
            lambda: self.cluster.add_node(num_cpus=cpus, resources=resources, **self._small)
        )

    def kill(self, node: Any) -> None:
        """At once, as a machine that is gone."""
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    if not HAS_RAY:
        pytest.skip("Ray is not installed: pip install 'culmen[ray]'")
    made = Nodes()
    yield made
    made.cluster.shutdown()
