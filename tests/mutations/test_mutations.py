"""The tool that changes one place at a time changes that place only.

It changes nothing where nothing runs.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.__main__ import ROOT, SOURCE, explained, files_for, modules, report, told
from tests.mutations.__main__ import _name as name
from tests.mutations.loaded import changed_function, spans
from tests.mutations.places import Place, mutated, places_of

TEXT = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from a import b
def f(x: list[int] = 3) -> "1 < 2":
    if x < 1 and not x:
        g(x)
    return x * 2.0
"""


def test_every_place_gives_another_program_and_only_there() -> None:
    plain = ast.unparse(ast.parse(TEXT))
    changed = [ast.unparse(mutated(TEXT, place)) for place in places_of(TEXT)]
    assert {place.change for place in places_of(TEXT)} == {
        "3->4",
        "condition negated",
        "And->Or",
        "Lt->LtE",
        "1->2",
        "call left out",
        "Mult->Div",
        "2.0->4.0",
    }
    assert plain not in changed and len(set(changed)) == len(changed)
    for text in changed:
        assert (
            sum(
                one != other
                for one, other in zip(plain.splitlines(), text.splitlines(), strict=True)
            )
            == 1
        )


@pytest.mark.slow
def test_every_module_that_is_tried_has_tests() -> None:
    lonely = [
        module
        for module in modules([])
        if places_of(module.read_text()) and not files_for(module, False)
    ]
    assert not lonely


def test_what_is_explained_is_still_there() -> None:
    """Otherwise an explanation would stand for a line that was never looked at."""
    known = explained()
    there = {
        told(SOURCE / module, place)
        for module in {of for of, _ in known}
        for place in _places(module)
    }
    assert known <= there


def test_a_report_tells_what_survived_but_for_what_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.mutations.__main__.EXPLAINED", tmp_path)
    module, places = SOURCE / "strategies" / "best_of_n.py", _places("strategies/best_of_n.py")
    results = ["survived", "survived", *("noticed" for _ in places[2:])]
    rows = [
        {"name": name(module, place), "result": result}
        for place, result in zip(places, results, strict=True)
    ]
    first, second = told(module, places[0]), told(module, places[1])
    (tmp_path / "strategies.toml").write_text(
        f'[["{first[0]}"]]\nwhy = "x"\nchanges = [{json.dumps(first[1])}]\n'
    )
    report(rows[:-1], ["strategies/best_of_n.py"])
    assert capsys.readouterr().out.splitlines() == [
        f"{second[0]}:{places[1].line}  {second[1]}  ",
        f"{second[0]}: 1 explained, 1 not tried, {len(places) - 3} noticed, 1 survived",
        f"together: 1 explained, 1 not tried, {len(places) - 3} noticed, 1 survived",
    ]


def _places(module: str) -> list[Place]:
    return places_of((SOURCE / module).read_text())


TRIAL = """
import sys
from tests.mutations.__main__ import ROOT, SOURCE, tried
from tests.mutations.places import places_of
module = SOURCE / "strategies" / "memory" / "gain.py"
place = next((place for place in places_of(module.read_text()) if place.change == sys.argv[1]), None)
print(tried(module, place, [ROOT / "tests" / "strategies" / "memory" / "test_memory_gain.py"], 100.0))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("change", "result"), [("condition negated", "noticed"), ("", "survived")])
def test_a_trial_tells_whether_a_test_notices(change: str, result: str) -> None:
    trial = subprocess.run(
        [sys.executable, "-c", TRIAL, change], cwd=ROOT, capture_output=True, text=True
    )
    assert trial.stdout.split() == [result], trial.stderr


def test_what_runs_as_a_module_is_loaded_is_told_from_what_a_function_does(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        TEXT + "class C:\n    n = 7\n    def m(self):\n        return [8 for _ in self]\nN = 9\n"
    )
    named: dict[str, str] = {}
    for place in places_of(module.read_text()):
        code = changed_function(module, place)
        named[place.change] = code.co_qualname if code else "loading"
    assert named == {
        "3->4": "loading",
        "condition negated": "f",
        "And->Or": "f",
        "Lt->LtE": "f",
        "1->2": "f",
        "call left out": "f",
        "Mult->Div": "f",
        "2.0->4.0": "f",
        "7->8": "loading",
        "8->9": "C.m",
        "9->10": "loading",
    }


def test_a_statement_spans_its_lines_and_a_compound_one_its_head() -> None:
    tree = ast.parse(
        "def f(x=0):\n    if x and (\n        x > 1\n    ):\n        return (\n            2)\n"
    )
    found = spans(tree)
    lines = {
        node.value: found.get(n)
        for n, node in enumerate(ast.walk(tree))
        if isinstance(node, ast.Constant)
    }
    assert lines == {0: None, 1: {2, 3, 4}, 2: {5, 6}}


IN_PLACE = """
import sys
from pathlib import Path
from tests.mutations.__main__ import main
sys.argv = ["mutations", "--out", sys.argv[1], "--modules", "strategies/memory/gain.py", "--sample", "6"]
main()
"""


@pytest.mark.slow
def test_trials_go_on_where_they_were_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "trials.jsonl"

    def run() -> list[str]:
        trial = subprocess.run(
            [sys.executable, "-c", IN_PLACE, str(out)], cwd=ROOT, capture_output=True, text=True
        )
        assert trial.returncode == 0, trial.stderr
        return out.read_text().splitlines()

    rows = [json.loads(row) for row in run()]
    assert len(rows) == 6 and {row["result"] for row in rows} <= {
        "noticed",
        "survived",
        "not executed",
        "hangs",
    }
    assert any(row["by"].startswith("tests/") for row in rows if row["result"] == "noticed")
    out.write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    assert {json.loads(row)["name"] for row in run()} == {row["name"] for row in rows}
