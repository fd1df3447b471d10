"""Evaluators of each form: their view, and the reports of candidates that fail alone."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, TaskError, UserError
from culmen.core.evaluation import Case, Status
from culmen.core.task import Evaluator, Limits, Objective, Task
from culmen.evaluate.local import LocalBackend
from culmen.jail import outcome
from culmen.jail.plain import number_or_type
from culmen.jail.spoken import require_metric
from tests.evaluate.conftest import LIMITS, Ground, Grounds

pytestmark = pytest.mark.jail
ECHO = "def score(output, case):\n    return {'score': 1.0, 'feedback': repr(output)}\n"
Make = Callable[..., Ground]


@pytest.fixture
def ground(shared: Grounds) -> Grounds:
    return shared


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("def run(x): return x", "{'a': 1}"),
        ("def run(a): return [a]", "[1]"),
        ("def run(**kw): return kw['a']", "1"),
        ("import numpy\ndef run(x): return numpy.arange(3.0)", "array([0., 1., 2.])"),
        (
            "import numpy\ndef run(x): return numpy.float32(1.5), (1, 2), {'k': b'x'}",
            "[1.5, [1, 2], {'k': b'x'}]",
        ),
        ("def run(x): return {1: 2, '$': 3}", "{1: 2, '$': 3}"),
        (
            "def run(x): return [float('inf'), 2**70, 1j, True]",
            "[inf, 1180591620717411303424, 1j, True]",
        ),
    ],
)
def test_call_sends_plain_data(ground: Make, program: str, value: str) -> None:
    observation = ground(ECHO).one(program, case=Case("c", {"a": 1}))
    assert (observation.status, observation.feedback) == (Status.OK, value)
    assert (
        observation.trust == "verified"
        and observation.case == "c"
        and observation.evaluator == "d" * 8
    )


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("def run(): 1/0", Status.ERROR, "exception"),
        ("def run(:", Status.ERROR, "exception"),
        ("import no_such_module", Status.ERROR, "exception"),
        ("def other(): pass", Status.ERROR, "exception"),
        ("import sys\ndef run(): sys.exit(0)", Status.ERROR, "exit"),
        ("import os\ndef run(): os._exit(7)", Status.ERROR, "no_output"),
        ("import os\ndef run(): os.abort()", Status.ERROR, "crash"),
        ("def run(): return None", Status.INVALID, "no_output"),
        ("def run(): return object()", Status.INVALID, "bad_output"),
        ("def run(): return bytearray(1 << 33)", Status.REJECTED, "memory_limit"),
        ("def run(): return 'x' * (1 << 20)", Status.REJECTED, "output_limit"),
        ("def run():\n    while True: pass", Status.TIMEOUT, "timeout"),
    ],
)
def test_failures_are_values(ground: Make, program: str, status: Status, reason: str) -> None:
    observation = ground(ECHO).one(program)
    assert (observation.status, observation.reason, observation.score) == (status, reason, None)


def test_a_result_that_is_no_plain_data_is_explained_without_names_of_the_jail(
    ground: Make,
) -> None:
    feedback = ground(ECHO).one("def run(): return {1, 2}").feedback
    assert "must return numbers, texts, lists" in feedback and "set is not plain" in feedback
    assert "WireError" not in feedback


def test_feedback_shows_the_candidates_own_lines_and_what_it_printed(ground: Make) -> None:
    observation = ground(ECHO).one(
        "def helper():\n    raise KeyError('gone')\n\ndef run():\n    print('so far')\n    helper()"
    )
    assert "KeyError: 'gone'" in observation.feedback and "in helper" in observation.feedback
    assert "so far" in observation.feedback and observation.artifacts["log"] == "so far\n"
    assert "culmen" not in observation.feedback


def test_a_text_that_can_be_written_to_no_file_is_rejected_and_a_case_of_that_kind_named(
    ground: Make,
) -> None:
    arena = ground(ECHO)
    for text in ("def run(x):\n    return '\ud800'", "x = 1\0"):
        observation = arena.one(text)
        assert (observation.status, observation.reason) == (Status.REJECTED, "not_text")
    with pytest.raises(TaskError, match="case 'odd'"):
        arena.one("def run(x):\n    return x", case=Case("odd", "\ud800"))
    assert arena.one("def run(x):\n    return x", case=Case("even", "\0")).ok


def test_long_logs_are_cut_and_flagged(ground: Make) -> None:
    observation = ground(ECHO).one(
        "def run():\n    for _ in range(10_000): print('x' * 100)\n    return 1"
    )
    assert observation.ok and observation.artifacts["log"].endswith("[cut: the log was longer]")
    assert len(observation.artifacts["log"]) <= 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("returns", "status", "reason"),
    [
        ("float('nan')", Status.INVALID, "score_nan"),
        ("float('inf')", Status.INVALID, "score_infinite"),
        ("10**400", Status.INVALID, "score_infinite"),
        ("True", Status.OK, ""),
        ("'1.0'", Status.OK, ""),
        ("'high'", Status.INVALID, "score_not_a_number"),
        ("[1.0]", Status.INVALID, "score_not_a_number"),
        ("{'score': 2.0}", Status.INVALID, "score_out_of_bounds"),
        ("-1e200", Status.INVALID, "score_out_of_bounds"),
        ("{'score': None, 'feedback': 'no'}", Status.INVALID, "invalid"),
        ("{'loss': 1.0}", Status.LOST, "scorer_error"),
        ("1 / 0", Status.INVALID, "scorer_raised"),
        ("__import__('sys').exit(0)", Status.LOST, "scorer_error"),
        ("__import__('os')._exit(0)", Status.LOST, "scorer_error"),
        ("__import__('numpy').float32(0.5)", Status.OK, ""),
        ("{'score': 1, 'extra': 2, 'metrics': {'m': 3.0}}", Status.OK, ""),
    ],
)
def test_scores_are_finite_numbers_within_bounds_or_no_scores(
    ground: Make, tmp_path: Path, returns: str, status: Status, reason: str
) -> None:
    arena = ground(f"def score(output):\n    return {returns}\n")
    arena.backend.task = msgspec.structs.replace(arena.task, objective=Objective(bounds=(0.0, 1.0)))
    observation = arena.one("def run(): return 1")
    assert (observation.status, observation.reason) == (status, reason)
    assert (observation.score is None) == (status is not Status.OK)


def test_invalid_is_the_evaluators_word(ground: Make) -> None:
    source = "from culmen.evaluate import Invalid\ndef score(output, case):\n    raise Invalid('overlap of 0.3')\n"
    observation = ground(source).one("def run(): return 1")
    assert (observation.status, observation.reason) == (Status.INVALID, "invalid")
    assert observation.feedback == "overlap of 0.3"


def test_a_scorer_gets_what_it_names(ground: Make) -> None:
    source = (
        "def score(*, parts, seed, seconds, case, output):\n"
        "    assert 0.1 <= seconds < 1.5 and case.info == 7 and list(parts) == ['program.py']\n"
        "    return {'score': seed, 'feedback': output}\n"
    )
    program = (
        "import time, random\ndef run(x):\n    time.sleep(0.1)\n    return str(random.random())"
    )
    arena = ground(source)
    case = Case("1", 3, info=7)
    first, again, other = (arena.one(program, case=case, seed=seed) for seed in (5, 5, 6))
    assert (first.score, other.score) == (5.0, 6.0), first
    assert first.feedback == again.feedback != other.feedback


def test_hidden_answers_do_not_enter_the_jail(ground: Make) -> None:
    program = (
        "import gc, sys\nneedle = 'the-' + 'answer'\n"
        "def run(x):\n    return [repr(o)[:200] for o in gc.get_objects() if needle in repr(o)[:5000]]"
    )
    assert ground(ECHO).one(program, case=Case("1", 1, info="the-answer")).feedback == "[]"


def test_without_an_entry_only_the_text_is_judged(ground: Make) -> None:
    arena = ground(
        "import time\ndef score(parts):\n    time.sleep(0.2)\n    return len(parts['prompt'])\n",
        entry="",
    )
    judged = arena.one({"prompt": "Think."})
    assert (
        judged.score == 6.0 and 0.2 <= judged.seconds < 10
    )  # the judgement is all of the evaluation


def test_several_files_are_one_program(ground: Make) -> None:
    parts = {
        "main.py": "from lib.tools import double\ndef run(): return double(4)",
        "lib/tools.py": "def double(x): return 2 * x",
    }
    assert ground("def score(output): return output", module="main.py").one(parts).score == 8.0


def test_serve_drives_the_program_call_by_call(ground: Make) -> None:
    source = (
        "def score(call, case):\n"
        "    for step in range(case.input):\n        call(step)\n"
        "    return call.named('total')\n"
    )
    program = "seen = []\ndef run(x): seen.append(x)\ndef total(): return sum(seen)"
    assert ground(source, form="serve").one(program, case=Case("1", 10)).score == 45.0


def test_serve_keeps_tuples_and_names_of_arguments_where_it_is_asked(ground: Make) -> None:
    source = (
        "def score(call):\n"
        "    assert call([(1, 2)]) == [[1, 2]]\n"
        "    there = [(1, 2), (3, {'deep': ((4,), 'x')})]\n"
        "    back = call.unchanged(there, pick=1)\n"
        "    assert type(back) is tuple and back in there, back\n"
        "    return float(back[1]['deep'][0][0])\n"
    )
    program = "def run(x, pick=None): return x if pick is None else x[pick]"
    observation = ground(source, form="serve").one(program)
    assert observation.score == 4.0, observation.feedback


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def run(x): 1/0", "exception"),
        ("def run(x): return object()", "exception"),
        ("import os\ndef run(x): os._exit(0)", "no_output"),
        ("import os\ndef run(x): os.abort()", "crash"),
        ("def run(x):\n    while True: pass", "timeout"),
        ("x = ", "exception"),
        (
            "import os\nos.write(3, b'garbage' * 100)\ndef run(x): return 1",
            "bad_frame output_limit",
        ),
    ],
)
def test_serve_blames_the_candidate_for_its_failures(
    ground: Make, program: str, reason: str
) -> None:
    source = "def score(call):\n    try:\n        return call(1)\n    except ValueError:\n        return 99.0\n"
    observation = ground(source, form="serve").one(program)
    assert observation.reason in reason.split() and observation.score is None


def test_command_runs_any_language(ground: Make) -> None:
    source = "def score(output, data, files, case):\n    return {'score': data, 'feedback': files['note.txt']}\n"
    program = "import sys\nopen('note.txt', 'w').write('noted')\nprint(2 * float(sys.stdin.read()))"
    arena = ground(source, form="command", command=("python", "{main.py}"))
    observation = arena.one({"main.py": program}, case=Case("1", 21))
    assert (observation.score, observation.feedback) == (42.0, "noted")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exit 3", "exit_status"),
        ("while :; do echo x; done", "output_limit"),
        ("sleep 60", "timeout"),
        ("kill -9 $$", "exit_status"),
    ],
)
def test_command_failures(ground: Make, program: str, reason: str) -> None:
    arena = ground("def score(output): return 1.0", form="command", command=("sh", "{main.sh}"))
    assert arena.one({"main.sh": program}).reason == reason


@pytest.mark.parametrize(
    "source", ["x = 1 / 0", "def judge(): pass", "import no_such_module", "def score(:"]
)
@pytest.mark.parametrize("form", ["call", "legacy"])
def test_an_evaluator_that_does_not_load_is_reported_before_the_run(
    ground: Make, source: str, form: str
) -> None:
    with pytest.raises(TaskError, match="evaluator cannot be used"):
        ground(source, form=form)


def test_an_evaluator_without_its_data_file_is_sent_to_the_line_that_reads_it(
    ground: Make,
) -> None:
    with pytest.raises(TaskError, match="no-such-data") as stopped:
        ground("import json\nROWS = json.load(open('no-such-data.json'))\n" + ECHO)
    assert stopped.value.fix == "correct evaluator.py line 2"


def test_a_package_that_is_missing_is_reported_before_the_run(ground: Make) -> None:
    with pytest.raises(TaskError, match="task preloads"):
        ground(ECHO, packages=("no_such_package",))


def test_required_levels(tmp_path: Path) -> None:
    (tmp_path / "evaluator.py").write_text(ECHO)
    task = Task("t", evaluator=Evaluator(path=str(tmp_path / "evaluator.py")), limits=LIMITS)

    async def start(level: str, require: str) -> str:
        backend = LocalBackend(task, 1, require, level=level)
        try:
            return await backend.start()
        finally:
            await backend.close()

    assert asyncio.run(start("limits", "limits")) == "limits"
    with pytest.raises(IsolationError, match="namespaces is required"):
        asyncio.run(start("limits", "namespaces"))
    with pytest.raises(UserError, match="no isolation level"):
        asyncio.run(start("limits", "fortress"))


@pytest.mark.parametrize("level", ["namespaces", "restricted", "limits"])
def test_levels_run_honest_programs(ground: Make, level: str) -> None:
    arena = ground("def score(output): return output", level)
    assert arena.level == level
    assert [o.score for o in arena.evaluate(*(f"def run(): return {n}" for n in range(10)))] == [
        float(n) for n in range(10)
    ]


def test_ordinary_programs_work_in_the_jail(ground: Make) -> None:
    program = (
        "import multiprocessing, subprocess, sys, tempfile, threading, asyncio, concurrent.futures\n"
        "def square(x): return x * x\n"
        "def run():\n"
        "    with multiprocessing.Pool(2) as pool: a = pool.map(square, [1, 2])\n"
        "    with concurrent.futures.ProcessPoolExecutor(2) as pool: b = list(pool.map(square, [3]))\n"
        "    with concurrent.futures.ThreadPoolExecutor(2) as pool: c = list(pool.map(square, [4]))\n"
        "    with tempfile.TemporaryFile() as file: file.write(b'x')\n"
        "    code = 'import numpy; print(int(numpy.ones(5).sum()))'\n"
        "    d = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)\n"
        "    async def e(): return 6\n"
        "    return a + b + c + [int(d.stdout), asyncio.run(e())]\n"
    )
    limits = Limits(seconds=20.0, memory_mb=512, processes=64, files_mb=16)
    assert ground(ECHO, limits=limits).one(program).feedback == "[1, 4, 9, 16, 5, 6]"


def test_candidates_of_one_part_without_suffix_are_python(ground: Make) -> None:
    candidate = Candidate.of({"program": "def run(): return 3"})
    arena = ground("def score(output): return output")
    assert arena.runner.run(arena.backend.evaluate(candidate, None, 0)).score == 3.0


@pytest.mark.parametrize("level", ["namespaces", "restricted"])
@pytest.mark.extension("builtin")
def test_evaluators_of_built_in_tasks_are_out_of_sight(ground: Make, level: str) -> None:
    import culmen

    folder = Path(culmen.__file__).parent / "extensions" / "builtin"
    assert any(folder.rglob("*.py"))
    program = (
        "import glob\n"
        "def run(folder):\n"
        "    seen = []\n"
        "    for path in glob.glob(folder + '/**/*', recursive=True):\n"
        "        try: seen.append(open(path).read())\n"
        "        except OSError: pass\n"
        "    return seen\n"
    )
    assert ground(ECHO, level).one(program, case=Case("1", str(folder))).feedback == "[]"


@pytest.mark.parametrize("level", ["namespaces", "restricted"])
def test_no_link_leads_to_the_built_in_tasks(
    ground: Make, level: str, monkeypatch, tmp_path: Path
) -> None:
    """As `lib64` of a virtual environment, which is a link to its `lib`."""
    from culmen.jail import bubblewrap

    tasks, beside = (
        tmp_path / "venv" / "lib" / "site" / "tasks",
        tmp_path / "venv" / "lib" / "site" / "numpy.py",
    )
    tasks.mkdir(parents=True)
    (tasks / "evaluator.py").write_text("the answers")
    beside.write_text("fine")
    for link, target in (
        ("venv/lib64", "lib"),
        ("venv/again", "."),
        ("venv/lib/site/way", "tasks"),
        ("out", "venv/lib"),
    ):
        (tmp_path / link).symlink_to(target)
    folders = (*bubblewrap.python_folders(), str(tmp_path / "venv"))
    monkeypatch.setattr(bubblewrap, "python_folders", lambda: folders)
    monkeypatch.setattr(bubblewrap, "HIDDEN", str(tasks))
    program = (
        "import os\ndef run(top):\n    seen = []\n"
        "    for way in ('venv/lib/site', 'venv/lib64/site', 'venv/again/lib/site'):\n"
        "        for name in ('tasks/evaluator.py', 'way/evaluator.py', 'numpy.py'):\n"
        "            try: seen.append(open(os.path.join(top, way, name)).read())\n"
        "            except OSError: pass\n"
        "    return sorted(set(seen))\n"
    )
    arena = ground(ECHO + "# a jail of its own, made after the links\n", level)
    assert arena.one(program, case=Case("1", str(tmp_path))).feedback == "['fine']"


def test_no_link_leads_to_a_folder_that_is_shut(tmp_path: Path) -> None:
    from culmen.jail import bubblewrap

    (tmp_path / "real" / "task").mkdir(parents=True)
    (tmp_path / "real" / "other").mkdir()
    (tmp_path / "link").symlink_to("real/task")
    (tmp_path / "real" / "back").symlink_to("task")
    for shut in (tmp_path / "link", tmp_path / "real" / "task"):
        listed, read = bubblewrap.paths_around_hidden([str(tmp_path)], (), [str(shut)])
        assert set(listed) == {str(tmp_path), str(tmp_path / "real")} and read == (
            str(tmp_path / "real" / "other"),
        )


@pytest.mark.parametrize("level", ["namespaces", "restricted"])
@pytest.mark.extension("builtin")
def test_evaluators_below_the_built_in_tasks_still_run_in_the_jail(
    ground: Make, level: str, monkeypatch
) -> None:
    from culmen.jail import bubblewrap

    arena = ground("def evaluate(path): return 1.0", level, form="legacy")
    folder = os.path.dirname(arena.task.evaluator.path)
    monkeypatch.setattr(bubblewrap, "HIDDEN", os.path.dirname(folder))
    beside = Path(folder).parent / "beside"
    beside.write_text("hidden")
    peek = f"float(len(open({str(beside)!r}).read()))"
    source = f"def evaluate(path):\n    try: return {peek}\n    except OSError: return 2.0\n"
    assert ground(source, level, form="legacy").one("x").score == 2.0


def test_what_an_evaluator_prints_is_kept_apart_and_for_people_alone(ground: Make) -> None:
    judge = """
import sys
def score(output):
    print("the answer is 42")
    print("x", file=sys.stderr)
    return 1.0
"""
    observation = ground(judge).one("def run(): print('mine'); return 1")
    assert observation.artifacts == {"log": "mine\n", "evaluator log": "the answer is 42\nx\n"}
    loud = ground("def score(output):\n    print('y' * 100_000)\n    return 1.0\n").one(
        "def run(): return 1"
    )
    assert loud.ok and len(loud.artifacts["evaluator log"]) <= 20_000


def test_an_evaluator_whose_provider_is_away_loses_the_evaluation_and_blames_nobody(
    ground: Make,
) -> None:
    judge = "import urllib.request\ndef score(output):\n    return urllib.request.urlopen('http://127.0.0.1:9/').status\n"
    observation = ground(judge).one("def run(): return 1")
    assert (observation.status, observation.reason) == (Status.LOST, "provider_away")
    assert "did not answer" in observation.feedback


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (12.0, "returned 12.0 as the score, outside the bounds of the task (0 to 10)"),
        (True, "returned True as the score, which is not a number"),
        (number_or_type("2.5"), "returned <str: '2.5'> as the score, which is not a number"),
        (math.inf, "returned inf as the score, which is not finite"),
    ],
)
def test_a_score_that_is_none_is_said_with_its_value_and_whose_it_is(
    score: object, words: str
) -> None:
    found = outcome.scored_outcome({"score": score}, Objective(bounds=(0.0, 10.0)), "and more")
    assert (
        found.status is Status.INVALID
        and f"the evaluator {words}" in found.feedback
        and "and more" in found.feedback
    )


def test_a_metric_that_no_package_has_names_the_extension_that_may_have_it() -> None:
    with pytest.raises(TaskError, match="no installed package has the metric memory") as caught:
        require_metric(Evaluator("serve", "evaluator.py", metric="memory"))
    assert "the extension timing has speedup" in caught.value.fix
