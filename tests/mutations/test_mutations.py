"""The tool that changes one place at a time changes that place, and nothing where nothing runs."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.mutations.__main__ import ROOT, files_for, modules
from tests.mutations.places import mutated, places_of

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
        "3->4", "condition negated", "And->Or", "Lt->LtE", "1->2", "call left out", "Mult->Div", "2.0->4.0",
    }  # fmt: skip
    assert plain not in changed and len(set(changed)) == len(changed)
    for text in changed:
        assert sum(one != other for one, other in zip(plain.splitlines(), text.splitlines(), strict=True)) == 1


def test_every_module_that_is_tried_has_tests() -> None:
    lonely = [module for module in modules([]) if places_of(module.read_text()) and not files_for(module, False)]
    assert not lonely


TRIAL = """
import sys
from tests.mutations.__main__ import ROOT, SOURCE, tried
from tests.mutations.places import places_of
module = SOURCE / "memory" / "gain.py"
place = next((place for place in places_of(module.read_text()) if place.change == sys.argv[1]), None)
print(tried(module, place, [ROOT / "tests" / "memory" / "test_memory_gain.py"], 100.0))
"""


@pytest.mark.parametrize(("change", "result"), [("condition negated", "noticed"), ("", "survived")])
def test_a_trial_tells_whether_a_test_notices(change: str, result: str) -> None:
    trial = subprocess.run([sys.executable, "-c", TRIAL, change], cwd=ROOT, capture_output=True, text=True)
    assert trial.stdout.split() == [result], trial.stderr
