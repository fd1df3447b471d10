"""Each difference on purpose that a folder shows is a line of its check, and is in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.tasks.loading import load

DOCS = Path(__file__).parents[3] / "docs"
PLAIN = "def evaluate(path):\n    return {'combined_score': 1.0}\n"
STAGES = PLAIN + "evaluate_stage1 = evaluate\n"
PAIRS = "prompt:\n  island_system_messages: ['a', '']\n"
OPENEVOLVE = {  # row of the page: evaluator, config.yaml (None: none), words of the line
    "a failed evaluation": (PLAIN, None, "that fails, or returns no number"),
    "NaN and infinite scores": (PLAIN, None, "NaN or infinity, has no score"),
    "`async` evaluators": ("async " + PLAIN, None, "evaluate is async or returns a bare number"),
    "a stage or an evaluation that hangs": (STAGES, None, "a stage that hangs is a timeout"),
    "between two tries": (PLAIN, "evaluator:\n  max_retries: 2\n", "no try begins that might not"),
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
REPORTED = "an evaluator that reports a failure"
"""Told of the first program's own words, when it has run: tests/evaluate."""
SHINKA = {  # beginning of the bullet: evaluate.py's words, words of the line
    "What `correct.json`": ("", "what is not correct"),
    "`correct` has to be": ("", "or has no finite combined_score, has no score"),
    "`plotting_fn`": ("plotting_fn=f, extra_data=1, private=2", "plotting_fn is not called"),
    "Runs side by side": ("run_workers=2", "in the order of runs"),
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


@pytest.mark.parametrize("returned", ["0.7", "float(1)", "1 - 0.3", "-x", "round(x, 2)"])
def test_a_bare_number_is_told(tmp_path: Path, returned: str) -> None:
    (tmp_path / "evaluator.py").write_text(f"def evaluate(path):\n    return {returned}\n")
    (tmp_path / "initial_program.py").write_text("x = 1\n")
    lines = lines_of(tmp_path)
    assert "returns a bare number" in lines
    assert "combined_score" not in lines  # a bare number has no metrics to take the mean of


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
    known = (*OPENEVOLVE, REPORTED)
    assert all(any(row.startswith(start) for start in known) for row in rows), rows
    assert all(any(row.startswith(start) for row in rows) for start in known)
    bullets = re.findall(r"^- (.+)", section("compared.md", "ShinkaEvolve"), re.M)
    assert all(any(each.startswith(start) for start in SHINKA) for each in bullets), bullets
    assert len(bullets) == len(SHINKA)
