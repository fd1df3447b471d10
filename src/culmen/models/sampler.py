"""Samples of one request: from the disk cache, else in as few requests as possible.

Truncated replies are requested once more.
"""

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

from culmen.core.brief import NOTED
from culmen.core.usage import Usage, total_usage
from culmen.models.call import Call, Completion
from culmen.models.caller import CallOutcome, Providers, RequestSpending
from culmen.models.spec import ModelSpec


class ReplyCache:
    """A folder of replies, one small file a sample.

    Keyed by model, request, seed and the sample's number. Only whole replies are kept. An
    unreadable file is a miss; several processes may share the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def get(self, model: str, call: Call, sample: int) -> Completion | None:
        """The sample's reply, None if it is missing."""
        try:
            return msgspec.json.decode(
                self._reply_path(model, call, sample).read_bytes(), type=Completion
            )
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, model: str, call: Call, sample: int, choice: Completion) -> None:
        """Keep a reply; on a full disk it is dropped."""
        path = self._reply_path(model, call, sample)
        draft, raw = (
            path.with_suffix(f".{os.getpid()}-{threading.get_ident()}"),
            msgspec.json.encode(choice),
        )
        try:
            try:
                draft.write_bytes(raw)
            except FileNotFoundError:  # the first of its folder
                path.parent.mkdir(parents=True, exist_ok=True)
                draft.write_bytes(raw)
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _reply_path(self, model: str, call: Call, sample: int) -> Path:
        name = hashlib.sha256(
            f"{model}\0{call.sample_digest()}\0{call.seed}\0{sample}".encode()
        ).hexdigest()
        return self._folder / name[:2] / f"{name}.json"


class Answers(msgspec.Struct, frozen=True):
    """All samples of one request, with their cost and faults.

    Failed attempts are counted by kind, with their raw texts.
    """

    choices: tuple[Completion, ...] = ()
    usage: Usage = Usage()
    faults: dict[str, int] = {}
    raws: tuple[str, ...] = ()


class ReplySampler:
    """Gets samples.

    `permit` is called before a request may cost more than `largest_cost`
    returned, with its largest cost in all.
    """

    def __init__(
        self, providers: Providers, cache: ReplyCache | None, permit: Callable[[Usage], bool]
    ) -> None:
        self._providers, self._cache, self.permit = providers, cache, permit

    def largest_cost(self, model: ModelSpec, call: Call) -> Usage:
        """The largest cost of the first attempts at all samples."""
        caller = self._providers.caller_for(model)
        return total_usage(
            caller.largest_cost(part, model.price_list)
            for part in split_samples(call, model.samples)
        )

    def is_cached(self, model: ModelSpec, call: Call) -> bool:
        """True if the cache has all samples, so that the request is free."""
        cache = self._cache_for(model)
        return cache is not None and all(
            cache.get(model.cache_key, call, i) is not None for i in range(call.samples)
        )

    async def ask_samples(
        self, model: ModelSpec, call: Call, broken: Callable[[Completion], bool]
    ) -> Answers:
        """All samples, cached ones first.

        A truncated reply is requested once more with twice the tokens.
        """
        cache = self._cache_for(model)
        cached = [
            cache.get(model.cache_key, call, i) if cache else None for i in range(call.samples)
        ]
        hits = [choice for choice in cached if choice is not None]
        if len(hits) == call.samples:
            return Answers(tuple(hits), Usage(cache_hits=len(hits)))
        missing = msgspec.structs.replace(call, samples=call.samples - len(hits))
        spending = RequestSpending(self.permit)
        spending.begin_attempts(self.largest_cost(model, missing))
        fresh = await self._request_samples(model, missing, spending)
        cut = [choice for choice in fresh.choices if broken(choice)]
        if cut:
            fresh = await self._retry_longer(model, missing, fresh, cut, spending)
        self._cache_replies(model, call, cached, fresh.choices)
        usage = fresh.usage + Usage(cache_hits=len(hits))
        return msgspec.structs.replace(fresh, choices=(*hits, *fresh.choices), usage=usage)

    async def close(self) -> None:
        """Close all connections."""
        await self._providers.close()

    def _cache_for(self, model: ModelSpec) -> ReplyCache | None:
        return self._cache if model.cacheable else None

    async def _retry_longer(
        self,
        model: ModelSpec,
        call: Call,
        first: Answers,
        cut: list[Completion],
        spending: RequestSpending,
    ) -> Answers:
        longer = msgspec.structs.replace(call, samples=len(cut), max_tokens=2 * call.max_tokens)
        if not spending.permit_retry(self.largest_cost(model, longer)):
            return first
        second = await self._request_samples(model, longer, spending)
        kept = [choice for choice in first.choices if choice not in cut]
        choices = (*kept, *second.choices) if second.choices else first.choices
        faults = Counter(first.faults) + Counter(second.faults)
        if second.choices:
            faults["truncated"] += len(cut)
        return Answers(
            tuple(choices), first.usage + second.usage, dict(faults), (*first.raws, *second.raws)
        )

    async def _request_samples(
        self, model: ModelSpec, call: Call, spending: RequestSpending
    ) -> Answers:
        """The samples, in as few concurrent requests as the server's `n` allows.

        All of them have begun. Servers that send fewer choices than requested are asked again, one
        sample a request.
        """
        answers = _merge_answers(
            await self._side_by_side(model, split_samples(call, model.samples), spending)
        )
        short = call.samples - len(answers.choices)
        if (
            short > 0
            and model.samples > 1
            and answers.choices
            and not set(answers.faults) - set(NOTED)
        ):
            rest, caller = (
                split_samples(msgspec.structs.replace(call, samples=short), 1),
                self._providers.caller_for(model),
            )
            if not spending.permit_retry(
                total_usage(caller.largest_cost(part, model.price_list) for part in rest)
            ):
                return answers
            more = _merge_answers(await self._side_by_side(model, rest, spending))
            answers = _merge_answers([answers, more])
        return msgspec.structs.replace(answers, choices=answers.choices[: call.samples])

    async def _side_by_side(
        self, model: ModelSpec, calls: list[Call], spending: RequestSpending
    ) -> list[CallOutcome]:
        caller = self._providers.caller_for(model)
        if len(calls) == 1:  # the usual case needs no task of its own
            return [await caller.call(calls[0], model.price_list, spending)]
        jobs = [
            asyncio.ensure_future(caller.call(call, model.price_list, spending)) for call in calls
        ]
        try:
            return list(await asyncio.gather(*jobs))
        finally:
            for job in jobs:
                job.cancel()

    def _cache_replies(
        self,
        model: ModelSpec,
        call: Call,
        cached: list[Completion | None],
        fresh: tuple[Completion, ...],
    ) -> None:
        cache = self._cache_for(model)
        if cache is None:
            return
        free = (i for i, choice in enumerate(cached) if choice is None)
        for sample, choice in zip(free, fresh, strict=False):
            if choice.finish == "tools" or (choice.finish == "stop" and choice.text.strip()):
                cache.put(model.cache_key, call, sample, choice)


def split_samples(call: Call, limit: int) -> list[Call]:
    """The call in requests of at most `limit` samples, each with a seed of its own."""
    sizes = [min(limit, call.samples - start) for start in range(0, call.samples, limit)]
    return [
        msgspec.structs.replace(call, samples=n, seed=call.seed + i) for i, n in enumerate(sizes)
    ]


def _merge_answers(outcomes: Sequence[CallOutcome | Answers]) -> Answers:
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    return Answers(
        tuple(choice for outcome in outcomes for choice in outcome.choices),
        total_usage(outcome.usage for outcome in outcomes),
        dict(faults),
        tuple(raw for outcome in outcomes for raw in outcome.raws),
    )
