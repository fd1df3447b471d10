"""Forecast of a run's cost before its start.

The search itself is rehearsed, with its strategy, prompts and final choice, but with made-up scores
and replies: how often it asks for candidates, and how long its prompts grow, are then its own. What
an evaluation asks of models is what `culmen check` has measured, else what the task declares, else
one call for each role. No candidate is run, no model asked.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import Brief, Proposal, Text, resolve_format
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import (
    EditRequest,
    Edits,
    Effect,
    EmbedRequest,
    Entry,
    EvaluateRequest,
    ProposeRequest,
    Request,
    Result,
    Vectors,
    WriteRequest,
)
from culmen.core.task import Asks, Task, digest_pieces
from culmen.core.usage import Budget, Usage, total_usage
from culmen.engine.driver import effect_facts
from culmen.engine.ledger import final_share
from culmen.report.forecast import Cost, RunForecast, cost_of, within_budget
from culmen.run.assemble import rebuild_search
from culmen.run.options import RunObjects
from culmen.run.plan import run_meta
from culmen.store.address import cache_dir

if TYPE_CHECKING:
    from culmen.engine.search import Estimate, Search
    from culmen.models.spec import ModelSpec, Roles
    from culmen.run.plan import RunPlan
    from culmen.store.database import RunMeta

REHEARSED = 120
"""Evaluations of a rehearsal, at most."""
MOST = 4
"""Rehearsals of a short run, whose course is left more to chance."""
PATIENCE = 2.0
"""Seconds after which a rehearsal is cut off."""
UNLIMITED = 1_000_000
"""Evaluations of a run that only calls, tokens, dollars or seconds end."""
WORDS = 150
"""Tokens of a reply beside the program: reasons, fences; also those of prose."""
EDITED = 0.15
"""Part of a long program that a diff writes again."""
SHOWN = 0.75
"""Likely tokens of a prompt, beside the bound of a token for three bytes."""
STEP, NOISE = 0.1, 0.05
"""Standard deviations: of a made-up change of the score; of noise, and of scores between cases."""
CHANGING, FAILING = 0.8, 0.7
"""Shares of made-up candidates that score other than their parent, and that fail.

With these, a search with scripted models asked for 0.5 to 1.7 times the forecast on built-in tasks.
"""
_WIDTH = 8  # of made-up embeddings


def forecast_run(meta: RunMeta, objects: RunObjects | None = None) -> RunForecast | None:
    """The likely cost of a run before its start; None if it asks no model or nothing is known.

    `objects` are those of the run; only its models are used.
    """
    from culmen.models.roles import read_roles

    objects = objects or RunObjects()
    if meta.bank or (objects.model is None and meta.has_own_model):
        return None
    roles = read_roles(objects.model_of(meta), meta.models_file)
    if roles is None or all(each.is_person for each in roles.all_models()):
        return None
    proposals, lacks = _likely_proposals(meta, objects, roles)
    answers, unknown = likely_answers(meta.task, roles)
    if proposals is None:
        return None
    most = meta.budget.evaluations or UNLIMITED
    found = RunForecast(
        most,
        proposals.times(most),
        answers.times(most),
        lacks=(*lacks, *unknown),
    )
    found = within_budget(found, meta.budget)
    return found if found.total.calls else None


def forecast_plan(plan: RunPlan) -> RunForecast | None:
    """The likely cost of a planned run."""
    return forecast_run(run_meta(plan, plan.task.name), plan.objects)


# Proposals: the rehearsal.


def _likely_proposals(
    meta: RunMeta, objects: RunObjects, roles: Roles
) -> tuple[Cost | None, tuple[str, ...]]:
    """Cost of proposals per evaluation, and gaps of it; None without any knowledge."""
    if meta.searches_offline:
        return Cost(), ()
    if not _can_be_rehearsed(meta, objects):
        return None, ()
    return rehearse(meta, objects.model, roles), ()


def _can_be_rehearsed(meta: RunMeta, objects: RunObjects) -> bool:
    """True for a strategy of the catalog without agents, and without an own proposer.

    Code of others is run by a run alone.
    """
    from culmen.core.ports import Strategy, with_protocol_defaults
    from culmen.strategies import catalog

    path, config = str(meta.strategy.get("path", "")), meta.strategy.get("config")
    if config is None or path not in catalog.names_by_path():
        return False
    if objects.proposer is not None or objects.world is not None:
        return False
    strategy = with_protocol_defaults(Strategy, catalog.revive_object(path, config))
    return not strategy.writes and not strategy.crew


def rehearse(meta: RunMeta, model: object, roles: Roles) -> Cost | None:
    """Cost of proposals per evaluation in searches with made-up results; None if they ask more.

    A rehearsal is shorter than a long run: its final choice is weighed as that of the whole.
    """
    whole = meta.budget.evaluations or UNLIMITED
    budget = Budget(evaluations=min(whole, REHEARSED), final=meta.budget.final)
    short = msgspec.structs.replace(meta, budget=budget, stop_at=None)
    spent, evaluations = Usage(), 0
    for number in range(min(MOST, 1 + REHEARSED // whole)):
        search, estimate = rebuild_search(short, RunObjects(model=model))
        stage = _Stage(meta.task, roles, estimate, number)
        try:
            known = _play(search, stage)
        finally:
            search.close()
        if not known:
            return None
        spent += stage.usage
        evaluations += max(0, stage.evaluations - final_share(budget, meta.task))
    whole_budget = msgspec.structs.replace(meta.budget, evaluations=whole)
    searched = 1 - final_share(whole_budget, meta.task) / whole
    return cost_of(spent).times(searched / max(1, evaluations))


def _play(search: Search, stage: _Stage) -> bool:
    """Feed made-up results until the search is done; False at an unknown effect.

    `PATIENCE` ends a slow one: what it has asked so far is taken.
    """
    waiting = deque[Effect](search.start())
    began, count = time.monotonic(), 0
    while waiting and not search.is_done and time.monotonic() - began < PATIENCE:
        effect = waiting.popleft()
        if effect.key not in search.in_flight:
            continue
        result = stage.perform(effect.request)
        if result is None:
            return False
        count += 1
        facts = effect_facts(effect, search.purpose)
        entry = Entry("done", effect.key, effect.mark, effect.kind, facts, result, count * 1e-3)
        waiting.extend(search.feed(entry))
        search.outbox.clear()
    return True


class _Stage:
    """Made-up results, and the likely cost of the requests for them."""

    def __init__(self, task: Task, roles: Roles, estimate: Estimate, seed: int) -> None:
        self._task, self._roles, self._estimate = task, roles, estimate
        self._rng, self._levels, self._failing = Random(seed), dict[str, float](), set[str]()
        self.usage, self.evaluations = Usage(), 0

    def perform(self, request: Request) -> Result | None:
        """A result; None for a request that cannot be made up."""
        if isinstance(request, EvaluateRequest):
            self.evaluations += 1
            return self._observe(request)
        if isinstance(request, ProposeRequest):
            brief = request.brief
            usage = self._price(request, brief.role, reply_tokens(self._task, brief))
            return Proposal(self._children(brief), model="rehearsal", usage=usage)
        if isinstance(request, WriteRequest):
            usage = self._price(request, request.role, WORDS)
            return Text("Smaller changes did better.", model="rehearsal", usage=usage)
        if isinstance(request, EmbedRequest):
            return _embed(request.candidates)
        return Edits(fault="rehearsal") if isinstance(request, EditRequest) else None

    def _price(self, request: ProposeRequest | WriteRequest, role: str, reply: int) -> Usage:
        bound, model = self._estimate(request), self._roles.pick_model(role, request.seed)
        many = request.brief.k if isinstance(request, ProposeRequest) else 1
        usage = priced(model, bound.input_tokens * SHOWN, reply * many)
        self.usage += msgspec.structs.replace(usage, calls=bound.calls, unpriced=usage.unpriced)
        return usage

    def _observe(self, request: EvaluateRequest) -> Observation:
        """A score: noisy unless the task is evaluated once, and other on other cases."""
        level = self._levels.setdefault(request.candidate.id, 0.5)
        case = "" if request.case is None else request.case.id
        if case:
            level += Random(case).gauss(0.0, NOISE)
        if not self._task.is_evaluated_once:
            level += self._rng.gauss(0.0, NOISE)
        if request.candidate.id in self._failing:
            return Observation(request.candidate.id, Status.ERROR, case=case, seed=request.seed)
        return Observation(
            request.candidate.id, Status.OK, level, case, seed=request.seed, trust="verified"
        )

    def _children(self, brief: Brief) -> tuple[Candidate, ...]:
        parts = {"program": ""} if brief.parent is None else brief.parent.parts
        parents = () if brief.parent is None else (brief.parent.id,)
        frozen = self._task.surface.frozen
        made: list[Candidate] = []
        for rank in range(brief.k):
            mark = f"\n{self._rng.getrandbits(40)}"
            texts = {
                n: text if n in frozen else _replaced_end(text, mark) for n, text in parts.items()
            }
            made.append(Candidate.of(texts, parents, Origin("rehearsal", rank=rank)))
            if self._rng.random() < FAILING:
                self._failing.add(made[-1].id)
            level = self._levels.get(parents[0], 0.5) if parents else 0.5
            step = self._rng.gauss(0.0, STEP) if self._rng.random() < CHANGING else 0.0
            self._levels[made[-1].id] = min(1.0, max(0.0, level + step))
        return tuple(made)


def _replaced_end(text: str, mark: str) -> str:
    """The text with its end replaced, so that it stays as long as it was."""
    return f"{text[: -len(mark)]}{mark}" if len(text) > 2 * len(mark) else f"{text}{mark}"


def _embed(candidates: Iterable[Candidate]) -> Vectors:
    draws = [Random(each.id) for each in candidates]
    flat = [draw.gauss(0.0, 1.0) for draw in draws for _ in range(_WIDTH)]
    return Vectors(len(draws), _WIDTH, struct.pack(f"<{len(flat)}f", *flat), "rehearsal")


def reply_tokens(task: Task, brief: Brief) -> int:
    """Likely tokens of a reply with one candidate."""
    frozen = task.surface.frozen
    parts = {} if brief.parent is None else brief.parent.parts
    program = sum(len(text) for name, text in parts.items() if name not in frozen) // 4
    is_diff = resolve_format(brief.format, brief.parent, frozen).endswith("diff")
    return WORDS + round(program * (EDITED if is_diff else 1.0))


def priced(model: ModelSpec | None, read: float, written: float) -> Usage:
    """One call of a model with these tokens."""
    from culmen.models.call import Tokens

    tokens = Tokens(round(read), round(written))
    if model is None:
        return Usage(calls=1, input_tokens=tokens.input, output_tokens=tokens.output, unpriced=1)
    return model.price_list.usage_for(tokens)


# Answers: what an evaluation asks of models.


def likely_answers(task: Task, roles: Roles) -> tuple[Cost, tuple[str, ...]]:
    """Cost of the answers of one evaluation, and its unknown parts."""
    wanted = tuple(task.evaluator.options.get("roles", ()))
    known = recall_check(task)
    measured = {} if known is None else known.asks
    total, lacks = Cost(), list[str]()
    for role in wanted:
        model = roles.pick_model(role, 0)
        asks = measured.get(role) or task.asks.get(role) or Asks()
        each = cost_of(priced(model, asks.input, asks.output))
        total += msgspec.structs.replace(each, calls=asks.calls)
        if not asks.input:
            lacks.append(role)
    if not lacks:
        return total, ()
    asked = ", ".join(lacks)
    return total, (f"what an evaluation asks as {asked} is unknown before the first ones",)


class CheckMeasurement(msgspec.Struct, frozen=True):
    """Measurements of a check for forecasts.

    asks      use of models by one evaluation, by role
    seconds   of an evaluation, on average
    """

    asks: dict[str, Asks] = {}
    seconds: float = 0.0


def recall_check(task: Task) -> CheckMeasurement | None:
    """Measurements of a check of this task; None without one."""
    try:
        return msgspec.json.decode(_check_file(task).read_bytes(), type=CheckMeasurement)
    except (OSError, msgspec.DecodeError):
        return None


def remember_check(task: Task, observations: Iterable[Observation]) -> None:
    """Keep what these evaluations of the initial programs show, for forecasts.

    Evaluations with a reply from the cache are left out.
    """
    rows = [o for o in observations if not any(asked.usage.cache_hits for asked in o.asked)]
    if not rows:
        return
    asks: dict[str, Asks] = {}
    for role in sorted({asked.role for row in rows for asked in row.asked}):
        used = total_usage(a.usage for row in rows for a in row.asked if a.role == role)
        asks[role] = Asks(
            used.calls / len(rows), used.input_tokens / len(rows), used.output_tokens / len(rows)
        )
    measured = CheckMeasurement(asks, fmean(o.seconds for o in rows))
    file = _check_file(task)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(measured))
    except OSError:
        return  # a forecast without it is only less sure


def _check_file(task: Task) -> Path:
    seeds = msgspec.json.encode(task.seeds, order="sorted")
    return cache_dir() / "checks" / f"{digest_pieces(task.digest, seeds)[:32]}.json"
