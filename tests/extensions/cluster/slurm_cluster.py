"""A Slurm cluster of the tests' own: munge, a controller and two nodes.

They are on the loopback, in a temporary folder alone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
NODES = {"n1": "fpga:2", "n2": ""}  # their generic resources
_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_PATIENCE = 60.0

CONF = """
ClusterName=culmentest
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={home}/munge.sock
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=1
KillWait=5
SlurmdTimeout=10
SlurmdParameters=config_overrides
GresTypes=fpga
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=4000 Gres=fpga:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=4000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=short Nodes=n1,n2 MaxTime=10 State=UP PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10
"""


def lacking() -> str:
    """Programs that a cluster needs and that are not installed, "" if all are there."""
    return ", ".join(name for name in PROGRAMS if shutil.which(name, path=_PLACES) is None)


class CannotStart(Exception):
    """The daemons are installed, and do not run here; with their own words."""


class Cluster:
    """Both nodes are up when it is made; `end` takes everything down."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="culmen-slurm-"))
        self.home.chmod(0o755)  # munged refuses a folder that not everybody can enter
        self.conf = self.home / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": _PLACES}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()

    def _configure(self) -> None:
        (self.home / "state").mkdir()
        for node in NODES:
            (self.home / f"spool-{node}").mkdir()
        (self.home / "munge.key").write_bytes(os.urandom(128))
        (self.home / "munge.key").chmod(0o400)
        text = CONF.format(
            host=os.uname().nodename.partition(".")[0],
            user=pwd.getpwuid(os.getuid()).pw_name,
            home=self.home,
            ports=_free_ports(3),
        )
        self.conf.write_text(text)
        gres = [f"NodeName={node} Name=fpga Count={has[-1]}" for node, has in NODES.items() if has]
        (self.home / "gres.conf").write_text("\n".join(gres) + "\n")

    def start(self) -> None:
        """Raises `CannotStart`."""
        names = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
        }
        places = [f"--{option}={self.home / name}" for option, name in names.items()]
        self._run(
            "munge",
            "munged",
            "--foreground",
            "--num-threads=2",
            f"--seed-file={self.home / 'seed'}",
            *places,
        )
        self._until(lambda: (self.home / "munge.sock").exists(), "munged listens")
        self._run("controller", "slurmctld", "-D", "-c", "-f", str(self.conf))
        for node in NODES:
            self.raise_node(node)
        self._until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "both nodes are idle")

    def raise_node(self, node: str) -> None:
        """Start a node's daemon."""
        self._run(node, "slurmd", "-D", "-N", node, "-f", str(self.conf))

    def _run(self, name: str, program: str, *words: str) -> None:
        """A daemon that goes when this process does."""
        found = shutil.which(program, path=_PLACES)
        assert found is not None
        line = ["setpriv", "--pdeathsig", "TERM", found, *words]
        with (self.home / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                line, stdout=out, stderr=out, env=self.environment, cwd=self.home
            )

    def _until(self, condition: object, what: str) -> None:
        assert callable(condition)
        ends = time.monotonic() + _PATIENCE
        while not condition():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > ends:
                raise CannotStart(
                    f"never came true: {what} ({', '.join(ended) or 'all daemons'}): {self._said()}"
                )
            time.sleep(0.05)

    def _said(self) -> str:
        texts = [path.read_text(errors="replace") for path in sorted(self.home.glob("*.out"))]
        lines = [
            line
            for text in texts
            for line in text.splitlines()
            if "rror" in line or "fatal" in line
        ]
        return "; ".join(lines[-6:])

    def call(self, *words: str) -> str:
        """The output of a command of Slurm; raises where it fails."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        """The state of each node."""
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        return dict(line.split() for line in done.stdout.splitlines())

    def jobs(self, *states: str) -> dict[str, tuple[str, str]]:
        """State and node of all jobs, or of those in some states, by their ids, oldest first."""
        wanted = f"--states={','.join(states) or 'all'}"
        lines = self.call("squeue", "-h", wanted, "--sort=i", "-o", "%i|%T|%N").splitlines()
        return {
            number: (state, node) for number, state, node in (line.split("|") for line in lines)
        }

    def active(self) -> dict[str, tuple[str, str]]:
        """The same of those that have not ended."""
        return {
            i: job
            for i, job in self.jobs().items()
            if job[0] in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")
        }

    def shown(self, job: str) -> dict[str, str]:
        """All that the controller knows about a job."""
        pairs = (word.partition("=") for word in self.call("scontrol", "show", "job", job).split())
        return {name: value for name, _, value in pairs}

    def down(self, *nodes: str) -> None:
        """Declare nodes lost, as an administrator or a broken machine would."""
        self.call("scontrol", "update", f"nodename={','.join(nodes)}", "state=down", "reason=test")

    def up(self, *nodes: str) -> None:
        """And back."""
        for node in nodes:
            if self.states().get(node) not in ("idle", "mix", "alloc"):
                self.call("scontrol", "update", f"nodename={node}", "state=resume")

    def calm(self) -> None:
        """Both nodes idle and no job left, whatever a test did.

        Raises `CannotStart` where that never comes true.
        """
        subprocess.run(
            ["scancel", "-u", str(os.getuid())], env=self.environment, capture_output=True
        )
        for node in NODES:
            with contextlib.suppress(AssertionError):
                self.up(node)
        self._until(
            lambda: not self.active() and set(self.states().values()) == {"idle"},
            "the cluster is idle",
        )

    def end(self) -> None:
        """Jobs first, then the daemons."""
        subprocess.run(
            ["scancel", "-u", str(os.getuid())], env=self.environment, capture_output=True
        )
        with contextlib.suppress(CannotStart, AssertionError):
            self._until(lambda: not self.active(), "no job is left")
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._steps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def _steps(self) -> list[int]:
        """Processes that the nodes started for jobs and that are still there.

        They wait for a controller that is gone.
        """
        found = list[int]()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("slurmstepd"):
                    links = [
                        os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
                    ]
                    found += (
                        [int(pid)]
                        if any(link.startswith(f"{self.home}/") for link in links)
                        else []
                    )
        return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """One that lasts as long as the block. Raises `CannotStart`."""
    made = Cluster()
    try:
        made.start()
        yield made
    finally:
        made.end()
