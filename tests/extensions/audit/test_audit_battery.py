"""The battery against evaluators as they are usually written.

The attacks that pay, those that do not, and the line to change.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from culmen.core.errors import UserError
from culmen.core.task import Task
from culmen.extensions.audit import AuditReport
from culmen.extensions.audit.attack import all_attacks
from culmen.extensions.audit.outputs import insert_code
from culmen.tasks import load
from tests.docs.pages import ROOT, blocks
from tests.evaluate.conftest import need
from tests.extensions.audit import table
from tests.extensions.audit.worlds import (
    OLD,
    OLD_PACK,
    PACK,
    SCORER,
    audited,
    old,
    packing,
    triangle,
)

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def _jail() -> None:
    need("namespaces")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AuditReport]:
    return table.three(tmp_path_factory.mktemp("contracts"))


def results(report: AuditReport) -> dict[str, str]:
    return {outcome.name: outcome.result for outcome in report.outcomes}


def test_every_attack_is_tried_or_says_why_not(reports: dict[str, AuditReport]) -> None:
    names = {attack.name for attack in all_attacks().values() if not attack.internal}
    for contract, report in reports.items():
        tightened = set[str]() if contract == "call" else {"tightened"}  # that one has a verifier
        assert set(results(report)) == names | {"tolerance", "determinism"} | tightened
        assert all(outcome.evidence for outcome in report.outcomes)


def test_the_documentation_says_what_was_found(reports: dict[str, AuditReport]) -> None:
    assert table.shown() == table.table(reports), "python -m tests.extensions.audit.table --write"


@pytest.mark.parametrize("contract", ["call", "proxied"])
def test_no_false_certified_score_and_no_side_effect_out_of_process(
    reports: dict[str, AuditReport], contract: str
) -> None:
    report = reports[contract]
    assert report.trust == {"call": "certified", "proxied": "proxied"}[contract]
    assert [o.name for o in report.outcomes if o.false] == []
    assert [o.name for o in report.of("effect")] == []
    assert {o.name for o in report.of("gamed")} == {
        "tolerance"
    }  # the evaluator's own weakness, in every contract


def test_in_one_process_the_evaluator_is_lost(reports: dict[str, AuditReport]) -> None:
    report = reports["shared"]
    assert report.trust == "self-reported"
    paid = {o.name for o in report.of("gamed", "effect")}
    expected = {
        "tolerance",
        "nonfinite",
        "patch_numpy",
        "patch_evaluator",
        "walk_frames",
        "forge_frame",
        "read_answers",
    }
    assert paid == expected
    for outcome in report.of("gamed"):
        assert (
            outcome.scored is not None
            and outcome.honest is not None
            and outcome.scored > outcome.honest
        )


def test_the_tolerance_is_measured_and_proven(reports: dict[str, AuditReport]) -> None:
    for name in ("proxied", "shared"):
        outcome = next(o for o in reports[name].outcomes if o.name == "tolerance")
        assert outcome.honest is not None and outcome.scored is not None
        assert (
            1e-6 < (outcome.scored - outcome.honest) * 2.635 < 26e-6
        )  # 26 radii, half of 1e-6 each
        lines = {place.line: place for place in outcome.places}
        texts = OLD.splitlines()
        assert {line for line in lines if "1e-6" in texts[line - 1]} == set(lines) and len(
            lines
        ) == 2
        assert any(place.proven for place in lines.values())


def test_the_verifiers_word_stands_beside_the_false_score(reports: dict[str, AuditReport]) -> None:
    report = reports["call"]
    outcome = next(o for o in report.outcomes if o.name == "tolerance")
    assert report.honest.certified == pytest.approx(2.5414213562373087, abs=1e-15)
    assert outcome.scored is not None and outcome.certified is not None
    assert outcome.scored > 2.54142 + 1e-5 > report.honest.certified >= outcome.certified
    assert [place.text for place in outcome.places] == ["TOLERANCE = 1e-6"]


def test_the_lines_to_change_are_named(reports: dict[str, AuditReport]) -> None:
    texts = OLD.splitlines()
    wanted = {
        "nonfinite": "if x - r <",
        "patch_numpy": "spec_from_file_location",
        "walk_frames": "exec_module",
    }
    for name, part in wanted.items():
        outcome = next(o for o in reports["shared"].outcomes if o.name == name)
        assert any(part in texts[place.line - 1] for place in outcome.places), outcome.places


def test_the_tasks_own_folder_is_left_alone(tmp_path: Path) -> None:
    folder = old(tmp_path / "mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    audited(load(folder), only=["edit_evaluator", "forge_files", "read_answers"])
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_an_exact_evaluator_holds(tmp_path: Path) -> None:
    task = load(Path(__file__).parents[3] / "src/culmen/extensions/builtin/circle_packing")
    report = audited(task, parts={"pack.py": PACK})
    assert not report.gamed, report.of("gamed", "effect")
    assert results(report)["tolerance"] == "held"


def test_heilbronn_scaled_into_the_tolerance(tmp_path: Path) -> None:
    report = audited(load(triangle(tmp_path / "t")), only=["tolerance"])
    (outcome,) = report.outcomes
    assert (
        outcome.result == "gamed" and outcome.scored is not None and outcome.certified is not None
    )
    assert outcome.scored > outcome.honest  # type: ignore[operator]
    assert outcome.certified < outcome.scored and "TOL" in outcome.places[0].text


def one(folder: Path, evaluator: str, program: str, attack: str, task: Task | None = None) -> str:
    """Result of one attack on an evaluate(path)."""
    loaded = task or load(old(folder, evaluator, program))
    shared = msgspec.structs.replace(
        loaded, evaluator=msgspec.structs.replace(loaded.evaluator, proxy="never")
    )
    report = audited(shared, only=[attack])
    (outcome,) = report.outcomes
    return outcome.result


IMPORT = """\
import importlib.util, time, random
import numpy as np

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""
POINT = "def solve(n=3):\n    return [0.25 * k for k in range(n)], 0.5\n"
WEAK = {
    "reported": "def evaluate(path):\n    xs, reported = load(path).solve()\n    return reported\n",
    "choose_randomness": "def evaluate(path):\n    xs, _ = load(path).solve()\n    return sum(xs) + np.random.rand()\n",
    "freeze_clocks": (
        "def evaluate(path):\n    m = load(path)\n    began = time.perf_counter()\n    xs, _ = m.solve()\n"
        "    end = time.time() + 0.01\n    [0 for _ in range(200000)]\n"
        "    return 1.0 / (1e-6 + time.perf_counter() - began)\n"
    ),
    "cache": (
        "def evaluate(path):\n    m = load(path)\n    a, b = m.solve(3), m.solve(3)\n"
        "    return 2.0 if a[0] is b[0] else 1.0\n"
    ),
    "underflow": (
        "def evaluate(path):\n    xs, _ = load(path).solve(4)\n"
        "    d = [(a - b) ** 2 for a in xs for b in xs if a is not b]\n"
        "    return min(d) / max(d) if max(d) > 0 else 1.0\n"
    ),
    "lying_types": (
        "def evaluate(path):\n    xs, _ = load(path).solve()\n    if any(x > 0.9 for x in xs):\n        return 0.0\n"
        "    return float(sum(xs))\n"
    ),
    "huge": "def evaluate(path):\n    return sum(load(path).solve()[0])\n",
    "forge_files": (
        "import json, os\ndef evaluate(path):\n    xs, _ = load(path).solve()\n    place = '/tmp/result.json'\n"
        "    if not os.path.exists(place):\n        json.dump({'score': sum(xs)}, open(place, 'w'))\n"
        "    return json.load(open(place))['score']\n"
    ),
    "forge_line": (
        "import subprocess, sys, json\ndef evaluate(path):\n"
        "    code = f'import json; exec(open({path!r}).read()); print(json.dumps(dict(score=sum(solve()[0]))))'\n"
        "    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout\n"
        "    return json.loads(out.strip().splitlines()[-1])['score']\n"
    ),
    "at_exit": (
        "import subprocess, sys, json\ndef evaluate(path):\n"
        "    code = f'import json; exec(open({path!r}).read()); print(json.dumps(dict(score=sum(solve()[0]))))'\n"
        "    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout\n"
        "    return json.loads(out.strip().splitlines()[-1])['score']\n"
    ),
}


@pytest.mark.parametrize("attack", WEAK)
def test_each_weakness_is_found_by_its_attack(tmp_path: Path, attack: str) -> None:
    assert one(tmp_path / "task", IMPORT + WEAK[attack], POINT, attack) == "gamed"


def test_the_first_example_of_the_documentation_is_honest(tmp_path: Path) -> None:
    """With its checks nothing pays.

    Without them the largest number does, and the audit reports it.
    """
    toml, program, evaluator = (block.body for block in blocks(ROOT / "docs/tasks.md")[1:4])
    texts = {"task.toml": toml, "search.py": program, "evaluator.py": evaluator}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert not audited(load(tmp_path)).gamed
    (tmp_path / "evaluator.py").write_text("def score(output):\n    return float(output)\n")
    paid = audited(load(tmp_path)).of("gamed")
    assert [outcome.name for outcome in paid] == ["huge"]
    assert [place.line for place in paid[0].places] == [1]


STRONG = {
    "huge": "def evaluate(path):\n    return sum(min(x, 1e3) for x in load(path).solve()[0])\n",
    "reported": "def evaluate(path):\n    xs, reported = load(path).solve()\n    return sum(xs)\n",
    "choose_randomness": (
        "def evaluate(path):\n    rng = np.random.default_rng(1)\n    xs, _ = load(path).solve()\n"
        "    return sum(xs) + rng.random()\n"
    ),
    "lying_types": (
        "def evaluate(path):\n    xs = [float(repr(float.__float__(x))) for x in load(path).solve()[0]]\n"
        "    return 0.0 if any(x > 0.9 for x in xs) else sum(xs)\n"
    ),
    "underflow": (
        "def evaluate(path):\n    xs, _ = load(path).solve(4)\n    top = max(map(abs, xs)) or 1.0\n"
        "    xs = [x / top for x in xs]\n    d = [(a - b) ** 2 for a in xs for b in xs if a is not b]\n"
        "    return min(d) / max(d) if max(d) > 0 else 0.0\n"
    ),
}


@pytest.mark.parametrize("attack", STRONG)
def test_without_the_weakness_the_attack_fails(tmp_path: Path, attack: str) -> None:
    assert one(tmp_path / "task", IMPORT + STRONG[attack], POINT, attack) == "held"


SORTED = """\
import random


def generate(case, seed):
    rng = random.Random(seed)
    return [rng.random() for _ in range(20_000)]


def reference(numbers):
    return sorted(numbers)


def check(numbers, output):
    return {check}
"""
WEAK_CHECKS = {
    "all(a <= b for a, b in zip(output, output[1:]))": "gamed",  # takes zeros, and an empty list
    "output == sorted(numbers)": "held",
}


@pytest.mark.parametrize("check", WEAK_CHECKS)
def test_answers_without_work_are_timed_against_the_reference(tmp_path: Path, check: str) -> None:
    settings = 'goal = "Sort."\n[seed]\nfiles = ["s.py"]\n[evaluator]\nmetric = "speedup"\n'
    (tmp_path / "task.toml").write_text(settings)
    (tmp_path / "s.py").write_text("def run(numbers):\n    return sorted(numbers)\n")
    (tmp_path / "evaluator.py").write_text(SORTED.format(check=check))
    (outcome,) = audited(load(tmp_path), only=["cheap"]).outcomes
    assert outcome.result == WEAK_CHECKS[check], outcome
    assert [place.text for place in outcome.places] == ["def check(numbers, output):"][
        : outcome.result == "gamed"
    ]


def test_a_better_answer_without_work_is_for_people_to_judge(tmp_path: Path) -> None:
    """Zeros can be what the task asks for, so a score alone does not say that it is gamed."""
    settings = 'goal = "Be small."\n[seed]\nfiles = ["s.py"]\n[objective]\ndirection = "min"\n'
    (tmp_path / "task.toml").write_text(settings)
    (tmp_path / "s.py").write_text("def run():\n    return [3.0, 4.0]\n")
    (tmp_path / "evaluator.py").write_text(
        "def score(output):\n    return sum(abs(x) for x in output)\n"
    )
    (outcome,) = audited(load(tmp_path), only=["cheap"]).outcomes
    assert outcome.result == "look" and "empty" in outcome.evidence + str(outcome.tries)
    (tmp_path / "evaluator.py").write_text(
        "def score(output):\n    return -output[0] - 2 * output[1]\n"
    )
    (outcome,) = audited(load(tmp_path), only=["cheap"]).outcomes
    assert outcome.result == "held"


def test_without_isolation_the_side_effects_are_seen(tmp_path: Path) -> None:
    """At level limits nothing shields the copy of the task's folder, or a later evaluation.

    A candidate can reach both.
    """
    import asyncio

    from culmen.evaluate.local import LocalBackend
    from culmen.extensions.audit import audit

    task = load(packing(tmp_path / "open", verify=False))
    only = ["edit_evaluator", "count_calls", "read_answers", "signal_others", "daemon"]
    report = asyncio.run(audit(task, lambda task: LocalBackend(task, 1, level="limits"), only=only))
    seen = {o.name: o for o in report.outcomes}
    assert (
        seen["read_answers"].result == "effect"
        and "hidden-answers.txt" in seen["read_answers"].evidence
    )
    assert seen["count_calls"].result == "effect" and "/tmp" in seen["count_calls"].evidence
    if (
        os.geteuid() != 0
    ):  # as root, candidates have a uid of their own, so they may neither write nor signal
        assert {seen[name].result for name in ("edit_evaluator", "signal_others")} == {"effect"}
    assert (tmp_path / "open" / "evaluator.py").read_text() == SCORER


@pytest.mark.parametrize("cheats", [False, True])
def test_a_machine_that_becomes_faster_pays_no_attack_and_hides_none(
    tmp_path: Path, cheats: bool
) -> None:
    """Scores rise by a fifth for everybody once the first attack begins.

    It is as when a neighbour's load ends.
    """
    folder, idle = packing(tmp_path / "drifting", verify=False), tmp_path / "idle"
    noise = f"random.gauss(0, 0.01) + (0.5 if os.path.exists({str(idle)!r}) else 0.0)"
    text = SCORER.replace("float(radii.sum())", f"float(radii.sum()) + {noise}")
    if cheats:
        weak = "    if np.abs(centers).max() > 1e20:\n        return 100.0\n    if centers.shape"
        text = text.replace("    if centers.shape", weak)
    (folder / "evaluator.py").write_text("import os\nimport random\n" + text)
    (folder / "task.toml").write_text(
        (folder / "task.toml").read_text().replace("deterministic = true", "")
    )

    def end_load(title: str) -> None:
        if title != "the unchanged program":
            idle.write_text("")

    only = ["at_exit", "cache", "huge"]
    found = results(audited(load(folder), only=only, tell=end_load))
    assert found == {"at_exit": "held", "cache": "held", "huge": "gamed" if cheats else "held"}


def test_luck_with_seeds_is_told(tmp_path: Path) -> None:
    program = PACK.replace("def run():", "def run():\n    np.random.shuffle(np.arange(3))")
    text = program.replace(
        "return centers, radii", "return centers, radii * (1 - 0.1 * np.random.rand())"
    )
    folder = packing(tmp_path / "lucky", verify=False)
    (folder / "pack.py").write_text(text)
    task = load(folder)
    first = audited(task, seconds=0.0).outcomes[0]
    assert (
        first.name == "determinism" and first.result == "gamed"
    )  # the task says deterministic = true
    assert first.scored is not None and first.honest is not None and first.scored > first.honest
    free = audited(msgspec.structs.replace(task, deterministic=False), seconds=0.0)
    assert (
        free.outcomes[0].result == "look" and "random seeds change it" in free.outcomes[0].evidence
    )


def test_a_task_without_a_program_cannot_be_audited(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "evaluator.py").write_text("def score(output):\n    return 1.0\n")
    with pytest.raises(UserError, match="needs a program"):
        audited(load(folder, goal="x"))


def test_a_program_that_does_not_score_is_an_error(tmp_path: Path) -> None:
    folder = packing(tmp_path / "broken", verify=False)
    (folder / "pack.py").write_text("def run():\n    raise ValueError('no idea')\n")
    with pytest.raises(UserError, match="no idea"):
        audited(load(folder))


def test_an_unknown_attack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no attack 'nuke'"):
        audited(load(packing(tmp_path / "p")), only=["nuke"])


def test_when_the_time_is_up_the_rest_is_left_out(tmp_path: Path) -> None:
    report = audited(load(packing(tmp_path / "p", verify=False)), seconds=0.0)
    assert {o.result for o in report.outcomes[1:]} == {"skipped"}
    assert all(
        "time limit" in o.evidence or "does not apply" in o.evidence for o in report.outcomes[1:]
    )


def test_a_program_in_another_language_is_said_to_be_one(tmp_path: Path) -> None:
    report = audited(load(Path(__file__).parents[3] / "src/culmen/extensions/builtin/log_report"))
    assert not report.gamed and {o.evidence for o in report.of("skipped")} == {
        "does not apply: the program is not Python"
    }


def test_whole_numbers_cannot_be_pushed(tmp_path: Path) -> None:
    report = audited(
        load(Path(__file__).parents[3] / "src/culmen/extensions/builtin/bin_packing"),
        only=["tolerance"],
    )
    assert report.outcomes[0].evidence == "does not apply: the output holds whole numbers only"


def test_a_function_as_evaluator_is_attacked_too() -> None:
    import asyncio

    from culmen.evaluate.function import FunctionBackend
    from culmen.extensions.audit import audit
    from culmen.run import options

    def judge(parts: dict[str, str]) -> float:
        names: dict = {}
        (text,) = parts.values()
        exec(text, names)
        numbers = names["solve"]()[0]
        return float(sum(numbers))

    task = options.function_task({"program.py": POINT}, (), "", "max", "f", False, None, judge)
    report = asyncio.run(
        audit(
            task,
            lambda task: FunctionBackend(task, judge, 1),
            only=["patch_numpy", "edit_evaluator"],
        )
    )
    assert {o.name: o.result for o in report.outcomes} == {
        "patch_numpy": "gamed",
        "edit_evaluator": "skipped",
    }
    assert report.trust == "self-reported" and "a function, not a file" in report.notes[0]


def test_a_serving_program_is_attacked_too(tmp_path: Path) -> None:
    report = audited(load(Path(__file__).parents[3] / "src/culmen/extensions/builtin/pole_balance"))
    assert report.form == "serve" and not report.gamed
    assert results(report)["patch_numpy"] == "held"


def test_a_command_in_python_is_attacked_too(tmp_path: Path) -> None:
    folder = tmp_path / "cmd"
    folder.mkdir()
    (folder / "task.toml").write_text(
        'goal = "x"\n[seed]\nfiles = ["p.py"]\n[evaluator]\nform = "command"\ncommand = ["python", "{p.py}"]\n'
    )
    (folder / "p.py").write_text(
        "import json\n\ndef solve():\n    return [0.25, 0.5]\n\nif __name__ == '__main__':\n"
        "    print(json.dumps({'score': sum(solve()), 'xs': solve()}))\n"
    )
    (folder / "evaluator.py").write_text(
        "def score(output, data):\n    return data['score'] if data else None\n"
    )
    report = audited(load(folder), only=["forge_line"])
    assert report.outcomes[0].result == "gamed"  # what it prints is what is believed
    (folder / "evaluator.py").write_text(
        "def score(output, data):\n    return sum(data['xs'][:2]) if data else None\n"
    )
    assert audited(load(folder), only=["forge_line"]).outcomes[0].result == "held"


def test_old_programs_that_only_run_as_scripts(tmp_path: Path) -> None:
    """The attack stands before the main block, where scripts begin to act."""

    text = insert_code(
        OLD_PACK + "\nif __name__ == '__main__':\n    run_packing()\n",
        all_attacks()["push"].code,
        {"x": 1},
    )
    assert text.index("audit_install(audit_attack)") < text.index("if __name__")


def test_an_attack_that_hangs_does_not_use_up_what_the_task_allows(tmp_path: Path) -> None:
    import asyncio

    from culmen.evaluate.local import LocalBackend
    from culmen.extensions.audit.sandbox import SandboxCopy

    folder = packing(tmp_path / "slow", verify=False)
    (folder / "task.toml").write_text(
        (folder / "task.toml").read_text().replace("seconds = 20", "seconds = 600")
    )
    task = load(folder)

    async def hang() -> str:
        copy = SandboxCopy(task, task.seeds[0], lambda task: LocalBackend(task, 1))
        try:
            await copy.start()
            await copy.limit_seconds(1.0)
            assert (copy.task.limits.seconds, task.limits.seconds) == (1.0, 600)
            return (
                await copy.evaluate({"pack.py": "def run():\n    while True:\n        pass\n"})
            ).reason
        finally:
            await copy.close()

    assert asyncio.run(hang()) in ("timeout", "cpu_limit")
