"""Loading task folders: the forms that are understood.

Every mistake is named with its place and its remedy.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.core.options import BackendChoice, Needs, TaskDefaults, setting_texts
from culmen.core.usage import Budget
from culmen.tasks import load, write_new

EVALUATOR = "def score(output):\n    return float(output)\n"
OPAQUE = "def score(output):\n    return judge(output)\n"  # what it asks for cannot be seen
PROGRAM = "def run():\n    return 1.0\n"


def write(folder: Path, **files: str) -> Path:
    """Files by name; `__` in a name stands for the dot."""
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def small(folder: Path, toml: str = '[seed]\nfiles = ["p.py"]\n', **files: str) -> Path:
    """A task that works, with these files put in its place."""
    return write(
        folder, **{"task__toml": toml, "p__py": PROGRAM, "evaluator__py": EVALUATOR, **files}
    )


def test_a_small_task(tmp_path: Path) -> None:
    task = load(small(tmp_path))
    assert task.name == tmp_path.name
    assert task.seeds == ({"p.py": PROGRAM},)
    assert (task.evaluator.form, task.evaluator.entry, task.evaluator.module) == (
        "call",
        "run",
        "p.py",
    )
    assert Path(task.evaluator.path) == tmp_path / "evaluator.py"
    assert task.surface.language == "python" and not task.notes
    assert task.digest and task.evaluator.digest
    assert load(tmp_path / "task.toml") == task


def test_everything_at_once(tmp_path: Path) -> None:
    toml = """
name = "all"
goal = "be good"
system = "you are"
cases = "data/c.jsonl"
deterministic = true
features = ["length"]
[seed]
files = ["main.py"]
glob = "prompts/*.txt"
[seed.parts]
"extra.json" = "{}"
[evaluator]
file = "sub/judge.py"
form = "serve"
entry = "go"
packages = ["numpy", "scipy.optimize"]
[evaluator.options]
readable = ["/data"]
[objective]
direction = "min"
start = 9
target = 1.5
bounds = [0, inf]
[limits]
seconds = 3
memory_mb = 100
[surface]
frozen = ["main.py"]
max_chars = 999
[defaults]
strategy = "polca"
budget = "evaluations=20"
[defaults.settings]
explore = 3
"""
    write(tmp_path, task__toml=toml, main__py="def go(x):\n    return x\n")
    for name, text in {
        "prompts/b.txt": "two",
        "prompts/a.txt": "one",
        "sub/judge.py": "def score(call, case, seed, weight=2):\n    return call(1)\n",
        "data/c.jsonl": '{"input": [1], "info": 2}\n\n{"id": 7, "input": null, "split": "test"}\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    task = load(tmp_path)
    assert list(task.seeds[0]) == ["main.py", "prompts/a.txt", "prompts/b.txt", "extra.json"]
    assert [(c.id, c.input, c.info, c.split) for c in task.cases] == [
        ("1", [1], 2, "train"),
        ("7", None, None, "test"),
    ]
    assert (
        task.objective.bounds == (0, None)
        and task.objective.reaches_target(1.5)
        and not task.objective.reaches_target(1.6)
    )
    assert (task.limits.seconds, task.limits.memory_mb, task.limits.processes) == (3, 100, 64)
    assert task.defaults == TaskDefaults(
        strategy="polca", budget=Budget(evaluations=20), settings={"explore": "3"}
    )
    assert task.evaluator.options == {"readable": ["/data"]} and task.evaluator.module == "main.py"
    assert task.surface.language == "text" and task.deterministic and task.features == ("length",)


def test_a_preset_replaces_the_choices_that_it_makes(tmp_path: Path) -> None:
    toml = """[resources]
memory = "1GB"
[defaults]
budget = "20"
workers = 2
settings = { explore = 3 }
[presets.paper]
strategy = "polca"
budget = "evaluations=50"
settings = { epsilon = 0.02, half = true }
"""
    small(tmp_path, SEED + toml)
    defaults = load(tmp_path).defaults
    assert defaults.backend == BackendChoice(needs=Needs(memory=10**9))
    assert (defaults.strategy, defaults.settings) == ("", {"explore": "3"})
    paper = defaults.presets["paper"]
    assert (paper.strategy, paper.budget, paper.workers) == ("polca", Budget(evaluations=50), 2)
    assert paper.settings == {"epsilon": "0.02", "half": "on"} and paper.backend == defaults.backend


def test_settings_of_a_file_are_texts_as_on_the_command_line() -> None:
    settings = {"a": True, "b": False, "c": ["x", "y"], "d": 0.5, "e": "text"}
    assert setting_texts(settings) == {"a": "on", "b": "off", "c": "x,y", "d": "0.5", "e": "text"}


def test_several_seeds(tmp_path: Path) -> None:
    small(tmp_path, '[seed]\neach = ["p.py", "q.py"]\nname = "x.py"\n', q__py=PROGRAM + "# other\n")
    assert [list(seed) for seed in load(tmp_path).seeds] == [["x.py"], ["x.py"]]
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, m__py=PROGRAM, t__txt=name)
    (tmp_path / "task.toml").write_text('[seed]\nfolders = ["a", "b"]\n')
    assert [seed["t.txt"] for seed in load(tmp_path).seeds] == ["a", "b"]


def test_without_a_seed(tmp_path: Path) -> None:
    small(tmp_path, 'goal = "sort"\n', evaluator__py=OPAQUE)
    assert load(tmp_path).seeds == () and load(tmp_path).goal == "sort"
    (tmp_path / "task.toml").unlink()
    task = load(tmp_path / "evaluator.py", goal="sort")
    assert (task.name, task.goal, task.seeds, task.evaluator.form) == (
        tmp_path.name,
        "sort",
        (),
        "call",
    )
    assert load(tmp_path, goal="sort") == task


def test_a_goal_given_takes_the_place_of_the_tasks(tmp_path: Path) -> None:
    assert load(small(tmp_path), goal="mine").goal == "mine"
    assert (
        load(small(tmp_path, 'goal = "its own"\n[seed]\nfiles = ["p.py"]\n'), goal="mine").goal
        == "mine"
    )


@pytest.mark.extension("compat")
def test_forms_are_read_off_the_evaluator(tmp_path: Path) -> None:
    small(tmp_path, evaluator__py="def score(call, seed):\n    return call()\n")
    assert load(tmp_path).evaluator.form == "serve"
    small(tmp_path, evaluator__py="from lib import *\ndef evaluate(path):\n    return {}\n")
    task = load(tmp_path)
    assert (task.evaluator.form, task.evaluator.proxy, task.notes) == ("legacy", "auto", ())
    write(tmp_path, task__toml='[seed]\nfiles = ["p.py"]\n[evaluator]\nproxy = "never"\n')
    never = load(tmp_path)
    assert never.evaluator.proxy == "never" and "self-reported" in never.notes[0]
    assert (never.evaluator.digest, never.digest == task.digest) == (task.evaluator.digest, False)


def test_evaluators_are_never_imported(tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    load(small(tmp_path, evaluator__py=f"open({str(mark)!r}, 'w').close()\n{EVALUATOR}"))
    assert not mark.exists()


SEED = '[seed]\nfiles = ["p.py"]\n'
LATER = "def score(output, case):\n    return 0\n"
CASES = 'cases = "c.jsonl"\n' + SEED
MISTAKES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "no TOML": ({"task__toml": "name = x\n"}, ("not valid TOML", "task.toml:1")),
    "unknown key": (
        {"task__toml": "gaol = 'x'\n" + SEED},
        ("unknown key 'gaol'", "task.toml:1", "'goal'"),
    ),
    "unknown section key": (
        {"task__toml": SEED + "[limits]\nsecond = 1\n"},
        ("unknown key 'second' in [limits]", "task.toml:4", "'seconds'"),
    ),
    "unknown section": (
        {"task__toml": SEED + "[objectiv]\n"},
        ("'objectiv'", "task.toml:3", "'objective'"),
    ),
    "wrong type": (
        {"task__toml": SEED + "[limits]\nseconds = 'long'\n"},
        ("expected `float`, got `str`", "task.toml:4 (limits.seconds)"),
    ),
    "wrong choice": (
        {"task__toml": SEED + "[objective]\ndirection = 'up'\n"},
        ("'up'", "task.toml:4 (objective.direction)"),
    ),
    "a section that is a value": ({"task__toml": "seed = 3\n"}, ("expected a table", "(seed)")),
    "seed missing": (
        {"task__toml": "[seed]\nfiles = ['q.py']\n"},
        ("'q.py' does not exist", "seed.files", "'p.py'"),
    ),
    "seed empty": (
        {"p__py": " \n"},
        ("the initial program is empty", "part p.py", "first version"),
    ),
    "seed with NUL": ({"p__py": "x = 1\0"}, ("NUL", "part p.py")),
    "seed not Python": ({"p__py": "def run(:\n"}, ("not valid Python", "p.py:1")),
    "seed without entry": (
        {"p__py": "def runn():\n    pass\n"},
        ("no function 'run'", "'runn' on line 1", "entry"),
    ),
    "seed in two ways": (
        {"task__toml": SEED + "each = ['p.py']\n"},
        ("one way", "task.toml:1", "folders"),
    ),
    "no seed, no goal": ({"task__toml": ""}, ("needs a goal", "task.toml", "[seed]")),
    "nothing matches": (
        {"task__toml": "[seed]\nglob = '*.rs'\n"},
        ("no file matches '*.rs'", "task.toml:2"),
    ),
    "absolute pattern": (
        {"task__toml": "[seed]\nglob = '/x/*'\n"},
        ("bad pattern", "task.toml:2", "relative"),
    ),
    "bad part name": (
        {"task__toml": "[seed.parts]\n'../x' = 'y'\n"},
        ("cannot be called '../x'", "task.toml:1"),
    ),
    "seeds that differ": (
        {"task__toml": "[seed]\nfolders = ['a', 'b']\n", "a/p__py": PROGRAM, "b/q__py": PROGRAM},
        ("initial program 2 has the parts q.py", "same part names"),
    ),
    "seed too long": (
        {"task__toml": SEED + "[surface]\nmax_chars = 5\n"},
        ("longer than", "task.toml:4", "raise"),
    ),
    "frozen unknown": (
        {"task__toml": SEED + "[surface]\nfrozen = ['q.py']\n"},
        ("'q.py'", "task.toml:4", "'p.py'"),
    ),
    "all frozen": (
        {"task__toml": SEED + "[surface]\nfrozen = ['p.py']\n"},
        ("every part is frozen", "task.toml:4"),
    ),
    "no markers": (
        {"task__toml": SEED + "[surface]\nmarkers = 'enforced'\n"},
        ("markers are enforced", "task.toml:4", "EVOLVE-BLOCK-START"),
    ),
    "unpaired marker": (
        {
            "task__toml": SEED + "[surface]\nmarkers = 'enforced'\n",
            "p__py": PROGRAM + "# EVOLVE-BLOCK-START\n",
        },
        ("START without an END", "p.py:3", "pair"),
    ),
    "evaluator missing": (
        {"task__toml": SEED + "[evaluator]\nfile = 'evaluater.py'\n"},
        ("'evaluater.py' does not exist", "evaluator.file", "'evaluator.py'"),
    ),
    "evaluator without score": (
        {"evaluator__py": "def scores(output):\n    pass\n"},
        ("neither 'score' nor 'evaluate'", "'scores'", "evaluator.py", "define score(output)"),
    ),
    "evaluator not Python": (
        {"evaluator__py": "x = 1\ndef score(\n"},
        ("not valid Python", "evaluator.py:2"),
    ),
    "unknown argument": (
        {"evaluator__py": "\ndef score(outputs):\n    pass\n"},
        ("'outputs'", "evaluator.py:2", "'output'"),
    ),
    "argument of another form": (
        {"evaluator__py": "def score(output, files):\n    pass\n"},
        ("'files'", "form = call", "evaluator.py:1", "form = command"),
    ),
    "form unknown": (
        {"task__toml": SEED + "[evaluator]\nform = 'cal'\n"},
        ("no form of evaluators 'cal'", "task.toml:4", "did you mean 'call'"),
    ),
    "form without its function": (
        {"task__toml": SEED + "[evaluator]\nform = 'legacy'\n"},
        ("no function 'evaluate'", "evaluator.py", "define evaluate"),
    ),
    "command missing": (
        {"task__toml": SEED + "[evaluator]\nform = 'command'\n"},
        ("needs a command", "task.toml:4", "awk"),
    ),
    "command without form": (
        {"task__toml": SEED + "[evaluator]\ncommand = ['x']\n"},
        ('form = "command"', "task.toml:4"),
    ),
    "command of an unknown part": (
        {"task__toml": SEED + "[evaluator]\nform = 'command'\ncommand = ['sh', '{q.py}']\n"},
        ("'q.py'", "task.toml:5", "'p.py'"),
    ),
    "thresholds elsewhere": (
        {"task__toml": SEED + "[evaluator]\nthresholds = [1.0]\n"},
        ("thresholds", "task.toml:4", "remove"),
    ),
    "entry no name": (
        {"task__toml": SEED + "[evaluator]\nentry = 'a b'\n"},
        ("'a b'", "task.toml:4", "entry"),
    ),
    "module unknown": (
        {"task__toml": SEED + "[evaluator]\nmodule = 'q.py'\n"},
        ("'q.py'", "task.toml:4", "'p.py'"),
    ),
    "package with version": (
        {"task__toml": SEED + "[evaluator]\npackages = ['numpy>=2']\n"},
        ("'numpy>=2'", "task.toml:4", "without versions"),
    ),
    "bounds reversed": (
        {"task__toml": SEED + "[objective]\nbounds = [1, 0]\n"},
        ("[low, high]", "task.toml:4"),
    ),
    "target outside": (
        {"task__toml": SEED + "[objective]\ntarget = 2\nbounds = [0, 1]\n"},
        ("outside the bounds", "task.toml:4", "bounds"),
    ),
    "start not finite": (
        {"task__toml": SEED + "[objective]\nstart = nan\n"},
        ("finite", "task.toml:4"),
    ),
    "direction the wrong way": (
        {"task__toml": SEED + "[objective]\nstart = 5\ntarget = 1\n"},
        ("already reaches the target", "task.toml", 'direction to "min"'),
    ),
    "limit of zero": (
        {"task__toml": SEED + "[limits]\nmemory_mb = 0\n"},
        ("above 0", "task.toml:4", "positive"),
    ),
    "limit of more than a year": (
        {"task__toml": SEED + "[limits]\nseconds = 1e300\n"},
        ("at most 31622400, not 1e+300", "task.toml:4", "positive"),
    ),
    "limit of more than any system": (
        {"task__toml": SEED + "[limits]\nmemory_mb = 9_000_000_000_000_000_000\n"},
        ("memory_mb must be above 0 and at most", "task.toml:4", "positive"),
    ),
    "limit that is no number": (
        {"task__toml": SEED + "[limits]\nscorer_seconds = nan\n"},
        ("above 0", "task.toml:4", "positive"),
    ),
    "a file as seed": (
        {"task__toml": "seed = 'x.py'\n"},
        ("expected a table, got `str`", "task.toml:1 (seed)", "[seed]"),
    ),
    "bad budget": (
        {"task__toml": SEED + "[defaults]\nbudget = 'euros=5'\n"},
        ("'euros'", "task.toml:4", "dollars=N"),
    ),
    "bad budget of a preset": (
        {"task__toml": SEED + "[presets.paper]\nbudget = 'euros=5'\n"},
        ("'euros'", "task.toml:4", "presets.paper.budget"),
    ),
    "bad memory": (
        {"task__toml": SEED + "[resources]\ncpu = 1\nmemory = '2 apples'\n"},
        ("'2 apples' is not a size", "task.toml:5", "resources.memory"),
    ),
    "bad custom resource": (
        {"task__toml": SEED + "[resources.custom]\nfpga = -1\n"},
        ("custom.fpga", "not a number from 0", "task.toml"),
    ),
    "cases missing": (
        {"task__toml": "cases = 'd.jsonl'\n" + SEED},
        ("'d.jsonl' does not exist", "(cases)"),
    ),
    "case not JSON": (
        {"task__toml": CASES, "c__jsonl": '{"input": 1}\n{input\n'},
        ("not valid JSON", "c.jsonl:2"),
    ),
    "case with NaN": (
        {"task__toml": CASES, "c__jsonl": '{"input": NaN}\n'},
        ("not valid JSON", "c.jsonl:1"),
    ),
    "case no object": (
        {"task__toml": CASES, "c__jsonl": "[1]\n"},
        ("JSON object", "c.jsonl:1", '"input"'),
    ),
    "case unknown key": (
        {"task__toml": CASES, "c__jsonl": '\n{"inputs": 1}\n'},
        ("unknown key 'inputs'", "c.jsonl:2", "'input'"),
    ),
    "case unknown split": (
        {"task__toml": CASES, "c__jsonl": '{"split": "tests"}\n'},
        ("unknown split 'tests'", "c.jsonl:1", "'test'"),
    ),
    "case id twice": (
        {"task__toml": CASES, "c__jsonl": '{"id": 1}\n{"id": "1"}\n'},
        ("'1' is already that of line 1", "c.jsonl:2", "own id"),
    ),
    "case id no text": (
        {"task__toml": CASES, "c__jsonl": '{"id": true}\n'},
        ("an id must be", "c.jsonl:1"),
    ),
    "no training case": (
        {"task__toml": CASES, "c__jsonl": '{"split": "test"}\n'},
        ("no case belongs to the split 'train'", "c.jsonl", "training cases"),
    ),
    "no case": ({"task__toml": CASES, "c__jsonl": "\n"}, ("the data set is empty", "c.jsonl")),
}


@pytest.mark.extension("compat")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_says_what_where_and_how_to_go_on(tmp_path: Path, name: str) -> None:
    files, expected = MISTAKES[name]
    small(tmp_path, **{"task__toml": SEED, **files}) if "task__toml" not in files else small(
        tmp_path, files["task__toml"], **{k: v for k, v in files.items() if k != "task__toml"}
    )
    with pytest.raises(TaskError) as caught:
        load(tmp_path)
    assert caught.value.what and caught.value.where and caught.value.fix
    for piece in expected:
        assert piece in str(caught.value)


@pytest.mark.extension("compat")
@pytest.mark.parametrize(
    ("files", "pieces"),
    [
        ({}, ("neither task.toml nor evaluator.py", "culmen new")),
        ({"tasks__toml": ""}, ("neither", "did you mean to call tasks.toml task.toml?")),
        ({"evaluator__py": OPAQUE}, ("needs a goal", "--seed-program", "defines run")),
        ({"evaluate__py": "", "initial__py": ""}, ("no main", "main(program_path, results_dir)")),
        (
            {"evaluate__py": "from shinka.core import run_shinka_eval", "main__py": ""},
            ("initial.*", "found none"),
        ),
        (
            {"evaluate__sh": "echo 1", "sort__cpp": ""},
            ("neither task.toml", "An evaluator that is a script"),
        ),
        (
            {"prompt__txt": "", "data__jsonl": "", "metric__py": ""},
            ("neither task.toml", "routing_rules"),
        ),
        ({"experiment__py": ""}, ("neither task.toml", "culmen new")),
    ],
)
def test_folders_that_are_no_task(
    tmp_path: Path, files: dict[str, str], pieces: tuple[str, ...]
) -> None:
    with pytest.raises(TaskError) as caught:
        load(write(tmp_path, **files))
    assert all(piece in str(caught.value) for piece in pieces)


def test_paths_that_are_no_task(tmp_path: Path) -> None:
    write(tmp_path, notes__txt="x")
    with pytest.raises(TaskError, match=r"'notes\.txt' is not a task"):
        load(tmp_path / "notes.txt")
    with pytest.raises(TaskError, match=r"did you mean 'notes.txt'\?"):
        load(tmp_path / "note.txt")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    small(tmp_path)
    (tmp_path / "p.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(TaskError, match=r"not UTF-8 text \(byte 5\)"):
        load(tmp_path)


def test_the_digest_covers_what_shapes_a_score_and_not_the_place(tmp_path: Path) -> None:
    here = tmp_path / "here"
    small(here, helper__py="x = 1\n")
    first = load(here)
    moved = shutil.copytree(here, tmp_path / "there")
    assert load(moved).digest == first.digest
    (moved / "p.py").write_text(PROGRAM + "# another start\n")
    (moved / "README.md").write_text("words")
    (moved / "__pycache__").mkdir()
    (moved / "__pycache__" / "helper.pyc").write_text("cache")
    assert load(moved).digest == first.digest
    digests = {first.digest}
    for name, text in {
        "helper.py": "x = 2\n",
        "evaluator.py": EVALUATOR + "# stricter\n",
        "task.toml": SEED + "[limits]\nseconds = 5\n",
    }.items():
        (moved / name).write_text(text)
        digests.add(load(moved).digest)
    (moved / "task.toml").write_text(SEED + "[objective]\nbounds = [0, 1]\n")
    digests.add(load(moved).digest)
    assert len(digests) == 5


def test_the_digest_covers_frozen_and_immutable_text(tmp_path: Path) -> None:
    block = "# EVOLVE-BLOCK-START\n{}\n# EVOLVE-BLOCK-END\n" + PROGRAM
    toml = (
        '[seed]\nfiles = ["p.py", "f.txt"]\n[surface]\nfrozen = ["f.txt"]\nmarkers = "enforced"\n'
    )

    def digest(program: str, frozen: str) -> str:
        return load(small(tmp_path, toml, p__py=program, f__txt=frozen)).digest

    first = digest(block.format("x = 1"), "a")
    assert digest(block.format("x = 2"), "a") == first
    assert digest(block.format("x = 1") + "y = 0\n", "a") != first
    assert digest(block.format("x = 1"), "b") != first


def test_a_large_folder_is_not_read_through(tmp_path: Path) -> None:
    small(tmp_path)
    (tmp_path / "data").mkdir()
    for number in range(450):
        (tmp_path / "data" / f"{number}.txt").touch()
    task = load(tmp_path)
    assert any("is large" in note for note in task.notes)
    (tmp_path / "evaluator.py").write_text(EVALUATOR + "#\n")
    assert load(tmp_path).digest != task.digest


def test_cases_change_the_digest_of_the_task_but_not_of_the_evaluator(tmp_path: Path) -> None:
    small(tmp_path, CASES, c__jsonl='{"input": 1}\n', evaluator__py=LATER)
    first = load(tmp_path)
    assert any("generalises" in note for note in first.notes)
    (tmp_path / "c.jsonl").write_text('{"input": 2}\n')
    second = load(tmp_path)
    assert first.digest != second.digest and first.evaluator.digest == second.evaluator.digest


def test_a_command_that_is_not_installed_is_noted(tmp_path: Path) -> None:
    toml = SEED + "[evaluator]\nform = 'command'\ncommand = ['no-such-program', '{p.py}']\n"
    task = load(small(tmp_path, toml))
    assert task.evaluator.command == ("no-such-program", "{p.py}")
    assert any("not found on PATH" in note for note in task.notes)


@pytest.mark.extension("compat")
def test_other_seeds(tmp_path: Path) -> None:
    small(tmp_path, SEED + "[surface]\nmax_chars = 1000\n")
    task = load(tmp_path, seeds=[{"mine.py": PROGRAM}, {"mine.py": PROGRAM + "#\n"}])
    assert task.evaluator.module == "mine.py" and len(task.seeds) == 2
    assert load(tmp_path / "evaluator.py", seeds=[{"m.py": PROGRAM}]).evaluator.module == "m.py"
    with pytest.raises(TaskError, match="initial program 2, part m"):
        load(tmp_path, seeds=[{"m": "x"}, {"m": " "}])
    with pytest.raises(TaskError, match="differ in their parts"):
        load(tmp_path, seeds=[{"m": "x"}, {"n": "x"}])
    small(tmp_path, SEED + "[evaluator]\nform = 'command'\ncommand = ['cat', '{p.py}']\n")
    with pytest.raises(TaskError, match=r"no part 'p\.py'"):
        load(tmp_path, seeds=[{"m.rs": "x"}])
    (tmp_path / "evaluator.py").write_text(
        "def evaluate(path):\n    return {'combined_score': 1}\n"
    )
    assert load(tmp_path / "evaluator.py", seeds=[{"m.rs": "x"}]).evaluator.suffix == ".rs"


@pytest.mark.parametrize(
    ("word", "meant"), [("minimize", "min"), ("MIN", "min"), ("Maximise", "max"), ("max", "max")]
)
def test_directions_as_people_write_them(tmp_path: Path, word: str, meant: str) -> None:
    toml = f'[seed]\nfiles = ["p.py"]\n[objective]\ndirection = "{word}"\n'
    assert load(small(tmp_path, toml)).objective.direction == meant
    assert (
        load(tmp_path, direction="minimise" if meant == "min" else "MAX").objective.direction
        == meant
    )


def test_another_direction_is_refused_with_its_place(tmp_path: Path) -> None:
    toml = '[seed]\nfiles = ["p.py"]\n[objective]\ndirection = "up"\n'
    with pytest.raises(TaskError, match="unknown direction 'up'") as caught:
        load(small(tmp_path, toml))
    assert "task.toml" in caught.value.where and "max" in caught.value.fix


@pytest.mark.extension("builtin")
def test_the_digest_is_the_same_whether_the_usual_form_is_written_or_not(tmp_path: Path):
    digests = set[str]()
    for line in ("", 'form = "call"\n'):
        folder = tmp_path / f"task{len(line)}"
        write_new(folder)
        text = re.sub(r"(?m)^form = .*\n", "", (folder / "task.toml").read_text())
        text = text.replace("[evaluator]\n", f"[evaluator]\n{line}", 1)
        (folder / "task.toml").write_text(text)
        digests.add(load(folder).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["better", "better.py", "better.txt", "best.out"])
def test_a_single_part_may_come_from_a_file_of_any_name(tmp_path: Path, name: str) -> None:
    """The file of `culmen best RUN > better` is an initial program of the same task."""
    toml = 'goal = "g"\n[seed]\nfiles = ["p.py"]\n[evaluator]\nform = "command"\n'
    toml += 'command = ["python3", "{p.py}"]\n'
    small(tmp_path, toml)
    assert load(tmp_path, seeds=[{name: "print(2)\n"}]).seeds == ({"p.py": "print(2)\n"},)
    with pytest.raises(TaskError, match=r"no part 'p\.py'"):
        load(tmp_path, seeds=[{"better.rs": "x"}])
    with pytest.raises(TaskError, match=r"no part 'p\.py'"):
        load(tmp_path, seeds=[{"better.py": "x", "other.py": "x"}])


@pytest.mark.extension("compat")
@pytest.mark.parametrize("name", ["better", "better.txt"])
def test_an_evaluator_of_a_path_gets_a_program_s_suffix(tmp_path: Path, name: str) -> None:
    """A file of another name is a program all the same."""
    small(tmp_path, SEED)
    (tmp_path / "evaluator.py").write_text("def evaluate(path):\n    return 1.0\n")
    assert load(tmp_path, seeds=[{name: PROGRAM}]).seeds == ({"p.py": PROGRAM},)
