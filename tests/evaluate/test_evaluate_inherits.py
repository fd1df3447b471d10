"""Independence of evaluations in all forms: own streams, and nothing left for the next."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.evaluate.check import TaskReport, check_task
from culmen.evaluate.local import LocalBackend
from culmen.run import options

FORMS = ("call", "serve", "path", "proxied")
RUN = "def run():\n    return 1.0\n"
JUDGES = {
    "call": "def score(output):\n    return judge()\n",
    "serve": "def score(call):\n    call()\n    return judge()\n",
    "path": "def evaluate(path):\n    return {'combined_score': judge(load(path).run() and 0)}\n",
}
LOAD = """
import importlib.util
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""


def make_task(folder: Path, form: str, evaluator: str, program: str = RUN, keys: str = "") -> Task:
    """A task folder whose evaluator's score is `judge()`."""
    kind = "path" if form == "proxied" else form
    proxy = {"path": 'proxy = "never"\n', "proxied": 'proxy = "always"\n'}.get(form, "")
    name = "legacy" if kind == "path" else form
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(
        f'name = "inherits"\n[seed]\nfiles = ["program.py"]\n[evaluator]\nform = "{name}"\n{proxy}{keys}'
    )
    (folder / "program.py").write_text(program)
    judge = JUDGES[kind] if "def judge" in evaluator else ""
    text = textwrap.dedent(evaluator).replace("def judge()", "def judge(_=0)")
    (folder / "evaluator.py").write_text(f"{LOAD}{text}\n{judge}")
    return options.folder_task(folder, None, "")


def evaluate(
    task: Task, seeds: list[int], workers: int = 1, renew_before: int = 10**9
) -> list[Observation]:
    """Evaluations of the initial program with these random seeds."""

    async def work() -> list[Observation]:
        backend = LocalBackend(task, workers)
        await backend.start()
        (program,) = task.initial_candidates()
        try:
            if workers > 1:
                waiting = (backend.evaluate(program, None, seed) for seed in seeds)
                return list(await asyncio.gather(*waiting))
            found = []
            for number, seed in enumerate(seeds):
                if number == renew_before:
                    await backend.renew()
                found.append(await backend.evaluate(program, None, seed))
            return found
        finally:
            await backend.close()

    return asyncio.run(work())


def scores(observations: list[Observation]) -> list[float]:
    for each in observations:
        assert each.ok, each.feedback
    return [each.score or 0.0 for each in observations]


def check(task: Task) -> TaskReport:
    return asyncio.run(check_task(task, LocalBackend(task, 1)))


DRAWS = {
    "numpy, seeded": "import numpy as np\nrng = np.random.default_rng(0)\ndef judge(): return rng.normal()",
    "numpy, unseeded": "import numpy as np\nrng = np.random.default_rng()\ndef judge(): return rng.normal()",
    "random": "import random\nrng = random.Random(0)\ndef judge(): return rng.gauss(0, 1)",
    "global": "import random\nrandom.seed(0)\ndef judge(): return random.gauss(0, 1)",
    "numpy, global": "import numpy as np\nnp.random.seed(0)\ndef judge(): return np.random.normal()",
    "closure": (
        "import numpy as np\ndef make():\n    rng = np.random.default_rng(0)\n"
        "    def draw(): return rng.normal()\n    return draw\ndraw = make()\n"
        "def judge(): return draw()"
    ),
    "attribute": (
        "import random\nclass World:\n    def __init__(self): self.rng = random.Random(0)\n"
        "world = World()\ndef judge(): return world.rng.gauss(0, 1)"
    ),
    "spawned": (
        "import numpy as np\nroot = np.random.SeedSequence(0)\n"
        "def judge(): return np.random.default_rng(root.spawn(1)[0]).normal()"
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", DRAWS)
def test_an_evaluation_draws_numbers_of_its_own(tmp_path: Path, form: str, kind: str) -> None:
    task = make_task(tmp_path / "task", form, DRAWS[kind])
    seen = evaluate(task, [1, 2, 1, 3, 2], renew_before=3)
    first, second, again, third, last = scores(seen)
    assert first == again and second == last and len({first, second, third}) == 3
    assert all(each.drew for each in seen)
    assert scores(evaluate(task, [3, 2, 1], workers=3)) == [third, second, first]


SAME = {
    "nothing drawn": "def judge(): return 0.5",
    "seeded inside": "import numpy as np\ndef judge():\n    np.random.seed(0)\n    return np.random.normal()",
    "made inside": "import random\ndef judge(): return random.Random(3).random()",
    "data": "import numpy as np\nDATA = np.random.default_rng(1).random(9)\ndef judge(): return DATA.sum()",
    "data, global": "import numpy as np, random\nDATA = np.random.random() + random.random()\ndef judge(): return DATA",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", SAME)
def test_what_is_the_same_stays_the_same_and_is_not_taken_for_drawn(
    tmp_path: Path, form: str, kind: str
) -> None:
    task = make_task(tmp_path / "task", form, SAME[kind])
    seen = evaluate(task, [1, 2, 3], renew_before=2)
    assert len(set(scores(seen))) == 1 and not any(each.drew for each in seen)
    report = check(task)
    assert report.repeatable and report.seed_free and not report.draws


LEAVES = {
    "counter": """
        N = 0
        def judge():
            global N
            N += 1
            return N
    """,
    "list": """
        SEEN = []
        def judge():
            SEEN.append(1)
            return len(SEEN)
    """,
    "cache": """
        import functools
        @functools.lru_cache
        def base(n): return n
        def judge():
            found = base.cache_info().currsize
            base(1)
            return found
    """,
    "environment": """
        import os
        def judge():
            os.environ["X"] = os.environ.get("X", "") + "1"
            return len(os.environ["X"])
    """,
    "folder": """
        import os
        HOME = os.getcwd()
        def judge():
            here = os.getcwd() == HOME
            os.chdir("/")
            return here + 0
    """,
    "decimal": """
        import decimal
        def judge():
            now = decimal.getcontext()
            now.prec += 1
            return now.prec
    """,
    "recursion": """
        import sys
        def judge():
            sys.setrecursionlimit(sys.getrecursionlimit() + 1)
            return sys.getrecursionlimit()
    """,
    "patch": """
        import math
        def judge():
            found = math.sqrt(4)
            math.sqrt = lambda x: found + 1
            return found
    """,
}


@pytest.mark.parametrize("form", ("call", "serve", "path"))
@pytest.mark.parametrize("kind", LEAVES)
def test_the_next_evaluation_finds_nothing(tmp_path: Path, form: str, kind: str) -> None:
    task = make_task(tmp_path / "task", form, LEAVES[kind])
    seen = evaluate(task, [1, 2, 3, 4], renew_before=3)
    assert len(set(scores(seen))) == 1
    assert form == "path" or all(each.left for each in seen)


@pytest.mark.parametrize("form", ("call", "serve"))
def test_an_evaluator_that_says_so_keeps_its_state(tmp_path: Path, form: str) -> None:
    task = make_task(tmp_path / "task", form, LEAVES["counter"], keys="keeps_state = true\n")
    assert scores(evaluate(task, [1, 2, 3, 4], renew_before=2)) == [1, 2, 3, 4]
    found = check(task)
    assert [each.cause for each in found.seeds] == ["number of the call"]


@pytest.mark.extension("compat")
def test_state_cannot_be_kept_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no state to keep"):
        make_task(tmp_path / "task", "path", LEAVES["counter"], keys="keeps_state = true\n")


PROGRAMS = {
    "own generator": "import numpy as np\nrng = np.random.default_rng(0)\ndef run(): return rng.random()",
    "global": "import random\nrandom.seed\ndef run(): return random.random()",
    "at import": "import random\nFOUND = random.random()\ndef run(): return FOUND",
    "numpy at import": "import numpy as np\nFOUND = np.random.random()\ndef run(): return FOUND",
}
OUTPUT = {
    "call": "def score(output):\n    return output\n",
    "serve": "def score(call):\n    return call()\n",
    "path": "def evaluate(path):\n    return {'combined_score': load(path).run()}\n",
    "proxied": "def evaluate(path):\n    return {'combined_score': load(path).run()}\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_draws_numbers_of_its_own(tmp_path: Path, form: str, kind: str) -> None:
    task = make_task(tmp_path / "task", form, OUTPUT[form], PROGRAMS[kind])
    seen = evaluate(task, [1, 2, 1])
    first, second, again = scores(seen)
    assert first == again != second
    if form in ("call", "serve"):
        assert [each.drew for each in seen] == [("program",)] * 3


def test_check_names_the_kind_of_repeat_that_changes_a_score(tmp_path: Path) -> None:
    process = "import os\nDATA = int.from_bytes(os.urandom(4), 'big')\ndef judge(): return DATA"
    order = "WORDS = set('abcdefghij')\ndef judge(): return sum(i * ord(c) for i, c in enumerate(WORDS))"
    for evaluator, cause in ((process, "process"), (order, "hash seed")):
        task = make_task(tmp_path / "task", "call", evaluator)
        report = check(task)
        assert [each.cause for each in report.seeds] == [cause]
        assert not report.repeatable and report.evaluations == 9
        assert any(finding.level == "warning" for finding in report.findings)


def test_a_declared_determinism_is_checked(tmp_path: Path) -> None:
    evaluator = DRAWS["random"].replace("rng.gauss(0, 1)", "rng.random() * 0 + 1")
    task = make_task(tmp_path / "task", "call", evaluator)
    (tmp_path / "task" / "task.toml").write_text(
        "deterministic = true\n" + (tmp_path / "task" / "task.toml").read_text()
    )
    report = check(options.folder_task(tmp_path / "task", None, ""))
    assert task.deterministic is None and report.seed_free
    assert any("declared deterministic, but" in finding.what for finding in report.findings)


@pytest.mark.extension("compat")
def test_check_names_what_the_peers_do_otherwise(tmp_path: Path) -> None:
    evaluator = """
        import decimal
        decimal.getcontext().prec = 50
        count = 0
        def judge():
            global count
            count += 1
            return decimal.getcontext().prec
    """
    task = make_task(tmp_path / "task", "path", evaluator)
    assert scores(evaluate(task, [1, 2])) == [50, 50]
    notes = [finding.what for finding in check(task).findings if finding.level == "note"]
    assert any("settings of decimal" in note and "threads" in note for note in notes)
    assert any("evaluator.count" in note and "evaluate_stage1" in note for note in notes)


def test_a_library_that_a_call_imports_is_loaded_once(tmp_path: Path) -> None:
    """Its import changes warning filters: no doing of the call's, and no reason to import again."""
    evaluator = """
        import sys
        def judge():
            found = "numpy" in sys.modules
            import numpy
            return found + 0
    """
    seen = evaluate(make_task(tmp_path / "task", "call", evaluator), [1, 2, 3])
    assert scores(seen) == [0, 1, 1] and not any(each.left for each in seen)


LEAVES_A_PROCESS = {
    "a child": """
        import subprocess
        def judge():
            child = subprocess.Popen(["sleep", "60"])
            with open(MARK, "w") as file:
                file.write(str(child.pid))
            return 1
    """,
    "a daemon": """
        import os, subprocess, time
        def judge():
            if os.fork() == 0:
                os.setsid()
                child = subprocess.Popen(["sleep", "60"])
                with open(MARK, "w") as file:
                    file.write(str(child.pid))
                os._exit(0)
            os.wait()
            return 1
    """,
}


@pytest.mark.parametrize("kind", LEAVES_A_PROCESS)
def test_processes_that_a_call_leaves_are_ended(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    evaluator = LEAVES_A_PROCESS[kind].replace("MARK", repr(str(mark)))
    task = make_task(tmp_path / "task", "call", evaluator)

    async def work() -> bool:
        backend = LocalBackend(task, 1)
        await backend.start()
        try:
            for seed in (1, 2):
                seen = await backend.evaluate(task.initial_candidates()[0], None, seed)
                assert seen.left == ("a process",)
                if seed == 1:
                    first = mark.read_text()
            return Path(f"/proc/{first}").exists()
        finally:
            await backend.close()

    assert not asyncio.run(work())


def test_an_evaluator_with_threads_is_loaded_anew_after_a_change(tmp_path: Path) -> None:
    evaluator = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        + textwrap.dedent(LEAVES["counter"])
    )
    task = make_task(tmp_path / "task", "call", evaluator)
    assert scores(evaluate(task, [1, 2, 3])) == [1, 1, 1]


@pytest.mark.extension("compat")
def test_two_random_scores_do_not_blame_the_proxy(tmp_path: Path) -> None:
    program = "import numpy as np\ndef run(): return np.random.default_rng().random()"
    for number in range(4):
        task = make_task(tmp_path / f"task{number}", "proxied", OUTPUT["proxied"], program)
        assert evaluate(task, [1])[0].trust == "proxied"
