"""A search on a Ray cluster while cables are pulled and nodes come and go.

The hosts are made of namespaces.

    python bench/bench_hosts.py [node driver cluster outside autoscaler ...]

Needs root, iproute2 and culmen[ray]. Every host has a network, processes, a name and temporary
files of its own; a cable is pulled by taking a port of the switch down, so no process is informed.
Prints a line for each case, with seconds by the clock. The autoscaler is Ray's own for trying such
things out (`fake_multinode`), which starts nodes as processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.extensions.cluster.hosts import Host, network
from tests.extensions.cluster.test_cluster_ray_hosts import TOKEN, Cluster

from culmen.testing.backend_kit import kit_task

SLOW = "import time\n\n\ndef run(x):\n    time.sleep(1.0)\n    return 2 * x\n"
WORKS = """
import asyncio, json, sys, time
from culmen.evaluate.backends import make_backend
from culmen.core.options import BackendChoice, Needs
from culmen.tasks import load
from culmen.testing.backend_kit import candidate

PROGRAM = "import time\\n\\ndef run(x):\\n    time.sleep({seconds})\\n    return 2 * x + {n}\\n"
ADDRESS, PLAN = sys.argv[1], json.loads(sys.argv[2])
BEGAN = time.monotonic()

def say(what):
    print(f"    {time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)

async def nodes():
    import ray
    seen = None
    while True:
        alive = sum(node["Alive"] for node in await asyncio.to_thread(ray.nodes)) - 1
        if alive != seen:
            say(f"{alive} nodes beside the head")
        seen = alive
        await asyncio.sleep(0.5)

async def main():
    task = load("/tmp/kit")
    backend = make_backend(BackendChoice("ray", address=ADDRESS, wait=90, rest=4), task, 6, tell=say)
    await backend.start()
    watching = asyncio.create_task(nodes())
    try:
        for count, seconds, pause in PLAN:
            texts = [PROGRAM.format(seconds=seconds, n=n) for n in range(count)]
            asked = (backend.evaluate(candidate(text), task.cases[0], n) for n, text in enumerate(texts))
            seen = await asyncio.gather(*asked)
            right = sum(each.score == -float(n) for n, each in enumerate(seen))
            say(f"{right} of {count} evaluations are right; now a pause of {pause} s")
            await asyncio.sleep(pause)
    finally:
        watching.cancel()
        await backend.close()
    gpus = make_backend(BackendChoice("ray", address=ADDRESS, wait=10, needs=Needs(gpu=8)), task, 1, tell=say)
    try:
        await gpus.start()
    except Exception as error:
        say(f"8 GPUs: {type(error).__name__}: {error.what}")
    await gpus.close()

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    for name in parser.parse_args().cases:
        with network() as net, tempfile.TemporaryDirectory() as folder:
            print(name, flush=True)
            CASES[name](net, Path(folder))


def node(net: Any, folder: Path) -> None:
    """One of two nodes falls silent; the driver is on the other."""
    cluster = _cluster(net, folder)
    _watched(cluster, _search(cluster, cluster.one, cluster.inside, 40), ["two"])


def outside(net: Any, folder: Path) -> None:
    """The same with a driver outside the cluster."""
    cluster = _cluster(net, folder)
    _watched(cluster, _search(cluster, cluster.laptop, cluster.outside, 40), ["two"])


def driver(net: Any, folder: Path) -> None:
    """The driver's own machine falls silent, which is outside the cluster."""
    cluster = _cluster(net, folder)
    _watched(cluster, _search(cluster, cluster.laptop, cluster.outside, 400), ["laptop"])
    began = time.monotonic()
    while any("ray::NodeActor" in host.processes().values() for host in cluster.workers):
        time.sleep(0.5)
    _say(f"nothing of it is left on the nodes after {time.monotonic() - began:.0f} s more")


def cluster(net: Any, folder: Path) -> None:
    """All machines except the driver's fall silent.

    Then the cluster is started anew, and the run resumed on it.
    """
    made = _cluster(net, folder)
    _watched(made, _search(made, made.laptop, made.outside, 60), ["head", "one", "two"])
    for host in (made.head, made.one, made.two):
        host.run("ray", "stop", "--force")
    net.plug("head", "one", "two")
    made.start(made.head, "--head", "--num-cpus=0", "--include-dashboard=false")
    for host in made.workers:
        made.start(host, f"--address={made.inside}", "--num-cpus=2")
    _ended(made.culmen(made.laptop, "resume", "/tmp/run"), "resumed")


def autoscaler(net: Any, folder: Path) -> None:
    """From no nodes, through pauses in which they are taken away.

    At the end, to a resource that no node can have.
    """
    host = net.add("auto")
    kit_task(folder)
    shutil.copytree(folder, host.root / "tmp/kit")
    (host.root / "tmp/auto.json").write_text(json.dumps(_autoscaling()))
    (host.root / "tmp/works.py").write_text(WORKS)
    fake = {
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_enable_autoscaler_v2": "0",
        **TOKEN,
    }
    words = (
        "--head",
        "--autoscaling-config=/tmp/auto.json",
        "--num-cpus=0",
        "--object-store-memory=80000000",
    )
    host.run("ray", "start", *words, "--include-dashboard=false", more=fake)
    plan = [[12, 2, 0], [1, 2, 0], [1, 2, 0], [1, 2, 0], [1, 2, 30], [12, 2, 0]]
    host.popen(sys.executable, "/tmp/works.py", "auto", json.dumps(plan), more=TOKEN).wait()


CASES: dict[str, Callable[[Any, Path], None]] = {
    "node": node,
    "outside": outside,
    "driver": driver,
    "cluster": cluster,
    "autoscaler": autoscaler,
}


def _cluster(net: Any, folder: Path) -> Cluster:
    made = Cluster(net, folder)
    for host in (made.laptop, made.one):
        (host.root / "tmp/kit/program.py").write_text(SLOW)
    return made


def _search(made: Cluster, host: Host, address: str, evaluations: int) -> subprocess.Popen[Any]:
    words = [
        "run",
        "/tmp/kit",
        "--set",
        f"backend.address={address}",
        "--strategy",
        "best_of_n",
        "--run-dir",
        "/tmp/run",
    ]
    return made.culmen(host, *words, "--budget", f"evaluations={evaluations}")


def _watched(made: Cluster, run: subprocess.Popen[Any], cables: list[str]) -> None:
    while run.poll() is None and not all(
        "bwrap" in each.processes().values() for each in made.workers
    ):
        time.sleep(0.1)
    time.sleep(5.0)
    began = time.monotonic()
    made.net.unplug(*cables)
    _say(f"cable of {', '.join(cables)} pulled")
    _ended(run, "the run ended", began)


def _ended(run: subprocess.Popen[Any], what: str, began: float | None = None) -> None:
    began = time.monotonic() if began is None else began
    out, err = run.communicate()
    told = json.loads(out) if out.strip() else {"error": {"what": err[-500:]}}
    said = (
        told["error"]["what"]
        if "error" in told
        else f"{told['state']}, {told['evaluations']} evaluations"
    )
    _say(f"{what} after {time.monotonic() - began:.0f} s with exit code {run.returncode}: {said}")


def _say(text: str) -> None:
    print(f"    {text}", flush=True)


def _autoscaling() -> dict[str, Any]:
    """A cluster of no nodes that may have three small ones and one with a GPU."""
    own = {"object_store_memory": 80_000_000}
    kinds = {
        "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "small": {
            "resources": {"CPU": 2, **own},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 3,
        },
        "gpu": {
            "resources": {"CPU": 2, "GPU": 1, **own},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 1,
        },
    }
    lists = (
        "cluster_synced_files",
        "rsync_exclude",
        "rsync_filter",
        "setup_commands",
        "head_setup_commands",
    )
    lists += (
        "worker_setup_commands",
        "initialization_commands",
        "head_start_ray_commands",
        "worker_start_ray_commands",
    )
    provider = {"type": "fake_multinode", "use_node_id_as_ip": True}
    return {
        "cluster_name": "fake",
        "max_workers": 8,
        "head_node_type": "head",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "available_node_types": kinds,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "provider": {
            **provider,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        **{name: [] for name in lists},
    }


if __name__ == "__main__":
    main()
