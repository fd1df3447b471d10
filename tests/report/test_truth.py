"""Figures of every surface against the journal, computed a second time.

Of recorded runs of all kinds, what dashboard, report, terminal, JSON, story and comparison show is
compared with sums over the events (`tests.report.arithmetic`).
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

import msgspec
import pytest

import culmen
from culmen.cli.main import main
from culmen.extensions.web.pages import candidates as candidate_pages
from culmen.extensions.web.pages import effects, lineage, overview, trust
from culmen.extensions.web.pages.report import report_page
from culmen.extensions.web.runs import Digest, RunCatalog
from culmen.report.story import run_story
from tests.report.arithmetic import Arithmetic, mean_by_case
from tests.report.recorded import RUNS

QUICK = ("exact", "failed", "killed", "no final choice", "two budgets", "losses over decades")
"""Kinds that are made in a second."""


class Claim(NamedTuple):
    """A figure as a surface shows it, and as the journal has it."""

    where: str
    shown: object
    true: object

    @property
    def holds(self) -> bool:
        """True if both are alike; numbers may differ by rounding."""
        if isinstance(self.shown, float | int) and isinstance(self.true, float | int):
            return math.isclose(self.shown, self.true, rel_tol=1e-9, abs_tol=1e-9)
        return self.shown == self.true


Claims = Iterator[Claim]


class Run(NamedTuple):
    """A recorded run, with its events and the reader of its pages."""

    path: Path
    sums: Arithmetic
    pages: Digest

    def page(self, make: Callable[[Digest, dict[str, str]], Any], **params: str) -> Any:
        """The document of a page."""
        return msgspec.to_builtins(make(self.pages, params))


def totals(run: Run) -> Claims:
    """Counts of the run, on the first page, in the terminal's document, and in its list."""
    sums, page = run.sums, run.page(overview.overview_page)
    calls = run.page(effects.calls_page)
    status = printed_document("status", run.path)
    for where, doc in (("overview", page), ("status", status)):
        yield Claim(f"{where}: evaluations", doc["evaluations"], len(sums.seen))
        yield Claim(f"{where}: candidates", doc["candidates"], len(sums.candidates))
        yield Claim(f"{where}: statuses", doc["statuses"], Counter(o.status for o in sums.seen))
    reasons = Counter(o.reason or o.status for o in sums.seen if o.score is None)
    yield Claim("status: failures", status["failures"], reasons)
    elapsed = max(entry.elapsed for _, entry in sums.events)
    yield Claim("overview: seconds", page["elapsed"], elapsed)
    spent = {
        "evaluations": len(sums.seen),
        "calls": sum(each.calls for each in sums.costs),
        "tokens": sum(each.read + each.written for each in sums.costs),
        "dollars": sum(each.dollars for each in sums.costs),
        "seconds": elapsed,
    }
    for where, doc in (("overview", page), ("calls", calls)):
        for row in doc["spending"]["rows"]:
            yield Claim(f"{where}: spent {row['name']}", row["spent"], spent[row["name"]])
            limit = getattr(sums.meta.budget, row["name"])
            yield Claim(f"{where}: limit of {row['name']}", row["limit"], limit)
    ((_, line),) = RunCatalog(run.path).list_lines()
    yield Claim("list: evaluations", line.evaluations, len(sums.seen))
    yield Claim("list: dollars", line.dollars, spent["dollars"])
    best = page["best"]
    shown = None if best is None or best.get("front") else best["score"]
    yield Claim("list: best", line.best, shown)


def calls(run: Run) -> Claims:
    """Costs by role and model, and over time."""
    sums, page = run.sums, run.page(effects.calls_page)
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for each in sums.costs:
        groups.setdefault((each.effect, each.role, each.model), []).append(each)
    yield Claim("calls: rows", len(page["rows"]), len(groups))
    for row in page["rows"]:
        some = groups[row["effect"], row["role"], row["model"]]
        name = f"calls of {row['effect']} by {row['model']}"
        yield Claim(f"{name}: effects", row["effects"], len(some))
        yield Claim(f"{name}: calls", row["calls"], sum(each.calls for each in some))
        yield Claim(f"{name}: read", row["input"], sum(each.read for each in some))
        yield Claim(f"{name}: written", row["output"], sum(each.written for each in some))
        yield Claim(f"{name}: dollars", row["dollars"], sum(each.dollars for each in some))
    if page["series"]:
        last = page["series"][-1]
        yield Claim(
            "calls: dollars at the end", last["dollars"], sum(c.dollars for c in sums.costs)
        )
    faults = sum((Counter(each.faults) for each in sums.costs), Counter[str]())
    yield Claim("calls: faults", page["tried"], faults)
    began = {entry.key: entry for _, entry in sums.events if entry.kind == "started"}
    taken: dict[str, list[float]] = {}
    for _, entry in sums.events:
        if entry.kind == "done" and entry.key in began:
            taken.setdefault(entry.effect, []).append(entry.elapsed - began[entry.key].elapsed)
    for row in page["seconds"]:
        each = sorted(taken[row["effect"]])
        yield Claim(f"calls: {row['effect']}, count", row["count"], len(each))
        yield Claim(f"calls: {row['effect']}, median", row["median"], each[len(each) // 2])


def timeline(run: Run) -> Claims:
    """Effects in time: how many, how busy the workers were."""
    sums, page = run.sums, run.page(effects.timeline_page)
    began = {entry.key: entry for _, entry in sums.events if entry.kind == "started"}
    done = [e for _, e in sums.events if e.kind == "done" and e.key in began]
    yield Claim("timeline: effects", page["count"], len(began))
    yield Claim("timeline: done", page["outcomes"].get("done", 0), len(done))
    if len(done) == len(began):
        wide = (page["to"] - page["from"]) / (len(page["load"]["edges"]) - 1)
        for effect, load in page["load"]["kinds"].items():
            taken = sum(e.elapsed - began[e.key].elapsed for e in done if e.effect == effect)
            is_like = math.isclose(sum(load) * wide, taken, rel_tol=1e-3, abs_tol=1e-3 * wide)
            yield Claim(f"timeline: load of {effect}", is_like, True)
        spans = {e.key: (began[e.key].elapsed, e.elapsed) for e in done}
        shown = {each["key"]: (each["from"], each["to"]) for each in page["spans"]}
        yield Claim("timeline: spans", shown, spans if shown else {})
        until, idle = page["from"], []
        for start, end in sorted(spans[e.key] for e in done if e.effect == "evaluate"):
            idle += [start - until] if start > until + 0.05 else []
            until = max(until, end)
        idle += [page["to"] - until] if page["to"] > until + 0.05 else []
        yield Claim("timeline: gaps", page["gaps"]["count"], len(idle))
        yield Claim("timeline: idle", page["gaps"]["seconds"], sum(idle))
        worked = sum(e.elapsed - began[e.key].elapsed for e in done if e.effect == "evaluate")
        share = worked / (sums.meta.workers * max(e.elapsed for _, e in sums.events))
        yield Claim("timeline: busy", page["busy"], share)


def chart(run: Run) -> Claims:
    """The dots and the reference lines of the first chart."""
    sums, page = run.sums, run.page(overview.overview_page)
    dots = [each for each in sums.seen if not each.phase]
    yield Claim("chart: dots", sum(dot["count"] for dot in page["scores"]), len(dots))
    for dot, seen in zip(page["scores"], dots):
        true = seen.number, seen.elapsed, seen.score, seen.status, seen.candidate
        shown = tuple(dot[k] for k in ("evaluations", "seconds", "score", "status", "candidate"))
        yield Claim(f"chart: dot {seen.number}", shown, true)
        yield Claim("chart: dollars", dot["dollars"], sums.dollars_to(seen.seq))
    for point in [*page["progress"][:-1], *page["course"]]:
        at = sums.seen[point["evaluations"] - 1]
        yield Claim("chart: time of a point", point["seconds"], at.elapsed)
        yield Claim("chart: dollars of a point", point["dollars"], sums.dollars_to(at.seq))
    for point in page["progress"][:-1]:
        many = sum(
            o.score is not None and o.candidate == point["candidate"] and not o.phase
            for o in sums.seen[: point["evaluations"]]
        )
        yield Claim("chart: scores of the leader", point["count"], many)
    if sums.meta.task.deterministic:
        for point in page["course"]:
            so_far = sums.scores(sums.seen[: point["evaluations"]])
            best = sums.sign * max(sums.sign * score for score in so_far)
            yield Claim("chart: best so far", point["score"], best)
    if page["best"] and page["best"]["score"] is not None:
        yield Claim("chart: end", page["progress"][-1]["score"], page["best"]["score"])
    yield Claim("chart: target", page["lines"]["target"], sums.goal.target)


def result(run: Run) -> Claims:
    """The reported score and that of the initial program, from the fresh evaluations alone."""
    sums, page = run.sums, run.page(overview.overview_page)
    status, best = printed_document("status", run.path), page["best"]
    yield Claim("result: any", best is None, not any(o.score is not None for o in sums.seen))
    if best is None or best.get("front"):
        return
    yield Claim("result: everywhere", as_json(status["best"]), as_json(best))
    told = culmen.Study.open(run.path).best
    for name in ("id", "score", "margin", "gain", "gain_margin", "challenger"):
        yield Claim(f"result: {name} in Python", as_json(getattr(told, name)), best.get(name))
    yield Claim("result: of evaluations", best["evaluations"], len(sums.seen))
    failed = sum(o.score is None for o in sums.seen)
    yield Claim("result: failed", sum(best.get("failed", {}).values()), failed)
    if not best.get("confirmed"):
        yield Claim("result: fresh", [o for o in sums.seen if o.phase == "final"], [])
        return
    for name, told in (("best", best), ("initial", best.get("initial") or {})):
        if not told.get("id") or (name == "initial" and not told.get("fresh")):
            continue
        fresh = sums.fresh(told["id"])
        yield Claim(f"result: count of the {name}", told["count"], len(fresh))
        failed = sum(o.score is None for o in fresh)
        yield Claim(f"result: failures of the {name}", told.get("failures", 0), failed)
        if not failed:
            true = mean_by_case([(o.case, o.score) for o in fresh if o.score is not None])
            yield Claim(f"result: score of the {name}", told["score"], true)
    initial, gain = best.get("initial"), best.get("gain")
    if initial and gain is not None and not best.get("kept_initial"):
        yield Claim("result: gain", gain, best["score"] - initial["score"])


def table(run: Run) -> Claims:
    """The table of candidates, each row."""
    sums = run.sums
    page = run.page(candidate_pages.candidates_page, limit="500")
    yield Claim("table: candidates", sorted(r["id"] for r in page["rows"]), sorted(sums.candidates))
    for row in page["rows"]:
        made, name = sums.candidates[row["id"]], f"table: {row['id'][:6]}"
        yield from statistics(run, row, name)
        yield Claim(f"{name}: operator", row["operator"], made.origin.operator)
        yield Claim(f"{name}: model", row["model"], made.origin.model)
        yield Claim(f"{name}: parents", tuple(row["parents"]), tuple(made.parents))
        yield Claim(f"{name}: island", row["island"], made.origin.island)
        yield Claim(f"{name}: size", row["size"], sum(map(len, made.parts.values())))
        yield Claim(f"{name}: dollars", row["dollars"], sums.share_of_request(row["id"]))
        seen = sums.by_candidate.get(row["id"], [])
        seconds = sum(o.seconds for o in seen) / len(seen) if seen else None
        yield Claim(f"{name}: seconds", row["seconds"], seconds)


def statistics(run: Run, row: Any, name: str) -> Claims:
    """A candidate's scores and failures."""
    sums, searched, fresh = run.sums, run.sums.searched(row["id"]), run.sums.fresh(row["id"])
    scores = sums.scores(searched)
    yield Claim(f"{name}: scores of the search", row["search_count"], len(scores))
    yield Claim(f"{name}: mean of the search", row["search_mean"], sums.search_mean(row["id"]))
    failed = sums.failures(row["id"])
    yield Claim(f"{name}: statuses", row["statuses"], failed)
    yield Claim(f"{name}: failed", row["failed"], failed.total() - failed["lost"])
    yield Claim(f"{name}: is fresh", row["fresh"], bool(fresh))
    if fresh and all(o.score is not None for o in fresh):
        yield Claim(f"{name}: n", row["count"], len(fresh))
        true = mean_by_case([(o.case, o.score) for o in fresh if o.score is not None])
        yield Claim(f"{name}: mean", row["mean"], true)
    elif not fresh:
        yield Claim(f"{name}: n", row["count"], len(scores))
        if not row["expected"]:
            yield Claim(f"{name}: mean", row["mean"], sums.search_mean(row["id"]))


def candidate(run: Run) -> Claims:
    """Pages of candidates: the best, the first, the finalists and some that failed."""
    sums = run.sums
    names = list(sums.candidates)[:3]
    names += [o.candidate for o in sums.seen if o.phase][:20]
    names += [o.candidate for o in sums.seen if o.score is None][:5]
    for name in dict.fromkeys(names):
        page, seen = run.page(candidate_pages.candidate_detail_page, id=name), sums.by_candidate
        told, mine = f"candidate {name[:6]}", seen.get(name, [])
        yield from statistics(run, page, told)
        yield Claim(f"{told}: listed", len(page["observations"]), min(200, len(mine)))
        yield Claim(f"{told}: outcomes", page["outcomes"], Counter(o.status for o in mine))
        phases = [o.phase for o in mine[-200:]]
        yield Claim(f"{told}: phases", [o["phase"] for o in page["observations"]], phases)
        children = [each.id for each in sums.candidates.values() if name in each.parents]
        yield Claim(f"{told}: children", page["children"], children[:100])
        cases: dict[str, list[Any]] = {}
        for each in mine:
            cases.setdefault(each.case, []).append(each)
        yield Claim(f"{told}: cases", {row["case"] for row in page["cases"]}, set(cases))
        for row in page["cases"]:
            some = cases[row["case"]]
            scores = sums.scores(some)
            yield Claim(f"{told}: {row['case']} n", row["count"], len(some))
            yield Claim(f"{told}: {row['case']} failed", row["failed"], len(some) - len(scores))
            mean = sum(scores) / len(scores) if scores else None
            yield Claim(f"{told}: {row['case']} mean", row["mean"], mean)
            for other, shown in row["others"].items():
                found = sums.scores(o for o in seen.get(other, ()) if o.case == row["case"])
                mean = sum(found) / len(found) if found else None
                yield Claim(f"{told}: {row['case']} of {other[:6]}", shown, mean)
        chain = [name]
        while parents := known_parents(run, chain[0]):
            chain.insert(0, parents[0])
        yield Claim(f"{told}: ancestors", [each["id"] for each in page["ancestors"]], chain[:-1])


def trusted(run: Run) -> Claims:
    """Levels of trust, repeats, and the finalists."""
    sums, page = run.sums, run.page(trust.trust_page)
    levels = Counter(each.trust for each in sums.seen if each.score is not None)
    yield Claim("trust: levels", {row["level"]: row["count"] for row in page["levels"]}, levels)
    again: dict[tuple[str, str], list[float]] = {}
    for each in sums.seen:
        if each.score is not None:
            again.setdefault((each.candidate, each.case), []).append(each.score)
    repeated = {name for (name, _), scores in again.items() if len(scores) > 1}
    unstable = {name for (name, _), scores in again.items() if max(scores) > min(scores)}
    yield Claim("trust: repeated", page["noise"]["repeated"], len(repeated))
    yield Claim("trust: unstable", page["noise"]["unstable"], len(unstable))
    yield Claim("trust: statuses", page["statuses"], Counter(o.status for o in sums.seen))
    for row in page["finalists"]:
        yield from statistics(run, row | {"fresh": bool(sums.fresh(row["id"]))}, "trust: finalist")
        scores = sums.scores(
            o for o in sums.seen if o.phase == "final" and o.candidate == row["id"]
        )
        if row["fresh"] is not None:
            yield Claim("trust: fresh", row["fresh"], sum(scores) / len(scores))


def story(run: Run) -> Claims:
    """Steps add to the gain of the headline; groups and way hold every candidate once."""
    sums, page = run.sums, run.page(overview.overview_page)
    told, best = page["story"], page["best"]
    again = msgspec.to_builtins(run_story(run.path))
    yield Claim(
        "story: in the terminal",
        [s["gain"] for s in again["steps"]],
        [s["gain"] for s in told["steps"]],
    )
    if told["steps"]:
        gains = [step["gain"] for step in told["steps"]]
        yield Claim("story: sum of steps", sum(gains), told["gain"])
        yield Claim("story: shares", sum(step["share"] for step in told["steps"]), 1.0)
        if best["score"] is not None and not told["is_own"] and best.get("gain") is not None:
            yield Claim("story: gain of the headline", told["gain"], best["gain"])
        ways = [step["way"] for step in told["steps"] if step["way"] is not None]
        if ways and not told["is_own"]:
            first = told["start_score"]
            yield Claim("story: way", sum(ways), sum(gains) / (sums.goal.target - first))
        reached = told["start_score"]
        for step in told["steps"]:
            reached += step["gain"]
            yield Claim("story: score of a step", step["score"], reached)
            first = next(o for o in sums.by_candidate[step["id"]] if o.score is not None)
            yield Claim("story: evaluations", step["at_evaluations"], first.number)
            yield Claim("story: dollars", step["at_dollars"], sums.dollars_to(first.seq))
            yield Claim("story: seconds", step["at_seconds"], first.elapsed)
    scored = {o.candidate for o in sums.seen if o.score is not None and not o.phase}
    given = {n for n, c in sums.candidates.items() if c.origin.operator in ("seed", "carried")}
    lost = {n for n in sums.candidates if sums.failures(n).total() > sums.failures(n)["lost"]}
    vain = {group["name"]: group["count"] for group in told["vain"]}
    yield Claim("story: failed", vain.pop("failed", 0), len(lost - scored))
    way = set() if best is None else {best["id"], *(each["id"] for each in best.get("front", ()))}
    at = "" if best is None else best["id"]
    while at:
        way.add(at)
        at = next(iter(known_parents(run, at)), "")
    yield Claim(
        "story: tried in vain", sum(vain.values()), len(scored - given - way) if best else 0
    )


def known_parents(run: Run, name: str) -> list[str]:
    """The parents of a candidate that are in this run."""
    return [each for each in run.sums.candidates[name].parents if each in run.sums.candidates]


def mattered(run: Run) -> Claims:
    """Factors that mattered: the rows of every table have the totals of the journal."""
    sums, page = run.sums, run.page(overview.factors_page)
    children = [
        name
        for name, made in sums.candidates.items()
        if any(sums.search_mean(each) is not None for each in made.parents)
        and (
            sums.search_mean(name) is not None
            or sums.failures(name).total() > sums.failures(name)["lost"]
        )
    ]
    better = 0
    for name in children:
        means = [sums.search_mean(each) for each in sums.candidates[name].parents]
        above = next(mean for mean in means if mean is not None)
        own = sums.search_mean(name)
        better += own is not None and sums.sign * own > sums.sign * above
    dollars = sum(sums.share_of_request(name) for name in children)
    for each in page["factors"]:
        name, rows = f"mattered: {each['name']}", each["levels"]
        yield Claim(f"{name}, n", sum(row["count"] for row in rows), len(children))
        improved = sum(row["count"] * row["improves"] for row in rows)
        yield Claim(f"{name}, improved", improved, better)
        yield Claim(f"{name}, dollars", sum(row["dollars"] for row in rows), dollars)


def front(run: Run) -> Claims:
    """Members of a front by their fresh means, and the ones that no other dominates."""
    sums, page = run.sums, run.page(overview.overview_page)
    goals = sums.goal.metrics
    if not goals:
        yield Claim("front: none", page["front"], None)
        return
    members = page["front"]["members"]
    if page["front"]["confirmed"]:
        for each in members:
            fresh = [o for o in sums.fresh(each["id"]) if o.score is not None]
            yield Claim("front: evaluations", each["count"], len(sums.fresh(each["id"])))
            for goal in goals:
                mean = sums.metric_mean(fresh, goal.name)
                yield Claim(f"front: {goal.name}", each["metrics"][goal.name], mean)
    yield from moves(run, page)
    free = [each for each in members if not any(dominates(o, each, goals) for o in members)]
    shown = re.match(r"(\d+) trade-offs?", page["summary"]["lines"][0])
    yield Claim("front: trade-offs", shown and int(shown[1]), len(free))
    listed = {each["id"] for each in [*members, *page["front"]["others"]]}
    scored = {o.candidate for o in sums.seen if o.score is not None}
    yield Claim("front: all candidates", listed, scored)


def moves(run: Run, page: Any) -> Claims:
    """Objectives before and after each step: fresh means, else those of the front's picture."""
    sums, front, goals = run.sums, page["front"], run.sums.goal.metrics
    points = {each["id"]: each for each in [*front["others"], *front["members"], front["start"]]}
    for step in page["story"]["steps"]:
        told = {match[1]: match for each in step["facts"] if (match := _MOVED.fullmatch(each))}
        yield Claim("step: objectives", list(told), [each.name for each in goals])
        for goal in goals:
            found, ends = told[goal.name], list[float]()
            for place, name in ((2, step["base"]), (3, step["end"])):
                fresh = [o for o in sums.fresh(name) if o.score is not None]
                ends.append(points[name]["metrics"][goal.name])
                true = sums.metric_mean(fresh, goal.name) if fresh else ends[-1]
                yield Claim(f"step: {goal.name}", float(found[place]), rounded(found[place], true))
            is_better = (ends[1] > ends[0]) == (goal.direction == "max")
            wrong = "worse" if is_better else "better"
            yield Claim(f"step: {goal.name} is {found[4]}", found[4] == wrong, False)


def dominates(one: Any, other: Any, goals: Any) -> bool:
    """True if one member is at least as good in all means, and better in one."""
    gaps = [
        (one["metrics"][g.name] - other["metrics"][g.name]) * (-1 if g.direction == "min" else 1)
        for g in goals
    ]
    return min(gaps) >= 0 and max(gaps) > 0


def family(run: Run) -> Claims:
    """The lineage: every candidate once, on the way or beside it."""
    sums, page = run.sums, run.page(lineage.lineage_page)
    yield Claim("lineage: total", page["total"], len(sums.candidates))
    held = sum(item["tried"] + item["steps"] for item in page["line"])
    yield Claim("lineage: held", held, len(sums.candidates))
    scored = {o.candidate for o in sums.seen if o.score is not None}
    yield Claim("lineage: unscored", page["unscored"], len(set(sums.candidates) - scored))
    operators = Counter(each.origin.operator for each in sums.candidates.values())
    shown = dict(page["groups"]["operator"]["names"])
    yield Claim("lineage: operators", shown, operators)
    for kind in ("model", "island"):
        counts = Counter(getattr(each.origin, kind) for each in sums.candidates.values())
        shown, (more, rest) = dict(page["groups"][kind]["names"]), page["groups"][kind]["more"]
        yield Claim(f"lineage: {kind}s", shown, {name: counts[name] for name in shown})
        left = [many for name, many in counts.items() if name not in shown]
        yield Claim(f"lineage: other {kind}s", (more, rest), (len(left), sum(left)))
    for place, name in enumerate(page["ids"]):
        made, failed = sums.candidates[name], sums.failures(name)
        origin = made.origin.operator, made.origin.model, made.origin.island
        shown = tuple(page[kind][place] for kind in ("operator", "model", "island"))
        yield Claim("lineage: origin", shown, origin)
        many = failed.total() - failed["lost"]
        yield Claim("lineage: failed", page["failed"][place], many)
        if not sums.fresh(name):
            yield Claim("lineage: n", page["counts"][place], len(sums.scores(sums.searched(name))))
        below = [name]
        for each in below:
            below += [c.id for c in sums.candidates.values() if c.parents[:1] == (each,)]
        yield Claim("lineage: descendants", page["sizes"][place], len(below))
        at = [page["means"][page["ids"].index(each)] for each in below if each in page["ids"]]
        best = max((sums.sign * mean for mean in at if mean is not None), default=None)
        if page["whole"]:
            yield Claim("lineage: best of these", page["tops"][place], best and sums.sign * best)
        kids = sum(each.parents[:1] == (name,) for each in sums.candidates.values())
        yield Claim("lineage: children", page["kids"][place], kids)
        until = sum(o.seq < sums.born_at[name] for o in sums.seen)
        yield Claim("lineage: born after", page["evaluations"][place], until)


_NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"
_MOVED = re.compile(rf"(\S+) {_NUMBER} → {_NUMBER} \((better|worse|within noise)\)")
_SCORES = re.compile(rf"initial {_NUMBER}(?: ± {_NUMBER})? → best {_NUMBER}(?: ± {_NUMBER})?")
_USED = re.compile(r"used ([\d,]+) evaluations?(?:, ([\d,]+) calls?, ([\d,]+) \+ ([\d,]+) tokens)?")


def rounded(shown: str, true: float) -> float:
    """The shown number if it is the true one, rounded; else the true one."""
    digits = shown.partition("e")[0].partition(".")[2]
    power = int(shown.partition("e")[2] or 0) - len(digits)
    return float(shown) if abs(float(shown) - true) <= 0.5001 * 10.0**power else true


def terminal(run: Run) -> Claims:
    """The sentences of the terminal, of the page and of the report."""
    sums, page = run.sums, run.page(overview.overview_page)
    text, best = printed("status", run.path), page["best"]
    used = _USED.search(text)
    assert used is not None
    shown = [int(each.replace(",", "")) for each in used.groups() if each]
    spent = [sum(c.calls for c in sums.costs), sum(c.read for c in sums.costs)]
    true = [len(sums.seen), *spent, sum(c.written for c in sums.costs)]
    yield Claim("terminal: used", shown, true[: len(shown)])
    first = page["summary"]["lines"][0]
    yield Claim("terminal: first line", text.splitlines()[0], first)
    here = text.replace(str(run.path), run.path.name)
    yield Claim("page: next", f"next: {page['summary']['command']}  (" in here, True)
    costs = dict(run.page(report_page)["cost"])
    failed = sum(o.score is None for o in sums.seen)
    told = re.findall(r"[\d,]+", costs["evaluations"])
    yield Claim("report: evaluations", int(told[0].replace(",", "")), len(sums.seen))
    if failed:
        yield Claim("report: failed", int(told[-1].replace(",", "")), failed)
    found = _SCORES.search(text)
    if found and best.get("confirmed"):
        yield from shown_scores(run, found, best)
    if best and best.get("confirmed"):
        texts = [text, printed("best", run.path), *strings(page), *strings(run.page(report_page))]
        is_once = len(sums.fresh(best["id"])) < 2
        said = [each for each in texts if re.search(r"(?<!not )\bconfirmed\b", each)]
        yield Claim("terminal: one evaluation confirms", said if is_once else [], [])


def shown_scores(run: Run, found: re.Match[str], best: Any) -> Claims:
    """Scores of the first line: rounded means of the fresh evaluations, with their margins."""
    sums = run.sums
    for name, id, value, margin in (
        ("initial", best["initial"]["id"], *found.groups()[:2]),
        ("best", best["id"], *found.groups()[2:]),
    ):
        fresh = sums.fresh(id)
        if any(o.score is None for o in fresh) or not fresh:
            continue
        mean = mean_by_case([(o.case, o.score or 0.0) for o in fresh])
        yield Claim(f"terminal: {name}", float(value), rounded(value, mean))
        scores = sums.scores(fresh)
        if (
            margin
            and len(scores) >= 5
            and not sums.meta.task.cases
            and sums.goal.bounds == (None, None)
        ):
            own = 1.96 * stdev(scores) / math.sqrt(len(scores))
            is_like = own / 3 <= float(margin) <= 6 * own  # failures elsewhere widen it
            yield Claim(f"terminal: margin of the {name} {margin} beside {own}", is_like, True)


def as_json(document: Any) -> Any:
    """A document as a reader of JSON gets it."""
    return msgspec.json.decode(msgspec.json.encode(document))


def strings(document: Any) -> Iterator[str]:
    """All texts in a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict | list | tuple):
        inside = document.values() if isinstance(document, dict) else document
        for each in inside:
            yield from strings(each)


def printed_document(*words: str | Path) -> Any:
    """The JSON that a command prints."""
    return msgspec.json.decode(printed(*words, "--json"))


def printed(*words: str | Path) -> str:
    """The output of a command that runs in this process."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main([str(word) for word in words])
    return out.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]


SURFACES: list[Callable[[Run], Claims]] = [
    totals,
    calls,
    timeline,
    chart,
    result,
    table,
    candidate,
    trusted,
    story,
    mattered,
    front,
    family,
    terminal,
]


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A recorded run of the kind that the test names."""
    path = RUNS[request.param](tmp_path / request.param.replace(" ", "-"))
    return Run(path, Arithmetic(path), Digest(path))


KINDS = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in RUNS]


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_every_figure_is_the_journals(run: Run) -> None:
    claims = [claim for surface in SURFACES for claim in surface(run)]
    assert len(claims) > 50
    assert [claim for claim in claims if not claim.holds] == []
