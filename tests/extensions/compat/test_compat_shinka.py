"""ShinkaEvolve's folders as they are: loaded, and scored apart from the program.

Also folders that break their contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.compat.shinka_process import STANDINS
from culmen.run.pools import load_pool, pool_label
from culmen.tasks import load

EVALUATE = """
from shinka.core import run_shinka_eval

def validate(result):
    return (result[1] >= 0, "negative") if isinstance(result, tuple) else (False, "no pair")

def aggregate(results):
    return {"combined_score": float(sum(r[1] for r in results)), "public": {"runs": len(results), "shown": "a text"},
            "private": {"hidden": 7.0}, "extra_data": {"raw": results}, "text_feedback": "said of the runs"}

def main(program_path, results_dir):
    run_shinka_eval(program_path=program_path, results_dir=results_dir, experiment_fn_name="run_experiment",
                    num_runs=3, run_workers=WORKERS, get_experiment_kwargs=lambda i: {"factor": i + 1},
                    validate_fn=validate, aggregate_metrics_fn=aggregate)
"""
INITIAL = """
# EVOLVE-BLOCK-START
def value():
    return 2.0
# EVOLVE-BLOCK-END

def run_experiment(factor):
    return "pair", factor * value()
"""
FORGED = """
import json, os, pathlib, sys, tempfile
GOOD = {"metrics.json": {"combined_score": 1e9}, "correct.json": {"correct": True, "error": None}}
def everywhere():
    for root in (".", "/tmp", "/w", tempfile.gettempdir(), os.path.dirname(__file__), *sys.path):
        for place in (pathlib.Path(root), *pathlib.Path(root).glob("results*")):
            for name, text in GOOD.items():
                try:
                    (place / name).write_text(json.dumps(text))
                except OSError:
                    pass
everywhere()
json.dump = lambda *a, **k: everywhere()
def run_experiment(factor):
    everywhere()
    return "pair", -1.0
"""
SCRIPT = """
import argparse, json, os, runpy
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path"); parser.add_argument("--results_dir")
    given = parser.parse_args()
    value = runpy.run_path(given.program_path)["run_experiment"](1)[1]
    json.dump({"combined_score": value}, open(os.path.join(given.results_dir, "metrics.json"), "w"))
    json.dump({"correct": True}, open(os.path.join(given.results_dir, "correct.json"), "w"))
"""
pytestmark = pytest.mark.jail


def write(folder: Path, **files: str) -> Path:
    """Files into a folder; `__` in a name stands for the dot."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def folder(tmp_path: Path, evaluate: str = EVALUATE, workers: int = 1, **more: str) -> Path:
    return write(
        tmp_path,
        evaluate__py=evaluate.replace("WORKERS", str(workers)),
        initial__py=INITIAL,
        **more,
    )


def seen(task: Task, *programs: str, seconds: float = 60.0) -> list[Observation]:
    """Evaluations of the initial program and of others, by one backend."""
    task = msgspec.structs.replace(
        task, limits=msgspec.structs.replace(task.limits, seconds=seconds)
    )

    async def work() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            tried = [
                *task.initial_candidates(),
                *(Candidate.of({"initial.py": text}) for text in programs),
            ]
            return [await backend.evaluate(candidate, None, 0) for candidate in tried]
        finally:
            await backend.close()

    return asyncio.run(work())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_runs_as_it_is_and_is_scored_apart(tmp_path: Path, workers: int) -> None:
    place = folder(
        tmp_path, workers=workers, shinka_small__yaml="evo_config: {}", run_evo__py="import shinka"
    )
    task = load(place)
    assert task.surface.markers == "enforced" and task.evaluator.files.keys() == {"evaluate.py"}
    assert any("no effect here: run_evo.py, shinka_small.yaml" in note for note in task.notes)
    assert any("extra_data is not kept" in note for note in task.notes)
    (first,) = seen(task)
    assert (first.status, first.score, first.trust) == (Status.OK, 12.0, "proxied"), first
    assert first.metrics["runs"] == 3.0 and first.metrics["num_valid_runs"] == 3.0
    assert first.artifacts["shown"] == "a text" and "said of the runs" in first.feedback
    assert "hidden" not in repr(first)


def test_its_evaluator_alone_names_the_same_task(tmp_path: Path) -> None:
    place = folder(tmp_path)
    assert load(place / "evaluate.py") == load(place)


def test_a_task_toml_can_name_such_an_evaluator_and_set_its_limits(tmp_path: Path) -> None:
    toml = (
        '[seed]\nfiles = ["initial.py"]\n[evaluator]\nfile = "evaluate.py"\n[limits]\nseconds = 7\n'
    )
    task = load(folder(tmp_path, task__toml=toml))
    assert task.limits.seconds == 7 and seen(task)[0].score == 12.0


def test_keys_of_its_runner_have_their_effect_or_are_named(tmp_path: Path) -> None:
    settings = (
        "evo_config: {task_sys_msg: Fit., num_generations: 9}\ndb: {num_islands: 7}\n"
        "job: {time: 00:10:05}\nverbose: true\n"
    )
    place = folder(tmp_path, shinka__yaml=settings)
    task = load(place)
    assert (task.system, task.limits.seconds) == ("Fit.", 605)
    listed = "evo.num_generations, db.num_islands"
    assert f"shinka.yaml: keys without effect here: {listed}" in task.notes
    (place / "large.yaml").write_text(settings)  # a variant: none is chosen
    task = load(place)
    files = "settings of ShinkaEvolve's runner have no effect here: large.yaml, shinka.yaml"
    assert task.system == "" and files in task.notes
    (place / "large.yaml").unlink()
    for job, words in (
        ("extra_cmd_args: {n: 3}", "without other arguments"),
        ("time: soon", "'soon'"),
    ):
        (place / "shinka.yaml").write_text(f"job: {{{job}}}\n")
        with pytest.raises(TaskError, match=words):
            load(place)


def test_forged_results_count_for_nothing(tmp_path: Path) -> None:
    first, forged = seen(load(folder(tmp_path)), FORGED)
    assert first.score == 12.0
    assert (forged.status, forged.score) == (
        Status.INVALID,
        None,
    ) and "Validation failed: negative" in forged.feedback


def test_a_program_that_raises_or_lies_about_types_is_invalid(tmp_path: Path) -> None:
    raises = "def run_experiment(factor):\n    raise RuntimeError('no way')\n"
    foreign = "class Big:\n    def __ge__(self, other): return True\n    def __float__(self): return 1e9\n"
    foreign += "def run_experiment(factor):\n    return 'pair', Big()\n"
    _, first, second = seen(load(folder(tmp_path)), raises, foreign)
    assert first.status is Status.INVALID and "no way" in first.feedback
    assert second.status is Status.INVALID and second.score is None


@pytest.mark.parametrize(("call", "score"), [("", 2.0), (", given.runs", 10.0), ("*", 10.0)])
def test_a_script_that_gives_main_more_runs_as_a_script(
    tmp_path: Path, call: str, score: float
) -> None:
    arguments = "**vars(given)" if call == "*" else f"given.program_path, given.results_dir{call}"
    evaluate = SCRIPT.partition("if __name__")[0] + (
        "def main(program_path, results_dir, runs=1):\n"
        "    value = runpy.run_path(program_path)['run_experiment'](runs)[1]\n"
        "    for name, found in (('metrics', {'combined_score': value}), ('correct', {'correct': True})):\n"
        "        json.dump(found, open(os.path.join(results_dir, name + '.json'), 'w'))\n"
        "if __name__ == '__main__':\n"
        "    parser = argparse.ArgumentParser()\n"
        "    for name in ('program_path', 'results_dir'):\n"
        "        parser.add_argument('--' + name)\n"
        "    parser.add_argument('--runs', type=int, default=5)\n"
        "    given = parser.parse_args()\n"
        f"    main({arguments})\n"
    )
    (first,) = seen(load(folder(tmp_path, evaluate)))
    assert first.score == score


def test_an_evaluator_that_is_only_a_script(tmp_path: Path) -> None:
    (first,) = seen(load(folder(tmp_path, SCRIPT)))
    assert (first.score, first.trust) == (2.0, "proxied")


HEAD = "import json, os\ndef main(program_path, results_dir):\n"
IMPORT = "    import runpy; runpy.run_path(program_path)\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    pass\n", ("without a correct.json", "ShinkaEvolve's contract")),
        (
            "    open(results_dir + '/correct.json', 'w').write('[1]')\n",
            ("holds a list, not an object", "contract"),
        ),
        (
            "    open(results_dir + '/correct.json', 'w').write('{\"correct\": 1}')\n"
            "    open(results_dir + '/metrics.json', 'w').write('{}')\n",
            ("neither true nor false",),
        ),
        (
            "    json.dump({'correct': True}, open(results_dir + '/correct.json', 'w'))\n"
            "    json.dump({'combined_score': [1]}, open(results_dir + '/metrics.json', 'w'))\n",
            ("not a number",),
        ),
        (
            "    json.dump({'correct': True}, open(results_dir + '/correct.json', 'w'))\n"
            "    open(results_dir + '/metrics.json', 'w').write('x' * (17 << 20))\n",
            ("larger than",),
        ),
        ("    open(os.path.join(os.path.dirname(__file__), 'left.txt'), 'w')\n", ("left.txt",)),
    ],
)
def test_an_evaluator_that_breaks_the_contract_hears_of_it(
    tmp_path: Path, body: str, words: tuple[str, ...]
) -> None:
    place = folder(tmp_path, HEAD + IMPORT + body)
    (first,) = seen(load(place))
    assert first.score is None and all(word in first.feedback for word in words), first
    assert sorted(path.name for path in place.iterdir()) == ["evaluate.py", "initial.py"]


def test_metrics_without_a_score_count_zero_and_say_so(tmp_path: Path) -> None:
    body = (
        "    json.dump({'correct': True}, open(results_dir + '/correct.json', 'w'))\n"
        "    json.dump({'score': 1}, open(results_dir + '/metrics.json', 'w'))\n"
    )
    (first,) = seen(load(folder(tmp_path, HEAD + IMPORT + body)))
    assert (first.status, first.score) == (Status.OK, 0.0)
    assert "no combined_score: it counts 0" in first.feedback + str(first.artifacts)


STOPPED = """
from shinka.core import run_shinka_eval

class Method:
    name = "after two"
    def reset(self):
        pass
    def check(self, scores, threshold):
        from types import SimpleNamespace
        stops = len(scores) > 1
        return SimpleNamespace(should_stop=stops, prediction="fails", confidence=0.5, reason="two")

def score_of(result):
    if RAISES:
        raise ValueError("no score")
    return result[1]

def main(program_path, results_dir):
    run_shinka_eval(program_path, results_dir, "run_experiment", 3,
                    get_experiment_kwargs=lambda i: {"factor": i + 1},
                    aggregate_metrics_fn=lambda results: {"combined_score": float(len(results))},
                    early_stop_method=Method(), early_stop_threshold=1.0,
                    early_stop_score_fn=score_of)
"""


@pytest.mark.parametrize(("raises", "runs"), [("True", 3.0), ("False", 2.0)])
def test_a_raising_score_for_early_stopping_stops_nothing(
    tmp_path: Path, raises: str, runs: float
) -> None:
    (first,) = seen(load(folder(tmp_path, STOPPED.replace("RAISES", raises))))
    assert (first.status, first.score) == (Status.OK, runs), first


@pytest.mark.slow
def test_an_evaluator_that_hangs_or_prints_megabytes_costs_one_evaluation(tmp_path: Path) -> None:
    hangs = HEAD + "    print('x' * (5 << 20))\n    while True: pass\n"
    (first,) = seen(load(folder(tmp_path, hangs)), seconds=2.0)
    assert first.status is Status.TIMEOUT and len(first.feedback) < 10_000


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"evaluate__py": "def score(): pass\n", "initial__py": ""},
            ("no main", "main(program_path, results_dir)"),
        ),
        (
            {"evaluate__py": EVALUATE, "initial__py": "", "initial__go": ""},
            ("initial.go, initial.py", "task.toml"),
        ),
        (
            {"evaluate__py": EVALUATE, "initial__py": "# EVOLVE-BLOCK-START\n"},
            ("initial.py:1", "EVOLVE-BLOCK-END"),
        ),
    ],
)
def test_what_cannot_run_names_the_smallest_change(
    tmp_path: Path, files: dict[str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(TaskError) as caught:
        load(write(tmp_path, **files))
    assert all(word in str(caught.value) for word in words), caught.value


def results_folder(place: Path, rows: list[tuple[str, str, float | None, int]]) -> Path:
    """A folder with the columns of ShinkaEvolve's database that count here."""
    place.mkdir()
    with contextlib.closing(sqlite3.connect(place / "programs.sqlite")) as database:
        database.execute(
            "CREATE TABLE programs (id TEXT, code TEXT, language TEXT, generation INTEGER, "
            "combined_score REAL, correct BOOLEAN)"
        )
        for number, row in enumerate(rows):
            database.execute(
                "INSERT INTO programs (id, generation, code, language, combined_score, correct) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (str(number), number, *row),
            )
        database.commit()
    return place


def test_a_folder_of_results_is_a_pool(tmp_path: Path) -> None:
    rows = [
        ("a = 1", "python", 1.0, 1),
        ("a = 2", "python", 3.0, 1),
        ("a = 3", "python", 9.0, 0),
        ("a = 4", "python", None, 1),
    ]
    place = results_folder(tmp_path / "results", rows)
    for path in (place, place / "programs.sqlite"):
        pool = load_pool(path)
        assert [(m.parts, m.score) for m in pool.members] == [
            ({"initial.py": "a = 2"}, 3.0),
            ({"initial.py": "a = 1"}, 1.0),
        ]
    assert pool_label(place).startswith("results ")
    (place / "programs.sqlite").write_bytes(b"no database of any program" * 50)
    with pytest.raises(UserError, match="no database of ShinkaEvolve"):
        load_pool(place)


# -- the package itself: an environment that has it, and beside it the sources that it was built
# from ---------------

PACKAGE = os.environ.get("CULMEN_TEST_SHINKA", "")


def test_the_packages_own_tests_of_run_shinka_eval_pass_with_the_stand_in() -> None:
    tests = Path(PACKAGE, "sources", "tests", "test_wrap_eval_parallel.py")
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tests.parent)]
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    environment = {**os.environ, "PYTHONPATH": STANDINS}
    run = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and "4 passed" in run.stdout, run.stdout + run.stderr


def test_the_example_of_its_readme_runs_once_its_gaps_are_filled(tmp_path: Path) -> None:
    text = Path(PACKAGE, "sources", "README.md").read_text(encoding="utf-8")
    blocks = [piece.partition("```")[0] for piece in text.split("```python\n")[1:]]
    evaluate = next(block for block in blocks if "run_shinka_eval" in block).replace("{...}", "{}")
    initial = next(block for block in blocks if "EVOLVE-BLOCK-START" in block)
    check = "def validate_fn(result):\n    return True, None\n\n"  # used there, and not shown
    write(
        tmp_path,
        evaluate__py=check + evaluate,
        initial__py=initial.replace("return solution\n#", "return 4\n#"),
    )
    (first,) = seen(load(tmp_path))
    assert (first.score, first.trust, first.feedback) == (4.0, "proxied", "text_feedback: 4"), first


def test_both_implementations_write_the_same(tmp_path: Path) -> None:
    place = folder(
        tmp_path, EVALUATE + "\nimport sys\nif __name__ == '__main__':\n    main(*sys.argv[1:])\n"
    )
    written = []
    for python, path in ((sys.executable, STANDINS), (str(Path(PACKAGE, "bin", "python")), "")):
        results = tmp_path / f"results{len(written)}"
        command = [python, str(place / "evaluate.py"), str(place / "initial.py"), str(results)]
        run = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        metrics, correct = (
            json.loads((results / f"{name}.json").read_text()) for name in ("metrics", "correct")
        )
        written.append(
            ({name: value for name, value in metrics.items() if "time" not in name}, correct)
        )
    assert written[0] == written[1] and (tmp_path / "results0" / "extra.pkl").is_file()


if not PACKAGE:  # asked for by name: elsewhere they are no tests that are skipped
    del (
        test_the_packages_own_tests_of_run_shinka_eval_pass_with_the_stand_in,
        test_the_example_of_its_readme_runs_once_its_gaps_are_filled,
        test_both_implementations_write_the_same,
    )
