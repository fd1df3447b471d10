"""The tables of docs/audit.md are complete, and the tests that they name run.

Every attack and sign of the code is in them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.extensions.audit import table

TESTS = Path(__file__).parents[1]
HOSTILE = TESTS / "extensions/agents/sandbox/test_sandbox_hostile.py"
RUNS = TESTS / "evaluate/integrity/test_integrity_runs.py"
ADMITS = "test_what_an_agent_admits_is_a_finding_of_its_candidates"


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    """The test functions of a file that are not skipped, by name."""
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: node
        for node in found
        if node.name.startswith("test_")
        and not any("skip" in ast.unparse(each) for each in node.decorator_list)
    }


def test_the_table_of_agents_has_every_hostile_test_and_no_other() -> None:
    section = table.PAGE.read_text().split("### What agents try")[1].split("\n#")[0]
    named = re.findall(r"\| `(test_\w+)` \|$", section, re.M)
    hostile = [name for name in functions_of(HOSTILE) if name.startswith("test_hostile_")]
    assert sorted(named) == sorted([*hostile, ADMITS])
    assert ADMITS in functions_of(RUNS)


def test_every_attack_has_its_row_and_its_signs() -> None:
    """Findings of audits are compared where audits run; this test needs none."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.shown().splitlines()[2:]
    ]
    assert [row[0] for row in rows] == [f"`{name}`" for name in table.names()]
    for row, name in zip(rows, table.names(), strict=True):
        assert row[-1] == (", ".join(f"`{each}`" for each in table.grave(name)) or "none")
