"""The table of attacks in docs/audit.md: python -m tests.extensions.audit.table --write

It is made of the findings of a real audit. Nothing in it is written by hand: names from
`audit.attacks`, signs from scanning each attack's own code, and what came of it from audits of
the same evaluator behind three contracts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.evaluate.integrity import signs
from culmen.extensions.audit import AuditReport
from culmen.extensions.audit.attack import all_attacks
from culmen.tasks import load
from tests.extensions.audit.worlds import PACK, audited, old, packing

PAGE = Path(__file__).parents[3] / "docs" / "audit.md"
BEGIN, END = "<!-- attacks -->\n", "<!-- end of attacks -->\n"
SAID = {"gamed": "**gamed**", "effect": "**effect**", "skipped": "skipped"}


def three(top: Path) -> dict[str, AuditReport]:
    """The same packing behind three contracts.

    They are a program of its own, a proxy, and one shared process.
    """
    task = load(old(top / "old"))
    shared = msgspec.structs.replace(
        task, evaluator=msgspec.structs.replace(task.evaluator, proxy="never")
    )
    return {
        "call": audited(load(packing(top / "call"))),
        "proxied": audited(task),
        "shared": audited(shared),
    }


def names() -> list[str]:
    """All attacks of an audit, in the order of their names."""
    return sorted(
        [name for name, attack in all_attacks().items() if not attack.internal]
        + ["tolerance", "tightened"]
    )


def grave(name: str) -> list[str]:
    """The grave signs that an attack's own code shows."""
    if name not in all_attacks():
        return []
    task = load(Path(__file__).parents[3] / "src/culmen/extensions/builtin/circle_packing")
    text = {"pack.py": f"{PACK}\n{all_attacks()[name].code}"}
    return sorted(
        {s.name for s in signs.of_parts(text, task, signs.ScanContext.from_task(task)) if s.grave}
    )


def weak() -> set[str]:
    """The attacks for which the tests have an evaluator that falls for it."""
    from tests.extensions.audit.test_audit_battery import WEAK

    return {*WEAK, "cheap"}  # the latter is tried on a task with a metric


def row(name: str, reports: Mapping[str, AuditReport]) -> str:
    """One attack: what came of it under the three contracts, and its signs."""
    results = {key: {o.name: o for o in report.outcomes} for key, report in reports.items()}
    cells = []
    for key in ("shared", "proxied", "call"):
        outcome = results[key].get(name)
        if outcome is None:
            cells.append("not asked")
        elif outcome.result == "gamed" and key == "call":
            cells.append("**certified**" if outcome.false else "gamed; the certified value is not")
        else:
            cells.append(SAID.get(outcome.result, "nothing"))
    cells.append("**gamed**" if name in weak() else "")
    found = ", ".join(f"`{each}`" for each in grave(name)) or "none"
    return f"| `{name}` | {' | '.join(cells)} | {found} |\n"


def table(reports: Mapping[str, AuditReport]) -> str:
    """The whole table in Markdown."""
    titles = (
        "attack",
        "one process, no verifier",
        "proxy, no verifier",
        "`score(output)`, verifier",
        "an evaluator made weak for it",
        "grave signs of its text",
    )
    return f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n" + "".join(
        row(name, reports) for name in names()
    )


def shown() -> str:
    """The table that the page has."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = table(three(Path(folder)))
    if "--write" in sys.argv:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + made + END + rest.split(END)[1])
    print(made)
