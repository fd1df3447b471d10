"""The programs of attacks/ on this machine, and their outcomes.

`culmen doctor --attack` runs the same attacks as the tests.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import secrets
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.json import JsonObject
from culmen.core.task import Evaluator, Limits, Task

if TYPE_CHECKING:
    from culmen.evaluate.local import LocalBackend

ATTACKS = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parent / "jail_attacks").glob("*.py"))
}
FAKE_KEY = "sk-fake-0123456789"
LIMITS = Limits(
    seconds=1.5, memory_mb=256, processes=24, files_mb=16, output_kb=256, scorer_seconds=10.0
)
HELD, WON = "held", "WON"
# a fixed amount of work, and the processor time that it took
HONEST = """
import time
def run(**target):
    total = 0
    for number in range(150_000):
        total += number * number
    return {"values": sorted(target["values"]), "cpu": time.process_time()}
"""
# within its rights, as an attack that computes until its time is up
BUSY = (
    "import time\ndef run(**target):\n    end = time.monotonic() + 1.0\n"
    "    while time.monotonic() < end:\n        pass\n    return sorted(target['values'])\n"
)
LANES = 3  # honest evaluations at the same time as an attack
_FRESH = 5  # attacks after which the usual time of a neighbour is measured anew
JUDGE = f"""
SECRET = "hidden-" + "{{secret}}"
def judge(output, values):
    text = repr(output)
    if SECRET in text or {FAKE_KEY!r} in text or (isinstance(output, dict) and output.get("loot")):
        return 100.0
    output = output.get("values") if isinstance(output, dict) else output
    return 1.0 if isinstance(output, list) and output == sorted(values) else 0.0
"""
_SOURCE = (
    JUDGE
    + """
def score(output, case):
    cpu = output.get("cpu") if isinstance(output, dict) else None
    return {"score": judge(output, case.input["values"]), "cpu": cpu if type(cpu) is float else 0.0}
"""
)
_DECOY = "CULMEN_DECOY_KEY"  # a key in this process's environment, for attacks to find


def header_words(text: str, name: str) -> set[str]:
    """The words of a line like `# expect: ok` at the top of an attack."""
    header = re.search(rf"^# {name}: (.*)$", text, re.MULTILINE)
    return set(header[1].split()) if header else set()


class Decoys:
    """A run folder, a task folder with a hidden answer, listeners, and a process with a key."""

    def __init__(self, folder: Path, source: str) -> None:
        self.run_folder, self.task_folder = folder / "run", folder / "task"
        for path in (self.run_folder, self.task_folder):
            path.mkdir()
            path.chmod(0o777)
        (self.run_folder / "journal").write_text("precious")
        (self.task_folder / "seed.py").write_text("def honest(): pass")
        self.evaluator = self.task_folder / "evaluator.py"
        token = secrets.token_hex(8)
        self.secret = f"hidden-{token}"  # complete in no file, since the jail may show this one
        self.evaluator.write_text(source.replace("{secret}", token))
        for path in (self.run_folder / "journal", self.task_folder / "seed.py", self.evaluator):
            path.chmod(0o666)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.name = f"culmen-decoy-{os.getpid()}-{id(self)}"
        self.abstract.bind("\0" + self.name)
        self.abstract.listen()
        # a path of a socket must be short
        self.sockets = tempfile.TemporaryDirectory(prefix="culmen-s-")
        os.chmod(self.sockets.name, 0o777)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(f"{self.sockets.name}/stream")
        self.unix.listen()
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(f"{self.sockets.name}/datagram")
        for path in (self.unix.getsockname(), self.datagrams.getsockname()):
            os.chmod(path, 0o777)
        self.listeners = {
            "tcp": self.tcp,
            "abstract": self.abstract,
            "unix": self.unix,
            "udp": self.udp,
            "datagram": self.datagrams,
        }
        for listener in self.listeners.values():
            listener.setblocking(False)
        self.victim = subprocess.Popen(["/bin/sleep", "600"], env={"OPENAI_API_KEY": FAKE_KEY})
        self.before = self.file_states()

    def attack_arguments(self) -> JsonObject:
        """Everything that an attacker could wish to know."""
        return {
            "values": [3.0, 1.0, 2.0],
            "orchestrator": os.getpid(),
            "victim": self.victim.pid,
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": self.name,
            "unix": self.unix.getsockname(),
            "unix_datagram": self.datagrams.getsockname(),
            "run_folder": str(self.run_folder),
            "task_folder": str(self.task_folder),
            "hint": self.secret,
            "processes": LIMITS.processes,
            "files_mb": LIMITS.files_mb,
            "memory_mb": LIMITS.memory_mb,
        }

    def file_states(self) -> dict[str, tuple[str, int, int, int]]:
        """Every file with its text, mode, owner and time of change (ns); folders have no time."""
        states = {}
        for path in (
            self.run_folder,
            self.task_folder,
            *self.run_folder.rglob("*"),
            *self.task_folder.rglob("*"),
        ):
            if path.suffix != ".pyc" and path.name != "__pycache__":
                info, plain = path.stat(), path.is_file()
                text = path.read_text() if plain else ""
                states[str(path)] = (
                    text,
                    info.st_mode,
                    info.st_uid,
                    info.st_mtime_ns if plain else 0,
                )
        return states

    def reached_listeners(self) -> list[str]:
        """Names of the listeners that were reached."""
        reached = []
        for name, listener in self.listeners.items():
            try:
                listener.recv(100) if listener.type == socket.SOCK_DGRAM else listener.accept()
                reached.append(name)
            except BlockingIOError:
                pass
        return reached

    def describe_harm(self) -> str:
        """The changed files, reached listeners and killed processes; "" if there are none."""
        after = self.file_states()
        changed = [
            path
            for path in self.before.keys() | after.keys()
            if self.before.get(path) != after.get(path)
        ]
        dead = [] if self.victim.poll() is None else ["killed a bystander"]
        return ", ".join(
            [
                *(f"changed {path}" for path in changed),
                *(f"reached {n}" for n in self.reached_listeners()),
                *dead,
            ]
        )

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self.listeners.values():
            listener.close()
        self.sockets.cleanup()


class Neighbours(msgspec.Struct):
    """Honest evaluations at the same time as programs.

    lost       evaluations that did not score, with their reasons
    seconds    wall time of each, from the request to the score
    processor  processor time of each
    """

    lost: list[str] = []
    seconds: list[float] = []
    processor: list[float] = []

    def over(self, usual: Neighbours) -> Neighbours:
        """The same with times as multiples of the median ones of `usual`."""
        wall, cpu = statistics.median(usual.seconds), statistics.median(usual.processor)
        return Neighbours(
            list(self.lost),
            [each / wall for each in self.seconds],
            [each / cpu for each in self.processor],
        )

    def add(self, more: Neighbours) -> None:
        """Count those of `more`, too."""
        self.lost += more.lost
        self.seconds += more.seconds
        self.processor += more.processor

    def report(self, usual: Neighbours) -> JsonObject:
        """The number of those lost, and the shares by which median times exceed those of `usual`.

        The margin is two standard errors of the share for wall time.
        """
        return {
            "evaluations": len(self.seconds),
            "lost": len(self.lost),
            "slower": round(_ratio(self.seconds, usual.seconds) - 1, 3),
            "margin": round(_margin(self.seconds, usual.seconds), 3),
            "slower_cpu": round(_ratio(self.processor, usual.processor) - 1, 3),
        }


def _ratio(values: list[float], usual: list[float]) -> float:
    return statistics.median(values) / statistics.median(usual)


def _margin(values: list[float], usual: list[float]) -> float:
    """Two standard errors of the ratio of two medians, each from the middle half of its values."""
    error = 0.0
    for sample in (values, usual):
        low, middle, high = statistics.quantiles(sample, n=4) if len(sample) > 1 else (0, 1, 2)
        error += (1.2533 * (high - low) / 1.349 / middle) ** 2 / len(sample)
    return 2 * _ratio(values, usual) * math.sqrt(error)


def run_suite(
    on_result: Callable[[str, str], None] | None = None, image: str = "", level: str | None = None
) -> JsonObject:
    """Run all attacks at the level in force, at `level`, or in a container of `image`.

    The result has `level` and, by attack, HELD or WON with the harm, and the honest `neighbours` of
    each: their number, how many were lost, and by which share they took longer than beside a busy
    honest program, measured before and after. `beside_all` has the same of all attacks together,
    and the `worst` of them. Nothing runs below level restricted, where attacks would succeed on
    this machine. The callback gets each result.
    """
    wanted = "container" if image else level
    return asyncio.run(_run_suite(on_result or (lambda *_: None), image, wanted))


async def _run_suite(
    on_result: Callable[[str, str], None], image: str, wanted: str | None
) -> JsonObject:
    from culmen.evaluate.local import LocalBackend

    with tempfile.TemporaryDirectory(prefix="culmen-attack-") as folder:
        os.chmod(folder, 0o755)
        decoys = Decoys(Path(folder), _SOURCE)
        task = Task(
            "attacked",
            evaluator=Evaluator(path=str(decoys.evaluator), entry="run", image=image),
            limits=LIMITS,
        )
        backend = LocalBackend(task, 1 + LANES, require="restricted", level=wanted)
        results: dict[str, str] = {}
        beside = _Beside()
        os.environ[_DECOY] = FAKE_KEY
        try:
            level = await backend.start()
            inside = "restricted" if level == "container" else level
            chosen = [
                n for n, t in ATTACKS.items() if not header_words(t, "not") & {"call", inside}
            ]
            await _evaluate_beside(backend, BUSY, decoys)  # what comes first takes longer
            _, before = await _evaluate_beside(backend, BUSY, decoys)
            for place in range(0, len(chosen), _FRESH):
                several: dict[str, Neighbours] = {}
                for name in chosen[place : place + _FRESH]:
                    results[name], several[name] = await _attack_result(
                        backend, ATTACKS[name], decoys
                    )
                    on_result(name, results[name])
                _, after = await _evaluate_beside(backend, BUSY, decoys)
                beside.add(several, before, after)
                before = after
        finally:
            del os.environ[_DECOY]
            await backend.close()
            decoys.close()
    return {
        "level": level,
        "attacks": results,
        "neighbours": beside.each,
        "beside_all": beside.report(),
        "won": sum(result != HELD for result in results.values()),
    }


class _Beside:
    """The honest evaluations beside each attack, compared with those beside a busy program."""

    def __init__(self) -> None:
        self.each: dict[str, JsonObject] = {}
        self._all, self._usual = Neighbours([], [], []), Neighbours([], [], [])

    def add(self, several: dict[str, Neighbours], before: Neighbours, after: Neighbours) -> None:
        """Count those beside several attacks, and beside a busy program before and after them."""
        usual = Neighbours([], [], [])
        usual.add(before)
        usual.add(after)
        self._usual.add(usual.over(usual))
        for name, found in several.items():
            self.each[name] = found.report(usual)
            self._all.add(found.over(usual))

    def report(self) -> JsonObject:
        """All of them together, and the name of the attack beside which they were slowest."""
        worst = max(self.each, key=lambda name: self.each[name]["slower"])
        return {**self._all.report(self._usual), "worst": worst}


async def _attack_result(
    backend: LocalBackend, text: str, decoys: Decoys
) -> tuple[str, Neighbours]:
    attacks, neighbours = await _evaluate_beside(backend, text, decoys)
    honest = await _evaluate(backend, HONEST, decoys)
    lost, best = neighbours.lost, max(attack.score or 0.0 for attack in attacks)
    won = [f"scored {best:g}"] if best else []
    won += ["lost the evaluation"] if any(a.status is Status.LOST for a in attacks) else []
    won += [f"spoiled the next evaluation ({honest.reason})"] if honest.score != 1.0 else []
    won += [f"spoiled {len(lost)} honest neighbours ({lost[0]})"] if lost else []
    won += [harm] if (harm := decoys.describe_harm()) else []
    return f"{WON}: {', '.join(won)}" if won else HELD, neighbours


async def _evaluate(backend: LocalBackend, text: str, decoys: Decoys) -> Observation:
    case = Case("1", decoys.attack_arguments(), info={"secret": decoys.secret})
    return await backend.evaluate(Candidate.of({"program.py": text}), case, 1)


async def _evaluate_beside(
    backend: LocalBackend, text: str, decoys: Decoys
) -> tuple[list[Observation], Neighbours]:
    """A program, for some time, and three honest ones beside it again and again."""
    # an attack that ends sooner begins again, so that many neighbours are measured
    neighbours, end = Neighbours([], [], []), time.monotonic() + 0.6
    attacks = [asyncio.ensure_future(_evaluate(backend, text, decoys))]

    async def evaluate_honest() -> None:
        while not attacks[-1].done():
            began = time.monotonic()
            honest = await _evaluate(backend, HONEST, decoys)
            neighbours.seconds.append(time.monotonic() - began)
            neighbours.processor.append(honest.metrics.get("cpu", 0.0))
            neighbours.lost += [] if honest.score == 1.0 else [honest.reason]
            if attacks[-1].done() and time.monotonic() < end:
                attacks.append(asyncio.ensure_future(_evaluate(backend, text, decoys)))

    await asyncio.gather(*(evaluate_honest() for _ in range(LANES)))
    return [await attack for attack in attacks], neighbours
