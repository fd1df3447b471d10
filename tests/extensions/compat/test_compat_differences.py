"""Each difference on purpose that a folder shows is a line of its check, and is in the docs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.core.errors import TaskError
from culmen.evaluate.check import check_task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.compat import inspect_task
from culmen.extensions.compat.gepa_evaluators import DIFFERENCES, BatchJudge, FunctionJudge
from culmen.extensions.importers import llm4ad
from culmen.run.options import function_task
from culmen.tasks.loading import load

DOCS = Path(__file__).parents[3] / "docs"
PLAIN = "def evaluate(path):\n    return {'combined_score': 1.0}\n"
STAGES = PLAIN + "evaluate_stage1 = evaluate\n"
PAIRS = "prompt:\n  island_system_messages: ['a', '']\n"
OPENEVOLVE = {  # row of the page: evaluator, config.yaml (None: none), words of the line
    "a failed evaluation": (PLAIN, None, "that fails, or returns no number"),
    "NaN and infinite scores": (PLAIN, None, "NaN or infinity, has no score"),
    "a stage or an evaluation that hangs": (STAGES, None, "a stage that hangs is a timeout"),
    "between two tries": (
        PLAIN,
        "evaluator:\n  cascade_evaluation: false\n",
        "no try begins that might not",
    ),
    "an empty `config.yaml`": (PLAIN, "", "config.yaml is empty and counts as none"),
    "values that are not finite": (
        STAGES,
        "evaluator:\n  cascade_thresholds: []\n",
        "cascade_thresholds is empty",
    ),
    "`use_llm_feedback`": (PLAIN, "evaluator:\n  use_llm_feedback: true\n", "use_llm_feedback is"),
    "`enforce_evolve_blocks`": (PLAIN, "enforce_evolve_blocks: true\n", "a reply that changes"),
    "edits that fit nowhere": (PLAIN, "random_seed: 1\n", "an edit that fits nowhere"),
    "a line `=======`": (PLAIN, "random_seed: 1\n", "a line ======= outside of edits is text"),
    "`island_system_messages: [": (PLAIN, PAIRS, "an empty text in island_system_messages"),
}
REPORTED = ("an evaluator that reports a failure", "`async` evaluators")
"""Told of the first program's own answer, when it has run: tests/evaluate, and below."""
SHINKA = {  # beginning of the bullet: evaluate.py's words, words of the line
    "What `correct.json`": ("", "what is not correct"),
    "`correct` has to be": ("", "or has no finite combined_score, has no score"),
    "`plotting_fn`": ("plotting_fn=f, extra_data=1, private=2", "plotting_fn is not called"),
    "Runs side by side": ("run_workers=2", "in the order of runs"),
    "An edit of a reply": ("", "an edit fits whole lines in one place"),
    "Methods of early stopping": ("early_stop_method='ci'", "named methods of early stopping"),
}


def lines_of(folder: Path) -> str:
    """Notes of a folder's check before it runs, or the reason of its refusal."""
    try:
        return "\n".join(load(folder).notes)
    except TaskError as error:
        return error.what


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("row", OPENEVOLVE)
def test_a_difference_of_openevolve_is_told(tmp_path: Path, row: str) -> None:
    evaluator, config, words = OPENEVOLVE[row]
    (tmp_path / "evaluator.py").write_text(evaluator)
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    assert words in lines_of(tmp_path)


def test_a_plain_folder_of_openevolve_is_told_of_failures_alone(tmp_path: Path) -> None:
    inner = "def evaluate(path):\n    def one():\n        return 1.0\n"
    (tmp_path / "evaluator.py").write_text(inner + "    return {'combined_score': one()}\n")
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    (line,) = load(tmp_path).notes
    assert line.startswith("an evaluation that fails")


OWN_CLASS = "from types import SimpleNamespace as Own\n"


@pytest.mark.parametrize(
    ("evaluator", "kind"),
    [
        ("def evaluate(path):\n    score = 0.7\n    return score\n", "float"),
        (f"async {PLAIN}", "coroutine"),
        ("def evaluate(path):\n    return 0.7, {'why': 'text'}\n", "tuple"),
        (OWN_CLASS + "def evaluate(path):\n    return Own(metrics={'a': 0.7})\n", "Namespace"),
        (
            "class EvaluationResult:\n    metrics = {'a': 0.7}\n\n"
            "def evaluate(path):\n    return EvaluationResult()\n",
            "EvaluationResult",
        ),
    ],
)
def test_an_answer_that_openevolve_counts_as_0_is_told(
    tmp_path: Path, evaluator: str, kind: str
) -> None:
    (tmp_path / "evaluator.py").write_text(evaluator)
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    task = load(tmp_path)
    report = asyncio.run(check_task(task, LocalBackend(task, 1), 1))
    (told,) = (each.what for each in report.findings if "its score counts, but" in each.what)
    assert kind in told and report.seeds[0].mean is not None


def test_a_number_named_artifacts_counts_as_a_metric(tmp_path: Path) -> None:
    answer = "{'accuracy': 0.8, 'artifacts': 3.0}"
    (tmp_path / "evaluator.py").write_text(f"def evaluate(path):\n    return {answer}\n")
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    task = load(tmp_path)
    report = asyncio.run(check_task(task, LocalBackend(task, 1), 1))
    assert report.seeds[0].mean == pytest.approx(1.9)


@pytest.mark.parametrize(("cascade", "score"), [("true", None), ("false", 0.5)])
def test_an_evaluation_that_raises_is_tried_again_outside_of_cascades(
    tmp_path: Path, cascade: str, score: float | None
) -> None:
    body = "    N.append(1)\n    return {'a': 0.5} if N[1:] else 1 / 0\n"
    (tmp_path / "evaluator.py").write_text(f"N = []\ndef evaluate(path):\n{body}")
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    (tmp_path / "config.yaml").write_text(f"evaluator:\n  cascade_evaluation: {cascade}\n")
    task = load(tmp_path)
    assert asyncio.run(check_task(task, LocalBackend(task, 1), 1)).seeds[0].mean == score


@pytest.mark.parametrize("answer", ["{'a': 10**400, 'b': 0.4}", "{'combined_score': [0.5]}"])
def test_an_answer_without_a_usable_number_has_no_score(tmp_path: Path, answer: str) -> None:
    text = f"import numpy as np\ndef evaluate(path):\n    return {answer}\n"
    (tmp_path / "evaluator.py").write_text(text.replace("[0.5]", "np.array([0.5])"))
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    task = load(tmp_path)
    assert asyncio.run(check_task(task, LocalBackend(task, 1), 1)).seeds[0].mean is None


INSPECT = (
    "from culmen import InspectEvaluator\nscore = InspectEvaluator('t.py@t', model='m').score\n"
)
TOML = "[evaluator]\nentry = ''\n[seed.parts]\nsystem = 'x'\n"


def test_differences_of_inspect_are_told(tmp_path: Path) -> None:
    (tmp_path / "evaluator.py").write_text(INSPECT)
    (tmp_path / "task.toml").write_text(TOML)
    told = lines_of(tmp_path)
    assert all(line in told for line in inspect_task.DIFFERENCES)


def test_differences_of_llm4ad_are_told(tmp_path: Path) -> None:
    (tmp_path / "evaluator.py").write_text(
        llm4ad.EVALUATOR.format(name="n", package="p", siblings="")
    )
    (tmp_path / "program.py").write_text("def f(x):\n    return x\n")
    form = "[evaluator]\nform = 'serve'\nentry = 'f'\n[seed]\nfiles = ['program.py']\n"
    (tmp_path / "task.toml").write_text(form)
    told = lines_of(tmp_path)
    assert all(line in told for line in llm4ad.DIFFERENCES)


def test_a_folder_of_skydiscover_is_told_of_skydiscover(tmp_path: Path) -> None:
    (tmp_path / "evaluator").mkdir()
    (tmp_path / "evaluator" / "evaluator.py").write_text(STAGES)
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    told = lines_of(tmp_path)
    assert "SkyDiscover keeps earlier metrics" in told and "OpenEvolve" not in told


def test_keys_of_skydiscover_have_their_effect_and_those_of_openevolve_none(tmp_path: Path) -> None:
    (tmp_path / "evaluator").mkdir()
    (tmp_path / "evaluator" / "evaluator.py").write_text(PLAIN)
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    (tmp_path / "words.txt").write_text("You write Python.")
    (tmp_path / "config.yaml").write_text(
        "max_solution_length: 77\ndiff_based_generation: false\nmax_code_length: 9\n"
        "enforce_evolve_blocks: true\nprompt:\n  system_message: words.txt\n"
    )
    task = load(tmp_path)
    assert (task.surface.max_chars, task.surface.markers) == (77, "optional")
    assert task.system == "You write Python."
    assert task.defaults.settings_of["openevolve"]["format"] == "rewrite"
    assert "without effect here: max_code_length, enforce_evolve_blocks" in "\n".join(task.notes)


@pytest.mark.parametrize("judge", [FunctionJudge, BatchJudge])
def test_differences_of_gepa_are_notes_of_a_check_and_of_a_run(judge: Any) -> None:
    task = function_task("x", (), "", "max", "t", None, None, judge(lambda c: 1.0, {}))
    assert task.notes == DIFFERENCES


def test_a_run_shows_the_notes_of_its_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    judge = FunctionJudge(lambda candidate: float(len(candidate)), {})
    culmen.optimize("x = 1\n", judge, budget=2, run_dir=tmp_path / "run")
    assert all(f"note: {line}" in "".join(capfd.readouterr()) for line in DIFFERENCES[:1])


@pytest.mark.parametrize("bullet", SHINKA)
def test_a_difference_of_shinka_is_told(tmp_path: Path, bullet: str) -> None:
    given, words = SHINKA[bullet]
    body = f"def main(program_path, results_dir):\n    run_shinka_eval({given})\n"
    (tmp_path / "evaluate.py").write_text(f"from shinka.core import run_shinka_eval\n{body}")
    (tmp_path / "initial.py").write_text("x = 1\n")
    assert words in lines_of(tmp_path)


def test_the_pages_name_these_differences_and_no_others() -> None:
    rows = re.findall(r"^\| (.+?) \|", section("coming_from/openevolve.md", "Compared with"), re.M)
    rows = rows[rows.index("OpenEvolve") + 1 :]
    known = (*OPENEVOLVE, *REPORTED)
    assert all(any(row.startswith(start) for start in known) for row in rows), rows
    assert all(any(row.startswith(start) for row in rows) for start in known)
    bullets = re.findall(r"^- (.+)", section("compared.md", "ShinkaEvolve"), re.M)
    assert all(any(each.startswith(start) for start in SHINKA) for each in bullets), bullets
    assert len(bullets) == len(SHINKA)
