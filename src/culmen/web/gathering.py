"""What a report holds of one run: the documents of the same pages, within bounds, and what was left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from culmen.store import views
from culmen.store.views import CandidateQuery
from culmen.web.digest import Digest
from culmen.web.pages import PAGES
from culmen.web.pages.candidates import listed
from culmen.web.server import encoded

ROWS = 10_000  # lines of the table of candidates
FULL = 60  # of the best candidates with their texts
_PAGE, _CANDIDATE, _ALL = 8_000_000, 1_000_000, 24_000_000  # bytes: one page, one candidate, all of these
_TEXTS = (100_000, 20_000, 2_000, 200)  # characters that a text is cut to, until its document is small enough


class Gathered(msgspec.Struct):
    """`documents` as the front end's `Embedded` reads them; `full` candidates have their texts; `left_out` in words."""

    documents: dict[str, Any]
    candidates: int
    rows: int
    full: int
    left_out: list[str]


def gather(run: Digest, full: int = FULL, rows: int = ROWS) -> Gathered:
    """Read all pages of a run. Whole are the line to the best, the finalists, the `full` best and their parents."""
    left_out: list[str] = []
    pages = {name: make(run, {}) for name, make in PAGES.items() if name not in ("candidate", "candidates")}
    for name in ("head", "overview"):
        pages[name] |= {"path": "", "owner": None}  # of the machine it was made on
    for name, page in pages.items():
        pages[name], kept = _bounded(page, _PAGE)
        if kept:
            left_out.append(f"{name.capitalize()}: the ends of texts beyond {kept:,} characters.")
    table = _table(run, rows)
    if len(table["rows"]) < table["all"]:
        left_out.append(f"Candidates, the table: all but the best {len(table['rows']):,} of {table['all']:,}.")
    whole = _whole(run, [row["id"] for row in table["rows"][:full]], left_out)
    if len(whole) < table["all"]:
        missing = table["all"] - len(whole)
        left_out.append(f"Texts, evaluations and prompts of {missing:,} of {table['all']:,} candidates.")
    best = views.best(run.run)
    documents = {
        "run": run.name,
        "runs": _line(run),
        "pages": {**pages, "candidates": table},
        "candidates": whole,
        "names": {"best": best.id if best else "", "seed": _seed(run)},
        "made": {"time": time.time(), "event": run.last, "state": pages["head"]["state"], "left_out": left_out},
    }
    return Gathered(documents, table["all"], len(table["rows"]), len(whole), left_out)


def _table(run: Digest, rows: int) -> dict[str, Any]:
    found = [listed(each) for each in views.table(run.run, CandidateQuery(limit=rows)).rows]
    return PAGES["candidates"](run, {"limit": "1"}) | {"rows": found, "limit": rows}


def _whole(run: Digest, leaders: list[str], left_out: list[str]) -> dict[str, Any]:
    """Candidates by id, the most telling first, until `_ALL` bytes are full."""
    found: dict[str, Any] = {}
    size, cut = 0, 0
    for name in _wanted(run, leaders):
        document, kept = _bounded(PAGES["candidate"](run, {"id": name}), _CANDIDATE)
        size += len(encoded(document))
        if size > _ALL:
            left_out.append(f"Texts of candidates beyond {_ALL // 1_000_000} MB in all, the less telling ones first.")
            break
        cut += bool(kept)
        found[name] = document
    if cut:
        left_out.append(
            f"The ends of the longest texts of {cut:,} candidates, which take more than {_CANDIDATE:,} bytes each."
        )
    return found


def _wanted(run: Digest, leaders: list[str]) -> list[str]:
    """Best, seed, the line between, finalists, leaders, and the first parents of all these; nobody twice."""
    best, seed = views.best(run.run), _seed(run)
    names = [best.id] if best else []
    names += [seed] if seed else []
    names += [step.row.id for step in reversed(views.lineage(run.run, best.id))] if best else []
    names += (views.verdict(run.run) or {}).get("finalists") or []
    names += leaders
    parents = {node.id: node.parent for node in views.family(run.run)}
    names += [parents[name] for name in names if parents.get(name)]
    return [name for name in dict.fromkeys(names) if name in parents]


def _seed(run: Digest) -> str:
    seeds = views.candidates(run.run, "old", operator="seed", limit=1)
    return seeds[0].id if seeds else ""


def _line(run: Digest) -> dict[str, Any]:
    """The list of runs with this one alone, which tells the front end that there is nothing else to show."""
    return {"runs": [{"name": run.name}], "single": True, "folder": ""}


def _bounded(document: dict[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """The document with its longest texts cut until it has at most `most` bytes; to how many characters, 0 for none."""
    if len(encoded(document)) <= most:
        return document, 0
    shorter: dict[str, Any] = document
    for kept in _TEXTS:
        shorter = _cut(msgspec.to_builtins(document), lambda text, kept=kept: _shortened(text, kept))
        if len(encoded(shorter)) <= most:
            return shorter, kept
    return shorter, _TEXTS[-1]


def _cut(value: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict):
        return {name: _cut(each, cut) for name, each in value.items()}
    return [_cut(each, cut) for each in value] if isinstance(value, list | tuple) else value


def _shortened(text: str, kept: int) -> str:
    return text if len(text) <= kept else f"{text[:kept]}\n... {len(text) - kept:,} characters are not in this report"
