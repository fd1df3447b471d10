"""Candidates: the table, page by page, and one candidate in full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from culmen.core.evaluation import LEVELS, OUTPUT, Case, Observation
from culmen.core.json import JsonObject
from culmen.core.task import Objective
from culmen.extensions.web.runs import Digest, fields_of
from culmen.store import views
from culmen.store.codec import encode_value
from culmen.store.evidence import MODELLED
from culmen.store.views import CandidateDetail, CandidateQuery, CandidateRow, ListedCandidate


def candidates_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """One page of the table.

    Parameters are those of `views.CandidateQuery`, with `order` = asc | desc.
    """
    query = _parse_query(params)
    page = views.candidate_page(
        run.run, query, _dollars_by_event(run) if query.sort == "dollars" else None
    )
    best = views.best_result(run.run)
    return {
        "rows": candidate_table_rows(run, page.rows),
        **fields_of(page, "total", "all"),
        **fields_of(query, "offset", "limit", "sort"),
        "order": "desc" if query.descending else "asc",
        "sorts": views.SORTS if page.all > MODELLED else views.SORTS + views.LOOKED_UP,
        "facets": run.memoise_result(
            "facets", page.all, lambda: msgspec.to_builtins(views.candidate_facets(run.run))
        ),
        "best": best.id if best else "",
        "several": bool(run.meta.task.objective.metrics),
        "direction": run.meta.task.objective.direction,
    }


def _parse_query(params: Mapping[str, str]) -> CandidateQuery:
    return CandidateQuery(
        sort=params.get("sort") or "best",
        descending=params.get("order") == "desc",
        offset=_parse_whole(params.get("offset"), 0),
        limit=max(1, min(500, _parse_whole(params.get("limit"), 50))),  # rows of one page
        text=params.get("text", ""),
        operator=params.get("operator") or None,
        model=params.get("model") or None,
        island=int(params["island"]) if params.get("island", "").isdigit() else None,
        status=params.get("status", ""),
        trust=params.get("trust", ""),
        below=params.get("below", ""),
    )


def _parse_whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


def candidate_table_rows(run: Digest, lines: Sequence[ListedCandidate]) -> list[JsonObject]:
    """Rows of the table; `dollars` is a candidate's share of the cost of its request."""
    spent = _request_dollars(run, lines)
    return [
        candidate_statistics(listed.row, run.meta.task.objective)
        | fields_of(listed, "island", "note", "seconds", "size")
        | {"dollars": spent.get(listed.row.seq, 0.0) / listed.among}
        for listed in lines
    ]


def _dollars_by_event(run: Digest) -> dict[int, float]:
    """Dollars by event."""
    last = run.refresh().last
    return run.memoise_result(
        "dollars",
        last,
        lambda: {cost.seq: cost.usage.dollars for cost in views.effect_costs(run.run, 0, last)},
    )


def _request_dollars(run: Digest, lines: Sequence[ListedCandidate]) -> dict[int, float]:
    """Dollars by event for the requests that made these candidates.

    For a short page, the costs of a long run are not all read.
    """
    seqs = {each.row.seq for each in lines}
    if len(seqs) > 100:  # rows up to which costs are looked up one by one
        return _dollars_by_event(run)
    return {cost.seq: cost.usage.dollars for cost in views.costs_of_events(run.run, seqs)}


def candidate_statistics(row: CandidateRow, objective: Objective) -> JsonObject:
    """A candidate's statistics.

    `low` to `high` is the 95 % interval of its mean (None: unknown noise), within the bounds of
    honest scores.
    """
    low, high = None, None
    if row.mean is not None and row.margin is not None:
        lowest, highest = objective.bounds
        low = row.mean - row.margin if lowest is None else max(lowest, row.mean - row.margin)
        high = row.mean + row.margin if highest is None else min(highest, row.mean + row.margin)
    more = {"parents": list(row.parents), "low": low, "high": high}
    return fields_of(row, *_STATISTICS) | more | {"status": candidate_status(row)}


_STATISTICS = (
    *("id", "seq", "operator", "model", "count", "mean", "se", "margin", "fresh", "expected"),
    *("search_mean", "search_count", "failed", "trust", "statuses"),
)
"""Fields of a candidate's row that its page and the table show as they are."""


def candidate_status(row: CandidateRow) -> str:
    """scored | mixed | failed | unseen, as in `views.CandidateQuery`."""
    if row.count:
        return "mixed" if row.failed else "scored"
    return "failed" if row.failed else "unseen"


def candidate_detail_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """One candidate by its `id`: the full id, its first digits, `best` or `seed`."""
    name = resolve_candidate(run, params.get("id", "best"))
    detail = views.candidate_detail(run.run, name, observations=200)
    origin = detail.candidate.origin
    best = (views.best_result(run.run) or detail).id
    beside = _beside(run, name, best) if len(run.meta.task.cases) > 1 else {}
    return {
        **candidate_statistics(detail.row, run.meta.task.objective),
        **fields_of(origin, "island", "rank", "weight", "note"),
        **fields_of(detail, "parts", "outcomes", "hypothesis", "prompt", "reply", "among"),
        "digest": detail.candidate.digest,
        "children": list(detail.children),
        "ancestors": [_ancestor_row(step) for step in views.lineage_steps(run.run, name)[:-1]],
        "observations": [
            msgspec.to_builtins(each) | {"trust": each.trust or LEVELS[-1], "phase": phase}
            for each, phase in zip(detail.observations, detail.phases, strict=True)
        ],
        "cases": _case_rows(run, detail, views.case_means(run.run, list(beside))),
        "beside": beside,
        "usage": msgspec.to_builtins(detail.usage) | {"tokens": detail.usage.tokens},
        "language": run.meta.task.surface.language,
        "direction": run.meta.task.objective.direction,
        "best": best == name,
    }


_BESIDE = 5  # candidates whose scores on each case stand beside a candidate's


def _beside(run: Digest, name: str, best: str) -> dict[str, str]:
    """The initial program, the best and those behind it, by id, with a word for each."""
    known = {views.initial_program(run.run): "start", best: "best"}
    leading = [row.id for row in views.candidate_rows(run.run, limit=_BESIDE)]
    found = {each: known.get(each, each[:8]) for each in [*known, *leading] if each}
    return {each: word for each, word in found.items() if each != name}


def resolve_candidate(run: Digest, name: str) -> str:
    """The full id of `best`, `seed` or the first digits of an id; raises `UserError`."""
    if name == "best" and (best := views.best_result(run.run)) is not None:
        return best.id
    if name == "seed" and (initial := views.initial_program(run.run)):
        return initial
    return views.find_candidate(run.run, name)


def _ancestor_row(step: views.Step) -> JsonObject:
    return fields_of(step.row, "id", "mean", "operator") | fields_of(step, "gain", "note")


_CUT = 300  # characters of an input, a target and an answer in the table of cases


def _case_rows(
    run: Digest, detail: CandidateDetail, others: Mapping[str, Mapping[str, float]]
) -> list[JsonObject]:
    """Scores by case over all evaluations, the worst first, with the case's texts.

    `answer` is what the candidate answered the last time, `others` the mean of each other one.
    """
    known = {case.id: case for case in run.meta.task.cases}
    latest = {each.case: each for each in detail.observations}
    rows = [
        _case_text(name, known.get(name), latest.get(name))
        | {"count": count, "failed": failed, "mean": mean}
        | {"others": {each: means.get(name) for each, means in others.items()}}
        for name, (count, failed, mean) in views.case_counts(run.run, detail.id).items()
    ]
    reward = run.meta.task.objective.reward
    return sorted(rows, key=lambda row: -math.inf if row["mean"] is None else reward(row["mean"]))


def _case_text(name: str, case: Case | None, last: Observation | None) -> JsonObject:
    answer = "" if last is None else last.artifacts.get(OUTPUT) or last.feedback
    return {
        "case": name,
        "split": "" if case is None else case.split,
        "input": "" if case is None else _short_text(case.input),
        "target": "" if case is None else _short_text(case.info),
        "answer": _short_text(answer),
    }


def _short_text(value: object) -> str:
    """A value of a case as text: of a table with one text that text, else JSON."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode_value(value).decode("utf-8", "replace")
    text = " ".join(text.split())
    return text if len(text) <= _CUT else f"{text[: _CUT - 1]}…"
