"""Samples of one request: from the disk cache, else in as few requests as possible; cut replies are retried."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from culmen.core.usage import Usage, total
from culmen.llm.call import Call, Completion
from culmen.llm.caller import CallOutcome, Providers, worst
from culmen.llm.spec import ModelSpec


class ReplyCache:
    """A folder of replies, one small file a sample, keyed by model, request, seed and the sample's number.

    Only whole replies are kept. A file that cannot be read is a miss; several processes may share the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def get(self, model: str, call: Call, sample: int) -> Completion | None:
        """The sample's reply, None if it is not there."""
        try:
            return msgspec.json.decode(self._path(model, call, sample).read_bytes(), type=Completion)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, model: str, call: Call, sample: int, choice: Completion) -> None:
        """Keep a reply; a full disk only means that it is not kept."""
        path = self._path(model, call, sample)
        draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(choice))
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _path(self, model: str, call: Call, sample: int) -> Path:
        name = hashlib.sha256(f"{model}\0{call.digest()}\0{call.seed}\0{sample}".encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"


class Answers(msgspec.Struct, frozen=True):
    """All samples of one request, what they cost, and the failed attempts by kind with their raw texts."""

    choices: tuple[Completion, ...] = ()
    usage: Usage = Usage()
    faults: dict[str, int] = {}
    raws: tuple[str, ...] = ()


class _Grants:
    """What one request may spend beyond its estimate; reserved until the request ends."""

    def __init__(self, sampler: ReplySampler) -> None:
        self._sampler, self.held = sampler, Usage()

    def __call__(self, usage: Usage) -> bool:
        granted = self._sampler.permit(self._sampler.extra + usage)
        if granted:
            self.held, self._sampler.extra = self.held + usage, self._sampler.extra + usage
        return granted

    def release(self) -> None:
        minus = Usage(*(-getattr(self.held, name) for name in Usage.__struct_fields__))
        self._sampler.extra = self._sampler.extra + minus


class ReplySampler:
    """Gets samples. `permit` is asked before anything beyond the first attempt is spent, `extra` is what it granted to
    requests in flight."""

    def __init__(self, providers: Providers, cache: ReplyCache | None, permit: Callable[[Usage], bool]) -> None:
        self._providers, self._cache, self.permit = providers, cache, permit
        self.extra = Usage()

    async def ask(self, model: ModelSpec, call: Call, broken: Callable[[Completion], bool]) -> Answers:
        """All samples, cached ones first; a cut reply is requested once more with twice the tokens."""
        cached = [self._cache.get(model.key, call, i) if self._cache else None for i in range(call.samples)]
        hits = [choice for choice in cached if choice is not None]
        if len(hits) == call.samples:
            return Answers(tuple(hits), Usage(cache_hits=len(hits)))
        missing = msgspec.structs.replace(call, samples=call.samples - len(hits))
        grants = _Grants(self)
        try:
            fresh = await self._fresh(model, missing, grants)
            cut = [choice for choice in fresh.choices if broken(choice)]
            if cut:
                fresh = await self._longer(model, missing, fresh, cut, grants)
        finally:
            grants.release()
        self._keep(model, call, cached, fresh.choices)
        usage = fresh.usage + Usage(cache_hits=len(hits))
        return msgspec.structs.replace(fresh, choices=(*hits, *fresh.choices), usage=usage)

    async def close(self) -> None:
        """Close all connections."""
        await self._providers.close()

    async def _longer(
        self, model: ModelSpec, call: Call, first: Answers, cut: list[Completion], grants: _Grants
    ) -> Answers:
        longer = msgspec.structs.replace(call, samples=len(cut), max_tokens=2 * call.max_tokens)
        need = total(worst(part, model.price_list) for part in parts(longer, model.samples))
        if not grants(need):
            return first
        second = await self._fresh(model, longer, grants)
        kept = [choice for choice in first.choices if choice not in cut]
        choices = (*kept, *second.choices) if second.choices else first.choices
        faults = Counter(first.faults) + Counter(second.faults)
        if second.choices:
            faults["truncated"] += len(cut)
        return Answers(tuple(choices), first.usage + second.usage, dict(faults), (*first.raws, *second.raws))

    async def _fresh(self, model: ModelSpec, call: Call, grants: _Grants) -> Answers:
        """The samples, in as many requests side by side as the server's `n` makes necessary.

        Servers that send fewer choices than asked for are asked again, one sample a request.
        """
        answers = _merged(await self._side_by_side(model, parts(call, model.samples), grants))
        short = call.samples - len(answers.choices)
        if short > 0 and model.samples > 1 and answers.choices and not answers.faults:
            rest = parts(msgspec.structs.replace(call, samples=short), 1)
            if not grants(total(worst(part, model.price_list) for part in rest)):
                return answers
            more = _merged(await self._side_by_side(model, rest, grants))
            answers = _merged([answers, more])
        return msgspec.structs.replace(answers, choices=answers.choices[: call.samples])

    async def _side_by_side(self, model: ModelSpec, calls: list[Call], grants: _Grants) -> list[CallOutcome]:
        caller = self._providers.caller(model)
        jobs = [asyncio.ensure_future(caller.call(call, model.price_list, grants)) for call in calls]
        try:
            return list(await asyncio.gather(*jobs))
        finally:
            for job in jobs:
                job.cancel()

    def _keep(
        self, model: ModelSpec, call: Call, cached: list[Completion | None], fresh: tuple[Completion, ...]
    ) -> None:
        if self._cache is None:
            return
        free = (i for i, choice in enumerate(cached) if choice is None)
        for sample, choice in zip(free, fresh, strict=False):
            if choice.finish == "stop" and choice.text.strip():
                self._cache.put(model.key, call, sample, choice)


def parts(call: Call, most: int) -> list[Call]:
    """The call in requests of at most `most` samples, each with a seed of its own."""
    sizes = [min(most, call.samples - start) for start in range(0, call.samples, most)]
    return [msgspec.structs.replace(call, samples=n, seed=call.seed + i) for i, n in enumerate(sizes)]


def _merged(outcomes: Sequence[CallOutcome | Answers]) -> Answers:
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    return Answers(
        tuple(choice for outcome in outcomes for choice in outcome.choices),
        total(outcome.usage for outcome in outcomes),
        dict(faults),
        tuple(raw for outcome in outcomes for raw in outcome.raws),
    )
