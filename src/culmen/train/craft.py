"""Performs `train.*` effects: the only door between a search and the policy it trains.

    train.open    {policy, seed, rank, most}        -> {version, adapter, exact, parameters}
    train.sample  {step, slots, version}            -> {sample, text}
    train.update  {version, batch, rules}           -> {version, and diagnostics}

Each is repeatable. What a version samples depends on the request alone; an update that was made before its result could
be journaled is found by its digest and not made again. The checkpoint of version n lies in RUN/policy/NNNNN, whole or
not at all.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec

from culmen.core.errors import UserError
from culmen.core.event import Custom, CustomRequest
from culmen.core.task import fingerprint
from culmen.core.usage import Usage
from culmen.train.engine import Datum, PolicyEngine, Rules, Sample

KEPT = 3  # checkpoints kept beside the first one
_DONE = "done.json"


class Persona(Protocol):
    """How a decision's steps are put to a policy and its replies understood.

    `grammar` gives the most tokens of a reply, and the words it may be made of (none: any text).
    """

    def prompt(self, step: str, slots: dict[str, Any]) -> str: ...

    def grammar(self, step: str, slots: dict[str, Any]) -> tuple[int, tuple[str, ...]]: ...

    def reply(self, step: str, text: str, slots: dict[str, Any], seed: int) -> str: ...


class TrainCraft:
    """`core.ports.Craft` of the family `train`. `make(policy, payload)` builds the engine and its persona when first
    needed. All work is done on one thread, in the order asked."""

    def __init__(self, folder: Path, make: Callable[[dict[str, Any]], tuple[PolicyEngine, Persona]]) -> None:
        self._folder, self._make = folder, make
        self._thread = ThreadPoolExecutor(1, "policy")
        self._made: tuple[PolicyEngine, Persona] | None = None

    async def perform(self, request: CustomRequest) -> Custom:
        """One effect; raises `UserError` for a model that cannot be loaded."""
        doing = {"train.open": self._open, "train.sample": self._sample, "train.update": self._update}.get(request.kind)
        if doing is None:
            raise UserError(f"nothing here performs the effect '{request.kind}'", where="the strategy's search()")
        return await asyncio.get_running_loop().run_in_executor(self._thread, doing, request)

    async def close(self) -> None:
        """Wait for what runs."""
        await asyncio.to_thread(self._thread.shutdown)

    def _open(self, request: CustomRequest) -> Custom:
        self._folder.mkdir(parents=True, exist_ok=True)
        _write(self._folder / "policy.json", request.payload)
        engine, _ = self._policy()
        return Custom({"version": engine.version, **msgspec.to_builtins(engine.capabilities)})

    def _sample(self, request: CustomRequest) -> Custom:
        payload = request.payload
        engine, persona = self._at(int(payload["version"]))
        step, slots = payload["step"], payload["slots"]
        prompt, (most, words) = engine.encode(persona.prompt(step, slots)), persona.grammar(step, slots)
        sample = engine.sample(prompt, request.seed, most, engine.encode(" ".join(words))[1:] if words else ())
        text = persona.reply(step, sample.text, slots, request.seed)
        usage = Usage(calls=1, input_tokens=len(prompt), output_tokens=len(sample.response))
        return Custom({"sample": msgspec.to_builtins(sample), "text": text}, usage)

    def _update(self, request: CustomRequest) -> Custom:
        payload = request.payload
        version, digest = int(payload["version"]), fingerprint(json.dumps(payload, sort_keys=True))
        done = self._checkpoint(version + 1) / _DONE
        if done.is_file():
            kept = json.loads(done.read_text())
            if kept["digest"] == digest:
                return Custom(kept["result"])
        engine, _ = self._at(version)
        began, rules = time.monotonic(), msgspec.convert(payload["rules"], Rules)
        data = [Datum(msgspec.convert(one["sample"], Sample), one["advantage"]) for one in payload["batch"]]
        told = engine.forward_backward(data, rules)
        told |= engine.optim_step(rules)
        result = {**told, "version": engine.publish(), "seconds": time.monotonic() - began}
        self._keep(engine, {"digest": digest, "result": result})
        return Custom(result)

    def _at(self, version: int) -> tuple[PolicyEngine, Persona]:
        """The policy at a version: the one in memory, else its checkpoint."""
        engine, persona = self._policy()
        if engine.version != version:
            folder = self._checkpoint(version)
            if not (folder / _DONE).is_file():
                raise UserError(
                    f"the policy's version {version} is not kept any more",
                    where=str(folder),
                    fix="restore the folder, or start anew with culmen fork RUN",
                )
            engine.load(folder)
        return engine, persona

    def _policy(self) -> tuple[PolicyEngine, Persona]:
        if self._made is None:
            self._made = self._make(json.loads((self._folder / "policy.json").read_text()))
            if not (self._checkpoint(0) / _DONE).is_file():
                self._keep(self._made[0], {"digest": "", "result": {}})
        return self._made

    def _keep(self, engine: PolicyEngine, done: dict[str, Any]) -> None:
        """Write a checkpoint beside its place and move it there; drop those that nothing can ask for any more."""
        final = self._checkpoint(engine.version)
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        engine.save(partial)
        _write(partial / _DONE, done)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for version in range(max(1, engine.version - 2 * KEPT), engine.version - KEPT + 1):
            shutil.rmtree(self._checkpoint(version), ignore_errors=True)

    def _checkpoint(self, version: int) -> Path:
        return self._folder / f"{version:05d}"


def _write(path: Path, data: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data))
    partial.rename(path)
