"""Figures one click deeper against the journal, computed a second time.

Beside those of `test_truth`: costs in detail, intervals, single evaluations, the parts of
the story, and what two surfaces both show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.extensions.web.pages import candidates as candidate_pages
from culmen.extensions.web.pages import effects, lineage, overview, trust
from culmen.extensions.web.runs import Digest
from tests.report.arithmetic import Arithmetic
from tests.report.recorded import RUNS
from tests.report.test_truth import QUICK, Claim, Claims, Run, printed_document

KINDS = (*QUICK, "minimised", "three objectives", "prompt with cases", "islands", "pictures")


def documents(run: Run) -> Claims:
    """The result as every surface shows it, and the facts of the run that need no sums."""
    sums, page = run.sums, run.page(overview.overview_page)
    status = printed_document("status", run.path)
    seen = run.page(trust.trust_page)
    for where, told in (
        ("best", seen["best"]),
        ("winner", seen["winner"]),
        ("status", status["best"]),
    ):
        for name in set(told or ()) & set(page["best"] or ()):
            if page["best"][name] is not None:
                plain = msgspec.json.decode(msgspec.json.encode((told[name], page["best"][name])))
                yield Claim(f"{where}: {name}", *plain)
    for where, doc in (("overview", page), ("status", status)):
        yield Claim(f"{where}: seed", doc["seed"], sums.meta.seed)
        yield Claim(f"{where}: workers", doc["workers"], sums.meta.workers)
    yield Claim("status: target", status["target"], sums.goal.target)
    yield Claim("status: events", status["events"], sums.events[-1][0])
    yield Claim("status: budget", status["budget"]["evaluations"], sums.meta.budget.evaluations)
    yield Claim(
        "status: seconds", status["elapsed_seconds"], max(e.elapsed for _, e in sums.events)
    )
    known = {seq: entry for seq, entry in sums.events}
    for each in page["events"]:
        yield Claim("event: elapsed", each["elapsed"], known[each["seq"]].elapsed)
        yield Claim("event: kind", each["kind"], known[each["seq"]].kind)


def measured(run: Run) -> Claims:
    """The reported score's evaluations, margins and chart."""
    sums, page = run.sums, run.page(overview.overview_page)
    best = page["best"]
    if best is None or best.get("front"):
        return
    tried = sums.searched(best["id"])
    yield Claim("best: scores of the search", best["search_count"], len(sums.scores(tried)))
    scored = {o.candidate for o in sums.seen if o.score is not None and not o.phase}
    yield Claim("best: scored", best["scored"], len(scored))
    for told in (best, best.get("initial") or {}):
        if told.get("margin"):
            yield Claim("best: margin", 1.9 < told["margin"] / told["se"] < 13, True)
    margins = [told.get("margin") or 0.0 for told in (best, best.get("initial") or {})]
    if best.get("gain_margin") and min(margins) > 0:
        wide = math.hypot(*margins)
        yield Claim("best: margin of the gain", wide / 3 < best["gain_margin"] < 3 * wide, True)
    if best.get("confirmed") and best.get("search_score") is not None:
        gap = run.page(trust.trust_page)["gap"]
        yield Claim("trust: gap", abs(gap), abs(best["score"] - best["search_score"]))
    last = page["progress"][-1]
    yield Claim("chart: last count", last["count"], best["count"])
    yield Claim("chart: last evaluation", last["evaluations"], len(sums.seen))
    yield Claim("chart: last dollars", last["dollars"], sum(c.dollars for c in sums.costs))
    low, high = page["domain"]
    for point in page["course"]:
        within = point["low"] <= point["score"] <= point["high"] and low <= point["score"] <= high
        yield Claim("chart: within its interval and on the axis", within, True)


def costs(run: Run) -> Claims:
    """Usage on every surface, and the course, shares and dearest of the calls."""
    sums, page = run.sums, run.page(effects.calls_page)
    first, status = run.page(overview.overview_page), printed_document("status", run.path)
    names = ("calls", "read", "written", "dollars")
    spent = [sum(getattr(c, name) for c in sums.costs) for name in names]
    for where, usage in (("overview", first["usage"]), ("status", status["usage"])):
        told = [usage[n] for n in ("calls", "input_tokens", "output_tokens", "dollars")]
        for name, shown, true in zip(names, told, spent):
            yield Claim(f"{where}: {name}", shown, true)
    for name, true in zip(("calls", "input", "output", "dollars"), spent):
        yield Claim(f"calls: total {name}", page["total"][name], true)
    yield Claim("calls: effects", page["total"]["effects"], len(sums.costs))
    for where in (first, page):
        told = where["spending"]
        yield Claim("spending: evaluations", told["evaluations"], len(sums.seen))
        yield Claim("spending: dollars", told["dollars"], spent[3])
        yield Claim("spending: seconds", told["elapsed"], first["elapsed"])
    for each in page["shares"]:
        some = [c for c in sums.costs if (c.role, c.model) == (each["role"], each["model"])]
        done, dollars, tokens = each["points"][-1]
        yield Claim("shares: dollars", dollars, sum(c.dollars for c in some))
        yield Claim("shares: tokens", tokens, sum(c.read + c.written for c in some))
        yield Claim("shares: at", done, sum(o.seq < some[-1].seq for o in sums.seen))
    known = {c.seq: c for c in sums.costs}
    times = {seq: entry.elapsed for seq, entry in sums.events}
    for each in page["dearest"]:
        true = known[each["seq"]]
        yield Claim("dearest: dollars", each["dollars"], true.dollars)
        yield Claim("dearest: tokens", each["tokens"], true.read + true.written)
        yield Claim("dearest: elapsed", each["elapsed"], times[each["seq"]])
    least = min((each["dollars"] for each in page["dearest"]), default=0.0)
    dearer = sum(c.dollars > least + 1e-9 for c in sums.costs)
    yield Claim("dearest: none is dearer", dearer <= len(page["dearest"]), True)


def rows(run: Run) -> Claims:
    """Counts and intervals of the table, and pages of single candidates."""
    sums = run.sums
    page = run.page(candidate_pages.candidates_page, limit="500")
    yield Claim("table: counts", (page["total"], page["all"]), (len(sums.candidates),) * 2)
    made = Counter(each.origin.operator for each in sums.candidates.values())
    yield Claim("table: operators", {n: c for n, c in page["facets"]["operators"]}, made)
    models = Counter(each.origin.model for each in sums.candidates.values() if each.origin.model)
    yield Claim("table: models", {n: c for n, c in page["facets"]["models"]}, models)
    low, high = sums.goal.bounds
    for row in page["rows"]:
        yield Claim("table: event", row["seq"], sums.born_at[row["id"]])
        if row["margin"]:
            ends = row["mean"] - row["margin"], row["mean"] + row["margin"]
            within = (
                max(ends[0], ends[0] if low is None else low),
                min(ends[1], ends[1] if high is None else high),
            )
            yield Claim("table: low", row["low"], within[0])
            yield Claim("table: high", row["high"], within[1])
            yield Claim("table: margin", 1.9 < row["margin"] / row["se"] < 13, True)
    known = {row["id"]: row for row in page["rows"]}
    for name in [*known][:4]:
        yield from single(run, name, known)


def single(run: Run, name: str, known: dict[str, Any]) -> Claims:
    """A candidate's page."""
    sums, page = run.sums, run.page(candidate_pages.candidate_detail_page, id=name)
    mine = sums.by_candidate.get(name, [])
    shown = [
        (o.get("score"), o.get("seconds", 0.0), o.get("metrics", {})) for o in page["observations"]
    ]
    yield Claim("candidate: evaluations", shown, [(o.score, o.seconds, o.metrics) for o in mine])
    request = next((c for c in sums.costs if name in c.born), None)
    if request is not None:
        told = page["usage"]
        true = request.calls, request.read, request.written, request.dollars
        names = "calls", "input_tokens", "output_tokens", "dollars"
        yield Claim("candidate: usage", tuple(told.get(each, 0) for each in names), true)
        yield Claim("candidate: tokens", told.get("tokens", 0), request.read + request.written)
        place = page["rank"], page["among"]
        yield Claim("candidate: place", place, (request.born.index(name), len(request.born)))
    before: float | None = None
    for each in page["ancestors"]:
        mean = known[each["id"]]["mean"]
        yield Claim("candidate: mean of an ancestor", each["mean"], mean)
        gain = None if before is None or mean is None else mean - before
        yield Claim("candidate: gain of an ancestor", each["gain"], gain)
        before = mean


def told(run: Run) -> Claims:
    """Parts of the story: numbers, costs since the step before, margins, the best in vain."""
    sums, page = run.sums, run.page(overview.overview_page)
    story, best = page["story"], page["best"]
    yield Claim(
        "story: numbers",
        [s["number"] for s in story["steps"]],
        [*range(1, len(story["steps"]) + 1)],
    )
    if story["steps"] and not story["is_own"] and best.get("confirmed") and not page["front"]:
        yield Claim("story: margin of the gain", story["gain_margin"], best["gain_margin"])
        yield Claim("story: margin of the start", story["start_margin"], best["initial"]["margin"])
        yield Claim("story: margin of the end", story["end_margin"], best["margin"])
        yield Claim("story: end", story["end_score"], best["score"])
    first = next(
        (o for o in sums.by_candidate.get(story["start"], ()) if o.score is not None), None
    )
    at = (first.number, first.elapsed, sums.dollars_to(first.seq)) if first else (0, 0.0, 0.0)
    for step in story["steps"]:
        now = step["at_evaluations"], step["at_seconds"], step["at_dollars"]
        for name, here, there in zip(("evaluations", "seconds", "dollars"), now, at):
            yield Claim(f"story: {name} of a step", step[name], here - there)
        at = now
    table = run.page(candidate_pages.candidates_page, limit="500")["rows"]
    known = {row["id"]: row for row in table}
    for group in story["vain"]:
        if group.get("id") and group["best"] is not None:
            row = known[group["id"]]
            yield Claim("vain: best", group["best"], row["mean"])
            yield Claim("vain: margin", group["margin"], row["margin"])
            if best["score"] is not None and group["behind"] is not None:
                yield Claim("vain: behind", abs(group["behind"]), abs(best["score"] - row["mean"]))


def shares(run: Run) -> Claims:
    """Gain by dollar of each factor, and shares of the candidates."""
    for each in run.page(overview.factors_page)["factors"]:
        for row in each["levels"]:
            if row["dollars"] and row["per_dollar"] is not None:
                true = row["gain"] * row["count"] / row["dollars"]
                yield Claim(f"mattered: {row['name']} per dollar", row["per_dollar"], true)
        if any(row["share"] for row in each["levels"]):
            total = sum(row["share"] for row in each["levels"])
            yield Claim(f"mattered: shares of {each['name']}", total, 1.0)


def drawn(run: Run) -> Claims:
    """Lanes, gaps and sessions of the timeline, and the tree of the lineage."""
    sums, page = run.sums, run.page(effects.timeline_page)
    yield Claim("timeline: whole", page["whole"], max(e.elapsed for _, e in sums.events))
    yield Claim("timeline: workers", page["workers"], sums.meta.workers)
    lanes: dict[tuple[str, int], float] = {}
    for each in sorted(page["spans"], key=lambda span: span["from"]):
        lane = each["effect"], each["lane"]
        yield Claim("timeline: one at a time", each["from"] >= lanes.get(lane, 0.0) - 1e-9, True)
        lanes[lane] = each["to"]
    gaps = [each["to"] - each["from"] for each in page["gaps"]["longest"]]
    yield Claim("timeline: the longest first", gaps, sorted(gaps, reverse=True))
    busy = [(s["from"], s["to"]) for s in page["spans"] if s["effect"] == "evaluate"]
    for each in page["gaps"]["longest"]:
        inside = [s for s in busy if s[0] < each["to"] - 1e-9 and s[1] > each["from"] + 1e-9]
        yield Claim("timeline: nothing in a gap", inside, [])
    tree = run.page(lineage.lineage_page)
    places = {name: place for place, name in enumerate(tree["ids"])}
    for name, place in places.items():
        parents = [each for each in sums.candidates[name].parents if each in places]
        first = places[parents[0]] if parents else -1
        yield Claim("lineage: parent", tree["parents"][place], first)
    path = [tree["ids"][place] for place in tree["path"]]
    true = [path[-1]] if path else []
    while true and (
        parents := [p for p in sums.candidates[true[0]].parents if p in sums.candidates]
    ):
        true.insert(0, parents[0])
    yield Claim("lineage: path", path, [each for each in true if each in path])
    yield Claim("lineage: steps", tree["steps"], len(true))


SURFACES: list[Callable[[Run], Claims]] = [
    documents,
    measured,
    costs,
    rows,
    told,
    shares,
    drawn,
]


@pytest.mark.parametrize(
    "kind", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in KINDS]
)
def test_every_deeper_figure_is_the_journals(kind: str, tmp_path: Path) -> None:
    path = RUNS[kind](tmp_path / kind.replace(" ", "-"))
    run = Run(path, Arithmetic(path), Digest(path))
    claims = [claim for surface in SURFACES for claim in surface(run)]
    assert len(claims) > 40
    assert [claim for claim in claims if not claim.holds] == []
