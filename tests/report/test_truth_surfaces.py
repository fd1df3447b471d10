"""Figures of pages, the report's file, the terminal, JSON, MCP and Python, side by side.

Beside the claims of `test_truth` and `test_truth_deeper`: settings, labels of the terminal, and
every field that two surfaces share.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.extensions.mcp.cli import AllowedFolders, Tools
from culmen.extensions.web.pages import candidates as candidate_pages
from culmen.extensions.web.pages import effects, lineage, overview, trust
from culmen.extensions.web.pages.report import report_page
from culmen.extensions.web.report import gather_report
from culmen.extensions.web.runs import Digest
from tests.report.arithmetic import Arithmetic
from tests.report.recorded import RUNS
from tests.report.test_truth import (
    QUICK,
    Claim,
    Claims,
    Run,
    as_json,
    printed,
    printed_document,
    rounded,
)

KINDS = (*QUICK, "minimised", "three objectives", "prompt with cases", "islands", "pictures")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def same(where: str, shown: Any, true: Any, *left: str) -> Claims:
    """A claim for each field of two documents; `left` are those that differ."""
    for name in sorted((set(shown or ()) & set(true or ())) - set(left)):
        yield Claim(f"{where}: {name}", as_json(shown[name]), as_json(true[name]))


def numbers(text: str) -> list[float]:
    """All numbers of a text."""
    return [float(each.replace(",", "")) for each in _NUMBER.findall(text)]


def settings(run: Run) -> Claims:
    """The run's settings, as they were stored."""
    sums, page = run.sums, run.page(overview.overview_page)
    status, judged = printed_document("status", run.path), run.page(trust.trust_page)
    meta = as_json(sums.meta)
    yield Claim("overview: config", page["config"], meta["strategy"].get("config") or {})
    yield Claim("overview: bounds", tuple(page["bounds"]), sums.goal.bounds)
    for where, doc in (("overview", page), ("status", status)):
        yield Claim(f"{where}: created", doc["created"], sums.meta.created)
        running = len({e.key for _, e in sums.events if e.kind == "started"})
        running -= len({e.key for _, e in sums.events if e.kind in ("done", "torn")})
        going = doc.get("running", doc.get("in_flight"))
        yield Claim(f"{where}: in flight", going, running if doc["state"] == "running" else going)
    yield from same("status: budget", status["budget"], meta["budget"])
    yield from same("trust: limits", judged["limits"], as_json(sums.meta.task.limits))
    yield Claim("trust: failures", judged["failures"], status["failures"])
    starts = {e.elapsed for _, e in sums.events if e.kind == "state"}
    told = run.page(effects.timeline_page)
    yield Claim("timeline: sessions", set(told["sessions"]) <= starts, True)
    edges, wide = told["load"]["edges"], told["to"] - told["from"]
    even = [told["from"] + wide * n / (len(edges) - 1) for n in range(len(edges))]
    yield Claim("timeline: edges", edges == pytest.approx(even, abs=1e-4), True)
    for each in page["events"]:
        yield Claim("events: time", each["time"], sums.meta.created + each["elapsed"])


def spending(run: Run) -> Claims:
    """Costs in detail: calls from a cache, without a price, again, and their course."""
    sums, page = run.sums, run.page(effects.calls_page)
    status, first = printed_document("status", run.path), run.page(overview.overview_page)
    results = {seq: entry.result for seq, entry in sums.events if entry.kind == "done"}
    usage: list[Any] = [results[each.seq].usage for each in sums.costs]  # type: ignore[union-attr]
    for name, field in (("cached", "cache_hits"), ("unpriced", "unpriced")):
        true = sum(getattr(each, field) for each in usage)
        yield Claim(f"calls: {name}", sum(row[name] for row in page["rows"]), true)
        yield Claim(f"calls: {name} in all", page["total"][name], true)
        yield Claim(f"status: {name}", status["usage"][field], true)
        yield Claim(f"overview: {name}", first["usage"][field], true)
    again = [row["calls"] + row["cached"] - row["effects"] for row in page["rows"] if row["calls"]]
    yield Claim("calls: again", sum(row["retries"] for row in page["rows"]), sum(map(int, again)))
    yield Claim("calls: again in all", page["total"]["retries"], sum(map(int, again)))
    yield from same("calls: lost", page["lost"], status["usage"]["possibly_lost"])
    yield from same("calls: uncertain", page["uncertain"], status["usage"]["uncertain"])
    yield Claim("calls: faults", page["faults"], status["faults"])
    paid = [each for each in sums.costs if each.calls or each.dollars]
    for point, last in zip(page["series"], paid, strict=len(paid) <= len(page["series"])):
        if len(paid) > len(page["series"]):
            break
        spent = [each for each in sums.costs if each.seq <= last.seq]
        yield Claim("calls: dollars so far", point["dollars"], sum(c.dollars for c in spent))
        yield Claim("calls: tokens so far", point["tokens"], sum(c.read + c.written for c in spent))
        made = sum(o.seq <= last.seq for o in sums.seen)
        yield Claim("calls: evaluations so far", point["evaluations"], made)
    began = {entry.key: entry for _, entry in sums.events if entry.kind == "started"}
    taken: dict[str, list[float]] = {}
    for _, entry in sums.events:
        if entry.kind == "done" and entry.key in began:
            taken.setdefault(entry.effect, []).append(entry.elapsed - began[entry.key].elapsed)
    for row in page["seconds"]:
        slower = sum(each >= row["slow"] - 1e-9 for each in taken[row["effect"]])
        many = len(taken[row["effect"]])
        yield Claim("calls: slow", 0.1 * many - 1 <= slower <= 0.1 * many + 1, True)
        yield Claim("calls: slow one", row["slow"] in taken[row["effect"]], True)


def labels(run: Run) -> Claims:
    """The terminal's lines with a label."""
    sums, status = run.sums, printed_document("status", run.path)
    lines = dict(
        line.split(None, 1)
        for line in printed("status", run.path).splitlines()
        if len(line.split(None, 1)) == 2
    )
    limit = [sums.meta.budget.evaluations] * (sums.meta.budget.evaluations is not None)
    yield Claim("label: spent", numbers(lines["spent"])[: 1 + len(limit)], [len(sums.seen), *limit])
    dollars = sum(each.dollars for each in sums.costs)
    paid = re.search(r"\$([\d.]+)", lines["spent"])
    yield Claim("label: dollars", paid is None or abs(float(paid[1]) - dollars) < 0.006, True)
    many = sum(each.calls for each in sums.costs)
    called = re.search(r"([\d,]+)(?:/[\d,]+)? calls?", lines["spent"])
    yield Claim("label: calls", numbers(called[1]) if called else [many], [many])
    elapsed = max(entry.elapsed for _, entry in sums.events)
    taken = re.findall(r"([\d.]+) (min|s)\b", lines["spent"].partition(" of ")[0])
    seconds = sum(float(each) * (60 if unit == "min" else 1) for each, unit in taken)
    yield Claim("label: time", abs(seconds - elapsed) < 1, True)
    yield Claim("label: candidates", numbers(lines["candidates"]), [len(sums.candidates)])
    yield Claim(
        "label: strategy", numbers(lines["strategy"])[-2:], [sums.meta.seed, sums.meta.workers]
    )
    outcomes = dict(
        zip((w for w in re.findall(r"[a-z]+", lines["outcomes"])), numbers(lines["outcomes"]))
    )
    yield Claim("label: outcomes", outcomes, Counter(o.status for o in sums.seen))
    if status["failures"]:
        told = Counter(numbers(lines["failures"]))
        yield Claim("label: failures", told, Counter(map(float, status["failures"].values())))
    if "target" in lines["task"]:
        yield Claim("label: target", numbers(lines["task"])[-1], sums.goal.target)
    used = _USED.search(printed("status", run.path))
    assert used is not None
    yield Claim("used: dollars", used[1] is None or abs(float(used[1]) - dollars) < 0.006, True)
    left = (sums.meta.budget.evaluations or 0) - len(sums.seen)
    said = re.search(r"is spent but for ([\d,]+)", printed("status", run.path))
    is_told = status["reason"] == "evaluations" and left > 0 and status["state"] == "finished"
    yield Claim("label: left", said and numbers(said[1]), [left] if is_told else None)
    if status["best"] is not None:
        yield Claim("label: best", status["best"]["id"] in printed("status", run.path), True)
    reserve = status["reserve"]
    if reserve and "kept" in lines:
        kept = [reserve["evaluations"], reserve["of"]]
        yield Claim("label: kept", numbers(lines["kept"])[:2], kept)


_USED = re.compile(r"^used .*?(?:, \$([\d.]+))?, ", re.M)


def best_text(run: Run) -> Claims:
    """`culmen best`: the texts of the reported candidate, and its document."""
    page = run.page(overview.overview_page)
    if page["best"] is None:
        return
    parts = run.sums.candidates[page["best"]["id"]].parts
    yield Claim(
        "best: text", [p for p in parts.values() if p.strip() not in printed("best", run.path)], []
    )
    told = printed_document("best", run.path)
    yield Claim("best: parts", told["parts"], parts)
    study = culmen.Study.open(run.path).best
    known = {name for name, value in page["best"].items() if value is not None}  # of a front: few
    shown = {name: getattr(study, name) for name in known if hasattr(study, name)}
    for where, best in (("Study.best", shown), ("best", told["best"])):
        yield from same(
            where, {name: best[name] for name in known & set(best)}, page["best"], "front"
        )
    is_changed = page["best"]["id"] != next(iter(run.sums.candidates))
    texts = printed("best", run.path), printed("status", run.path)
    said = ["--diff seed" in text for text in texts]
    yield Claim("next: what changed", any(said), is_changed and any(said))


def told_again(run: Run) -> Claims:
    """The story, candidates and the way to the best, as two surfaces show them."""
    page, story = run.page(overview.overview_page), printed_document("story", run.path)
    yield from same("story", story, page["story"], "steps", "vain")
    for shown, true in zip(story["steps"], page["story"]["steps"], strict=True):
        yield from same("story: step", shown, true)
    for shown, true in zip(story["vain"], page["story"]["vain"], strict=True):
        yield from same("story: in vain", shown, true)
    table = run.page(candidate_pages.candidates_page, limit="500")
    yield Claim("table: of", (table["offset"], table["limit"]), (0, 500))
    rows = {row["id"]: row for row in table["rows"]}
    names = [*rows][:3] + [o.candidate for o in run.sums.seen if o.score is None][:2]
    for name in dict.fromkeys(names):
        one = run.page(candidate_pages.candidate_detail_page, id=name)
        yield from same("candidate", one, rows[name], "seconds", "usage", "dollars")
        seeds = [
            entry.result.seed
            for _, entry in run.sums.events
            if getattr(entry.result, "candidate", "") == name
        ]  # type: ignore[union-attr]
        yield Claim(
            "candidate: seeds", [o.get("seed", 0) for o in one["observations"]], seeds[-200:]
        )
    for each in run.page(trust.trust_page)["finalists"]:
        yield from same("finalist", each, rows[each["id"]], "fresh")
    yield from way(run, rows)


def way(run: Run, rows: dict[str, Any]) -> Claims:
    """The lineage's path: costs and changes of its steps, and the branches beside it."""
    sums, tree = run.sums, run.page(lineage.lineage_page)
    names = sorted(sums.candidates, key=lambda name: (sums.born_at[name], name))
    yield Claim("lineage: places", tree["places"], [names.index(each) for each in tree["ids"]])
    for place, name in enumerate(tree["ids"]):
        yield Claim("lineage: mean", tree["means"][place], rows[name]["mean"])
    low, high = tree["domain"]
    outside = [m for m in tree["means"] if m is not None and not low <= m <= high]
    if tree["whole"]:
        yield Claim("lineage: beyond", tree["beyond"], len(outside))
    for item in tree["line"]:
        yield Claim("lineage: shape", sum(item["shape"]), item["tried"] - item["lost"])
        if item["node"] < 0:
            continue
        name = names[item["node"]]
        yield Claim("lineage: step", name == tree["ids"][tree["path"][0]], item["step"] == 0)
        spent = sums.dollars_to(sums.born_at[name])
        yield Claim("lineage: dollars of a step", item["dollars"], spent)
        parents = [each for each in sums.candidates[name].parents if each in sums.candidates]
        if item["step"] and parents:
            both = (sums.candidates[each].parts.values() for each in (parents[0], name))
            lines = [Counter("\n".join(each).splitlines()) for each in both]
            yield Claim("lineage: added", item["added"], (lines[1] - lines[0]).total())
            yield Claim("lineage: removed", item["removed"], (lines[0] - lines[1]).total())


def python(run: Run) -> Claims:
    """Figures of Python's `Study`, against pages, the terminal's JSON and the journal."""
    study = culmen.Study.open(run.path)
    status = printed_document("status", run.path)
    yield from same("Study.status", as_json(study.status), status, "best", "strategy", "state")
    yield Claim("Study.status: state", study.status.state, status["state"])
    yield from same("Study.status.best", as_json(study.status.best), status["best"])
    rows = {
        row["id"]: row for row in run.page(candidate_pages.candidates_page, limit="500")["rows"]
    }
    for each in study.candidates(limit=None):
        yield from same("Study.candidates", as_json(each), rows[each.id])
    yield Claim(
        "Study.evaluations",
        [o.score for o in study.evaluations()],
        [o.score for o in run.sums.seen],
    )
    lines = run.page(overview.overview_page)["summary"]["lines"]
    yield Claim("Study.summary", study.summary.lines[0], lines[0])


def report(run: Run) -> Claims:
    """The report's file, of which its PDF is printed, holds the pages' documents."""
    held = as_json(gather_report(run.pages).documents)
    for name, make in _HELD.items():
        yield from same(f"report: {name}", held["pages"][name], run.page(make), "path")
    table = run.page(candidate_pages.candidates_page, limit="500")
    yield from same("report: candidates", held["pages"]["candidates"], table, "limit")
    for name, shown in [*held["candidates"].items()][:3]:
        page = run.page(candidate_pages.candidate_detail_page, id=name)
        yield from same("report: candidate", shown, page)
    made = held["made"]["event"], held["made"]["state"]
    yield Claim("report: made", made, (run.sums.events[-1][0], held["pages"]["head"]["state"]))


_HELD: dict[str, Callable[[Digest, dict[str, str]], Any]] = {
    "head": overview.head_page,
    "overview": overview.overview_page,
    "factors": overview.factors_page,
    "trust": trust.trust_page,
    "calls": effects.calls_page,
    "timeline": effects.timeline_page,
    "lineage": lineage.lineage_page,
    "report": report_page,
}


def fronts(run: Run) -> Claims:
    """Members of a front on every surface, the verdict's among them."""
    front = run.page(overview.overview_page)["front"]
    if front is None:
        return
    status, best = printed_document("status", run.path), printed_document("best", run.path)
    study = culmen.Study.open(run.path)
    held = as_json(gather_report(run.pages).documents)["pages"]["overview"]["front"]
    whole = {"status": status["front"], "best": best["front"], "Study": as_json(study.front)}
    members = {name: told["members"] for name, told in [*whole.items(), ("report", held)]}
    members |= {"verdict": status["best"]["front"], "best's verdict": best["best"]["front"]}
    for where, told in whole.items():
        yield from same(
            f"{where}: front", told, front, "members", "others", "constraints", "choice", "growth"
        )
    for where, told in members.items():
        known = {each["id"]: each for each in told}
        yield Claim(
            f"{where}: members", sorted(known), sorted(each["id"] for each in front["members"])
        )
        for each in front["members"]:
            yield from same(f"{where}: member", known[each["id"]], each)
    lines = printed("status", run.path).splitlines()
    for each in front["members"]:
        line = next(line for line in lines if line.startswith(each["id"]))
        told = re.sub(r"^\w+|←.*", "", line)
        pairs = re.findall(r"([\d.e+-]+) ± ([\d.e+-]+)", told)
        for (value, margin), name in zip(pairs, each["metrics"], strict=True):
            yield Claim("line: metric", float(value), rounded(value, each["metrics"][name]))
            yield Claim("line: margin", float(margin), rounded(margin, each["margins"][name]))
        failed = each.get("failures", 0)
        yield Claim(
            "line: evaluations",
            numbers(told)[2 * len(pairs) :],
            [each["count"]] + [failed] * (failed > 0),
        )
    line = next(line for line in lines if line.startswith("front  ") and "hypervolume" in line)
    many, volume = numbers(line)
    yield Claim("line: front", many, len(front["members"]))
    yield Claim("line: volume", volume, rounded(str(volume), front["hypervolume"]))


SURFACES: list[Callable[[Run], Claims]] = [
    fronts,
    settings,
    spending,
    labels,
    best_text,
    told_again,
    python,
    report,
]


@pytest.mark.parametrize(
    "kind", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in KINDS]
)
def test_every_surface_shows_the_same_figures(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a line of a front is one line
    path = RUNS[kind](tmp_path / kind.replace(" ", "-"))
    run = Run(path, Arithmetic(path), Digest(path))
    claims = [claim for surface in SURFACES for claim in surface(run)]
    assert len(claims) > 100
    assert [claim for claim in claims if not claim.holds] == []


@pytest.mark.slow
def test_tools_of_agents_show_what_the_verbs_print(tmp_path: Path) -> None:
    path = RUNS["no final choice"](tmp_path / "run")
    tools = Tools(AllowedFolders([tmp_path]), {})
    for verb, tool in (("status", tools.status), ("best", tools.best), ("story", tools.story)):
        told = asyncio.run(tool(str(path)))
        claims = same(verb, told, printed_document(verb, path), "also", "next", "summary")
        assert [claim for claim in claims if not claim.holds] == []
