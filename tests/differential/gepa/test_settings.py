"""Every setting of the package has an effect, is refused by name, or changes no result."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gepa
import pytest
from gepa import optimize_anything as theirs
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import UserError
from culmen.extensions.compat import gepa as ours
from tests.differential.comparing import COMPARED, inputs

SECTIONS = {
    "engine": theirs.EngineConfig,
    "reflection": theirs.ReflectionConfig,
    "tracking": theirs.TrackingConfig,
}
SETTINGS = [(section, each.name) for section, kind in SECTIONS.items() for each in fields(kind)]
CHANGED = st.one_of(
    st.booleans(), st.integers(1, 99), st.floats(0, 9), st.text(min_size=1, max_size=5), st.none()
)


@inputs(700)
@given(st.sampled_from(SETTINGS), CHANGED)
def test_each_setting_of_a_config(setting: tuple[str, str], value: Any) -> None:
    section, name = setting
    default = SECTIONS[section]()
    config = theirs.GEPAConfig(**{section: replace(default, **{name: value})})
    COMPARED["settings: has an effect, or is named"] += 1
    is_default = value == getattr(default, name) and type(value) is type(getattr(default, name))
    try:
        kept = ours._changed_settings(config)
    except UserError as error:
        assert name in str(error) and error.fix and name not in ours._SUPPORTED
        return
    assert name in ours._HARMLESS or is_default or kept[name] == value


KEYWORDS = [
    name
    for name in inspect.signature(gepa.optimize).parameters
    if name not in ("seed_candidate", "trainset", "valset", "adapter", "task_lm", "evaluator")
]


@pytest.mark.parametrize("name", KEYWORDS)
def test_each_keyword_of_optimize_is_known(name: str) -> None:
    known = ours._SUPPORTED | ours._HARMLESS | ours._REPLACEMENTS.keys()
    assert name in known or name.partition("_")[0] in ("wandb", "mlflow", "tracking")
    default = inspect.signature(gepa.optimize).parameters[name].default
    if default not in (None, False) and name not in ours._HARMLESS | ours._SUPPORTED:
        assert ours._is_default(name, default), "its default is refused"


SCRIPT = """
import {module} as oa

ANSWERS = {{"2 + 3": "5", "4 * 6": "24", "9 - 5": "4"}}

def evaluate(candidate: dict, example: str) -> tuple:
    right = "calculate" in candidate["system"].lower()
    oa.log("asked", example)
    return float(right), {{"scores": {{"length": -float(len(candidate["system"]))}}, "Expected": ANSWERS[example]}}

result = oa.optimize_anything(
    seed_candidate={{"system": "Answer."}},
    evaluator=evaluate,
    dataset=["2 + 3", "4 * 6"],
    valset=["9 - 5"],
    objective="A prompt for arithmetic.",
    config=oa.GEPAConfig(
        engine=oa.EngineConfig(max_metric_calls=20, parallel=False, frontier_type="hybrid"),
        reflection=oa.ReflectionConfig(reflection_lm=lambda prompt: "```\\nCalculate.\\n```"),
    ),
)
print("RESULT", result.best_candidate, result.val_aggregate_scores[result.best_idx],
      result.num_val_instances, result.candidates[0], result.parents[0], result.candidates[1],
      result.parents[1], result.per_objective_best_candidates, result.val_subscores[1])
"""


def test_a_script_moves_over_by_one_line(tmp_path: Path) -> None:
    """One import line differs, and what the script reads afterwards is the same."""
    printed = []
    for module in ("gepa.optimize_anything", "culmen.gepa"):
        (tmp_path / "script.py").write_text(SCRIPT.format(module=module))
        run = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        printed += [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
    assert printed[0] == printed[1]
