"""Evaluations in Slurm jobs: each job is a worker with one jail that takes evaluations from a shared folder.

A job an evaluation would cost seconds each; so a job serves many. Slurm decides where and when jobs run. Workers that
end (time limit, preemption, a node that dies) are submitted again, and what they held is tried elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.backends.choice import Choice
from culmen.evaluate.backends.remote import Lost
from culmen.evaluate.backends.slurm_worker import BEAT, LAPSE
from culmen.evaluate.backends.spool import Spool

WAIT_SECONDS = 3600.0  # for a first worker: queues are long
_ASK_SECONDS = 120.0
_PAUSE = 0.05
_STILLBORN = 3  # workers in a row that end before they begin
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "USER", "LOGNAME", "SHELL")
_LAUNCHER = "culmen.evaluate.backends.slurm_launcher"


class SlurmCarrier:
    """See `remote.Carrier`."""

    def __init__(self, choice: Choice) -> None:
        self.retries, self.terms = choice.retries, b""
        self._choice, self._wait = choice, choice.wait or WAIT_SECONDS
        home = choice.texts.get("folder") or str(Path.home() / ".cache/culmen/slurm")
        self._spool = Spool(Path(home).expanduser().resolve() / secrets.token_hex(8))
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._workers: set[str] = set()
        self._launcher: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._trouble: UserError | None = None
        self._stillborn = self._count = 0
        self._alone = time.monotonic()

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Raises `UserError` with Slurm's own words where it refuses the jobs, `Unavailable` where none starts."""
        cluster = self._choice.texts.get("cluster", "slurm")
        if cluster == "slurm" and shutil.which("sbatch") is None:
            fix = "run culmen on a login node of the cluster, or use --backend ray"
            raise UserError("there is no sbatch on this machine", where="--backend slurm", fix=fix)
        self._spool.make()
        self._spool.put(f"parcel-{name}", parcel)
        self._spool.put("terms", self.terms)
        self._spool.beat("pulse")
        await self._launch(cluster)
        for _ in range(max(1, self._choice.jobs)):
            await self._submit()
        self._watching = asyncio.create_task(self._watch())
        while True:
            greetings = [n for n in self._spool.names("workers") if not n.endswith(".pulse")]
            if greetings:
                answer = self._spool.get(f"workers/{greetings[0]}")
                assert answer is not None
                return answer
            self._check()
            await asyncio.sleep(_PAUSE)

    async def _launch(self, cluster: str) -> None:
        kept = {n: v for n, v in os.environ.items() if n in _KEPT or n.startswith(("SLURM_CONF", "MODULE"))}
        self._launcher = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _LAUNCHER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=kept, start_new_session=True, limit=1 << 20,
        )  # fmt: skip
        texts = {name: text for name, text in self._choice.texts.items() if name not in ("cluster", "folder")}
        slots = self._choice.slots or max(1, self._slots() // max(1, self._choice.jobs))
        setup = {"folder": str(self._spool.root), "cluster": cluster, "slots": slots, "texts": texts}
        setup |= {"minutes": self._choice.minutes, "needs": msgspec.to_builtins(_full(self._choice))}
        await self._ask(setup)

    def _slots(self) -> int:
        return int(json.loads(self.terms).get("workers", 1))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One question to the launcher. Raises `UserError` with what Slurm said, `Unavailable` if nothing comes."""
        launcher = self._launcher
        assert launcher is not None and launcher.stdin is not None and launcher.stdout is not None
        async with self._asking:
            try:
                launcher.stdin.write(json.dumps(request).encode() + b"\n")
                line = await asyncio.wait_for(launcher.stdout.readline(), _ASK_SECONDS)
                answer: dict[str, Any] = json.loads(line)
            except (TimeoutError, ValueError, ConnectionError) as error:
                what = f"jobs cannot be submitted any more: {type(error).__name__}"
                raise Unavailable(what, where="submitit", fix="culmen resume") from None
        if "error" in answer:
            fix = "ask for what the cluster has with --backend-set; then culmen resume"
            raise UserError(f"Slurm refuses: {answer['error'].strip()}", where="--backend slurm", fix=fix)
        return answer

    async def _submit(self) -> None:
        self._count += 1
        worker = f"w{self._count}"
        await self._ask({"do": "submit", "with": [worker]})
        self._workers.add(worker)

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._spool.put(f"jobs/{number}", f"{seconds}\n".encode() + job)
        try:
            while not future.done():
                self._check()
                await asyncio.wait({future}, timeout=BEAT)
            return future.result()
        except Lost:
            raise
        except BaseException:
            self._spool.drop(f"jobs/{number}")
            with contextlib.suppress(OSError):
                self._spool.put(f"cancel/{number}", b"")
            raise
        finally:
            self._waiting.pop(number, None)

    def _check(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    async def _watch(self) -> None:
        """Bring answers home, keep the pulse, replace workers that are gone."""
        beaten, pause = 0.0, _PAUSE
        while self._trouble is None:
            found = self._collect()
            pause = _PAUSE if found or self._waiting else min(pause * 1.5, 1.0)
            if time.monotonic() - beaten > BEAT:
                beaten = time.monotonic()
                self._spool.beat("pulse")
                self._spool.put("terms", self.terms)
                try:
                    await self._look()
                except UserError as error:
                    self._trouble = error
            await asyncio.sleep(pause)

    def _collect(self) -> bool:
        found = self._spool.names("done")
        for number in found:
            answer = self._spool.get(f"done/{number}")
            self._spool.drop(f"done/{number}")
            self._spool.drop(f"cancel/{number}")
            future = self._waiting.get(number)
            if answer is not None and future is not None and not future.done():
                future.set_result(answer)
        return bool(found)

    async def _look(self) -> None:
        """Raises `Unavailable` where workers never come, or end before they begin."""
        told = await self._ask({"do": "states"})
        begun = set(self._spool.names("workers"))
        for worker in list(self._workers):
            hung = f"{worker}.pulse" in begun and self._spool.silent(f"workers/{worker}.pulse") > LAPSE
            if worker not in told["over"] and not hung:
                continue
            self._workers.discard(worker)
            self._stillborn = 0 if worker in begun else self._stillborn + 1
            if self._stillborn >= _STILLBORN:
                words = told["over"].get(worker, "").strip().splitlines()[-1:] or ["it said nothing"]
                fix = "install the same culmen, with the same Python, where Slurm's nodes find it; then culmen resume"
                raise Unavailable(f"workers end before they begin: {words[0]}", where="Slurm", fix=fix)
            self._collect()
            for number in self._spool.names(f"held/{worker}"):
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    future.set_exception(Lost("worker_died"))
            self._spool.drop(f"workers/{worker}")
            await self._submit()
        if any(worker in begun for worker in self._workers):
            self._alone = time.monotonic()
        elif time.monotonic() - self._alone > self._wait:
            fix = "see squeue; ask for less with --backend-set, or wait longer with --backend-set wait=SECONDS"
            raise Unavailable(f"no worker started within {self._wait:g} s", where="Slurm", fix=fix)

    async def close(self) -> None:
        """See `remote.Carrier`."""
        if self._watching is not None:
            self._watching.cancel()
        launcher, self._launcher = self._launcher, None
        if not self._spool.root.exists():
            return
        self._spool.put("stop", b"")
        if launcher is not None:
            await self._gone(launcher)
        await asyncio.to_thread(shutil.rmtree, self._spool.root, True)

    async def _gone(self, launcher: asyncio.subprocess.Process) -> None:
        """Let workers leave by themselves for a moment, then cancel their jobs."""
        self._launcher = launcher
        with contextlib.suppress(UserError):
            for _ in range(int(4 * BEAT / 0.1)):
                if self._workers <= (await self._ask({"do": "states"}))["over"].keys():
                    break
                await asyncio.sleep(0.1)
            await self._ask({"do": "cancel"})
        self._launcher = None
        assert launcher.stdin is not None
        launcher.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(launcher.wait(), 20.0)
        if launcher.returncode is None:
            launcher.kill()
            await launcher.wait()


def _full(choice: Choice) -> dict[str, Any]:
    needs = choice.needs
    return {"cpu": needs.cpu, "gpu": needs.gpu, "memory": needs.memory, "custom": needs.custom}
