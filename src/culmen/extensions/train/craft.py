"""The craft of `train.*` effects: the only link between a search and the policy it trains.

    train.open    {policy, seed, rank, most, engine} -> {version, and unusual capabilities}
    train.sample  {step, slots, version}             -> {sample, text}
    train.update  {version, batch, rules, plan}      -> {version, and diagnostics}

Each is idempotent. Concurrent requests for replies are drawn in one batch, returned together, and
noted for observers (`culmen.store.sidecar`). A version's sample depends on the request alone. An
update that was made before its result could be journaled is found by its digest and not made again.

The checkpoint of version n lies in RUN/policy/NNNNN, whole or not at all: the engine's state, and
in `done.json` the update that led to it, its place in the run (step, alpha), and the fingerprint of
the settings under which it was made.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Protocol

import msgspec

from culmen.core.errors import UserError
from culmen.core.event import Custom, CustomRequest
from culmen.core.json import JsonObject
from culmen.core.task import digest_pieces
from culmen.core.usage import Usage
from culmen.extensions.train.engine import Datum, PolicyEngine, PolicySample, ReplyRequest, Rules
from culmen.store.sidecar import SAMPLING

KEPT = 3  # checkpoints kept beside the first one
DONE, SETTINGS = "done.json", "policy.json"


class Persona(Protocol):
    """Converter of a decision's steps into prompts, and of the policy's replies into answers.

    `reply_limits` returns the maximum tokens of a reply, and the words it may use (none: any text).
    """

    def step_prompt(self, step: str, slots: JsonObject) -> str: ...

    def reply_limits(self, step: str, slots: JsonObject) -> tuple[int, tuple[str, ...]]: ...

    def step_answer(self, step: str, text: str, slots: JsonObject, seed: int) -> str: ...


class TrainCraft:
    """`core.ports.Craft` of the family `train`.

    `make(payload)` builds the engine and its persona when first needed. All work is done on
    one thread, in the order of the requests.
    """

    def __init__(
        self, folder: Path, make: Callable[[JsonObject], tuple[PolicyEngine, Persona]]
    ) -> None:
        self._folder, self._make = folder, make
        self._thread = ThreadPoolExecutor(1, "policy")
        self._policy: tuple[PolicyEngine, Persona] | None = None
        self._loaded = False  # True if the engine holds a state of this run
        self._free = asyncio.Lock()  # held while replies are drawn
        self._gathered: tuple[list[CustomRequest], asyncio.Task[list[Custom]]] | None = None

    async def perform(self, request: CustomRequest) -> Custom:
        """Perform one effect. Raises `UserError` for a model that cannot be loaded."""
        if request.kind == "train.sample":
            return await self._perform_sample(request)
        doing = {"train.open": self._perform_open, "train.update": self._perform_update}.get(
            request.kind
        )
        if doing is None:
            raise UserError(
                f"there is no training effect '{request.kind}'",
                where="the strategy's search()",
            )
        return await asyncio.get_running_loop().run_in_executor(self._thread, doing, request)

    async def close(self) -> None:
        """Wait for running work."""
        await asyncio.to_thread(self._thread.shutdown)

    def _perform_open(self, request: CustomRequest) -> Custom:
        self._folder.mkdir(parents=True, exist_ok=True)
        _write_json(self._folder / SETTINGS, request.payload)
        engine, _ = self._policy_at(0)
        return Custom({"version": engine.version, **msgspec.to_builtins(engine.capabilities)})

    async def _perform_sample(self, request: CustomRequest) -> Custom:
        """One reply of a batch: concurrent requests are drawn and returned together."""
        if self._gathered is None:
            self._gathered = ([], asyncio.create_task(self._draw_gathered()))
        requests, drawing = self._gathered
        requests.append(request)
        position = len(requests) - 1
        return (await asyncio.shield(drawing))[position]

    async def _draw_gathered(self) -> list[Custom]:
        async with self._free:  # requests made during a batch wait for the next one
            gathered, self._gathered = self._gathered, None
            assert gathered is not None
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, self._draw_batch, gathered[0]
            )

    def _draw_batch(self, requests: Sequence[CustomRequest]) -> list[Custom]:
        versions = [int(request.payload["version"]) for request in requests]
        replies = dict[int, Custom]()
        for version in dict.fromkeys(versions):
            engine, persona = self._policy_at(version)
            positions = [n for n, its in enumerate(versions) if its == version]
            reply_requests = [_reply_request(engine, persona, requests[n]) for n in positions]
            with SamplingNote(self._folder, len(positions)) as note:
                samples = engine.sample_many(reply_requests, note.record_progress)
            replies |= {
                n: _sample_result(engine, persona, requests[n], sample)
                for n, sample in zip(positions, samples, strict=True)
            }
        return [replies[n] for n in range(len(requests))]

    def _perform_update(self, request: CustomRequest) -> Custom:
        payload = request.payload
        version, digest = (
            int(payload["version"]),
            digest_pieces(json.dumps(payload, sort_keys=True)),
        )
        done = self._checkpoint_folder(version + 1) / DONE
        if done.is_file():
            kept = json.loads(done.read_text())
            if kept["digest"] == digest:
                return Custom(kept["result"])
        engine, _ = self._policy_at(version)
        self._loaded = False  # if this is interrupted, the next attempt begins from the checkpoint
        began, rules = time.monotonic(), msgspec.convert(payload["rules"], Rules)
        data = [
            Datum(msgspec.convert(entry["sample"], PolicySample), entry["advantage"])
            for entry in payload["batch"]
        ]
        diagnostics, version = run_update_steps(engine, data, rules), engine.publish()
        seconds = time.monotonic() - began
        result = {
            **diagnostics,
            "version": version,
            "seconds": seconds,
            "tokens_per_second": diagnostics.get("tokens", 0.0) / max(seconds, 1e-9),
        }
        self._write_checkpoint(
            engine, {"digest": digest, "result": result, "plan": payload.get("plan", {})}
        )
        self._loaded = True
        return Custom(result)

    def _policy_at(self, version: int) -> tuple[PolicyEngine, Persona]:
        """The policy at a version, in memory or from its checkpoint.

        A new run begins with version 0. Raises `UserError` for a version that is no longer kept.
        """
        self._policy = self._policy or self._make(json.loads((self._folder / SETTINGS).read_text()))
        engine, folder = self._policy[0], self._checkpoint_folder(version)
        if self._loaded and engine.version == version:
            return self._policy
        if (folder / DONE).is_file():
            restore_checkpoint(engine, folder, self._settings_fingerprint())
        elif version == engine.version == 0:
            self._write_checkpoint(engine, {"digest": "", "result": {}, "plan": {}})
        else:
            raise UserError(
                f"the policy's version {version} is no longer kept",
                where=str(folder),
                fix="restore the folder, or start anew with culmen runs fork RUN",
            )
        self._loaded = True
        return self._policy

    def _write_checkpoint(self, engine: PolicyEngine, done: JsonObject) -> None:
        """Write a checkpoint beside its place, move it there, and drop those no longer needed."""
        final = self._checkpoint_folder(engine.version)
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        engine.save(partial)
        _write_json(partial / DONE, {**done, "settings": self._settings_fingerprint()})
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        for version in range(max(1, engine.version - 2 * KEPT), engine.version - KEPT + 1):
            if (old := self._checkpoint_folder(version)).is_dir():
                engine.discard(old)

    def _settings_fingerprint(self) -> str:
        return digest_pieces((self._folder / SETTINGS).read_text())

    def _checkpoint_folder(self, version: int) -> Path:
        return self._folder / f"{version:05d}"


def run_update_steps(engine: PolicyEngine, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
    """Make an update: `rules.epochs` passes over a barrier's samples; return the diagnostics.

    Each pass takes `rules.minibatches` steps, each on every n-th sample. Diagnostics are means over
    the steps; maxima stay maxima, `tokens` is a sum, and kl is that of the last step.
    """
    parts = [part for n in range(rules.minibatches) if (part := data[n :: rules.minibatches])]
    if rules.epochs * len(parts) > 1:
        engine.hold_logprobs([datum.sample for datum in data])
    diagnostics = [
        engine.forward_backward(part, rules) | engine.optim_step(rules)
        for part in parts * rules.epochs
    ]
    aggregates = {
        "tokens": sum,
        "gap_max": max,
        "ratio_max": max,
        "grad_norm": max,
        "kl": lambda values: values[-1],
    }
    return {
        name: aggregates.get(name, fmean)([step[name] for step in diagnostics if name in step])
        for name in diagnostics[0]
    }


def _reply_request(engine: PolicyEngine, persona: Persona, request: CustomRequest) -> ReplyRequest:
    step, slots = request.payload["step"], request.payload["slots"]
    text, (max_tokens, words) = persona.step_prompt(step, slots), persona.reply_limits(step, slots)
    limited = words if engine.capabilities.grammar else ()
    return ReplyRequest(
        fitted_prompt(engine, text, max_tokens),
        request.seed,
        max_tokens,
        engine.encode(" ".join(limited))[1:] if limited else (),
    )


_LEAST = 64  # tokens of the shortest useful prompt


def fitted_prompt(engine: PolicyEngine, text: str, max_tokens: int) -> tuple[int, ...]:
    """The prompt's tokens, shortened if they leave no room for a reply of `max_tokens` tokens.

    A prompt that is too long for the model's context loses its middle, and a line in it states so:
    the role stands at the beginning, the request at the end. Raises `UserError` if no prompt has
    room.
    """
    tokens, context = engine.encode(text), engine.capabilities.context
    if context is None or len(tokens) + max_tokens <= context:
        return tokens
    room = context - max_tokens
    if room < _LEAST:
        what = (
            f"replies of {max_tokens} tokens leave no room for a prompt: the policy's context is "
            f"{context} tokens"
        )
        raise UserError(
            what, where="policy", fix=f"--set most={max(1, context // 2)}, or another policy"
        )
    kept = len(text)
    while len(tokens) > room:
        kept = int(kept * min(0.95, room / len(tokens)))
        head = kept // 3
        left = f"\n[{len(text) - kept:,} characters are left out here]\n"
        tokens = engine.encode(f"{text[:head]}{left}{text[len(text) - (kept - head) :]}")
    return tokens


def _sample_result(
    engine: PolicyEngine, persona: Persona, request: CustomRequest, sample: PolicySample
) -> Custom:
    step, slots = request.payload["step"], request.payload["slots"]
    text = persona.step_answer(step, sample.text, slots, request.seed)
    usage = Usage(calls=1, input_tokens=len(sample.prompt), output_tokens=len(sample.response))
    known = engine.capabilities.context is not None
    cut = (
        {"cut": True}
        if known and sample.prompt != engine.encode(persona.step_prompt(step, slots))
        else {}
    )
    return Custom({"sample": msgspec.to_builtins(sample), "text": text, **cut}, usage)


def _write_json(path: Path, data: JsonObject) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data))
    partial.rename(path)


def restore_checkpoint(engine: PolicyEngine, folder: Path, mark: str) -> None:
    """Load a checkpoint. Raises `UserError` if it was made under other settings."""
    if json.loads((folder / DONE).read_text()).get("settings", mark) != mark:
        raise UserError(
            "this policy was trained with other settings",
            where=str(folder),
            fix="culmen runs fork RUN",
        )
    engine.load(folder)


class SamplingNote:
    """Progress of replies, written to a file while they are drawn.

    `with SamplingNote(run / "policy", 40) as note: ... note.tell(14, 3120)`.
    """

    def __init__(self, policy: Path, of: int) -> None:
        self._path, self._of = policy / SAMPLING.name, of
        self._began, self._written = time.monotonic(), 0.0

    def __enter__(self) -> SamplingNote:
        self.record_progress(0, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def record_progress(self, done: int, tokens: int) -> None:
        """Record `done` finished replies and `tokens` in total, unfinished replies included."""
        now = time.monotonic()
        if now - self._written < 0.5 and self._written:  # seconds between two writings
            return
        self._written = now
        partial = self._path.with_suffix(".partial")
        partial.write_text(
            json.dumps([done, self._of, tokens, tokens / max(now - self._began, 1e-9)])
        )
        partial.replace(self._path)
