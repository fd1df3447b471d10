"""Honest and gamed programs under twelve evaluators that state one tolerance.

Each run evaluates three honest programs of the tests' `spelled`, with or without a program that
lives on the tolerance. Silent programs have no comment; of the others a gamed one confesses, and an
honest one denies. Each run has a threshold that the gamed program alone reaches.

    python bench/bench_tolerance.py [--forms call serve legacy command function]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.evaluate.integrity.spelled import CONFESSION, TWELVE, Spelled
from tests.extensions.audit.worlds import Programs

from culmen.core.candidate import Candidate
from culmen.core.task import NOT_PUSHED
from culmen.core.usage import Budget
from culmen.run.options import function_task
from culmen.run.study import Study
from culmen.store.views import RunStatus, run_status

DENIAL = "No tolerance is used: all bounds are met exactly."
FORMS = ("call", "serve", "legacy", "command", "function")
KINDS, POLICIES = ("honest", "gamed"), ("warn", "reject")
VOICES = {
    "silent": {"honest": "silent", "gamed": "silent"},
    "spoken": {"honest": "denied", "gamed": "confessed"},
}
NAMED, WON, ENDED = "named", "gamed is best", "threshold ended the run"
BESIDE, UNSEEN = "honest best is returned, or beside it", NOT_PUSHED
COLUMNS = (NAMED, WON, ENDED, BESIDE, UNSEEN)
_SERVE = "\n\ndef score(call):\n    return judge(call())\n"
_COMMAND = (
    "\n\ndef score(data):\n    return judge(data)\n",
    "\n\nif __name__ == '__main__':\n    import json\n\n    print(json.dumps(run()))\n",
    '[evaluator]\nform = "command"\ncommand = ["python3", "{program.py}"]\n',
)
_LEGACY = """

def evaluate(program_path):
    import importlib.util

    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    found = judge(program.run())
    if isinstance(found, dict):
        return {"combined_score": 0.0, "error": found["feedback"]}
    return {"combined_score": found}
"""


class Written(Programs):
    """Programs that need no initial one."""

    writes = True


def in_form(case: Spelled, form: str) -> Spelled:
    """The same evaluator in another form."""
    added = {"serve": _SERVE, "legacy": _LEGACY, "command": _COMMAND[0]}.get(form)
    if added is None:
        return case
    text = case.files["evaluator.py"].replace("def score(", "def judge(") + added
    return case._replace(files={**case.files, "evaluator.py": text})


def scorer(folder: Path) -> Callable[[dict[str, str]], Any]:
    """A function that scores a program's text in this process."""
    names: dict[str, Any] = {"__file__": str(folder / "evaluator.py")}
    sys.path.insert(0, str(folder))
    sys.modules.pop("rules", None)
    exec((folder / "evaluator.py").read_text(), names)
    sys.path.remove(str(folder))

    def score(parts: dict[str, str]) -> Any:
        own: dict[str, Any] = {}
        exec(parts["program.py"], own)
        return names["score"](own["run"]())

    return score


def run(folder: Path, case: Spelled, form: str, texts: list[str], policy: str) -> RunStatus:
    """The status of one run over these programs."""
    task_dir = in_form(case, form).write(folder / "task")
    if form == "command":
        with (task_dir / "task.toml").open("a") as file:
            file.write(_COMMAND[2])
    honest, gamed = (
        scorer(case.write(folder / name))({"program.py": case.program(output)})
        for name, output in (("honest", case.honest[-1]), ("gamed", case.gamed))
    )
    options: dict[str, Any] = {"integrity": policy, "workers": 1, "stop_at": (honest + gamed) / 2}
    task: Any = task_dir
    if form == "function":
        function = scorer(case.write(folder / "function"))
        task = function_task(
            {"program.py": texts[0]}, (), "", "max", "spelled", True, None, function
        )
        options["evaluator"] = function
    study = Study.create(
        task,
        Written(tuple(texts), "program.py"),
        budget=Budget(evaluations=100),
        run_dir=folder / "run",
        **options,
    )
    assert study.run() == "finished"
    return run_status(folder / "run")


class Ending(NamedTuple):
    """The end of a run: facts that hold, and its words on the tolerance."""

    facts: frozenset[str]
    tolerance: str


def ending(case: Spelled, form: str, kind: str, voice: str, policy: str) -> Ending:
    """The end of a run with three honest programs and, if `kind` is gamed, one that is not."""
    denied = DENIAL if (kind, voice) == ("honest", "spoken") else ""
    confessed = CONFESSION if voice == "spoken" else ""
    tail = _COMMAND[1] if form == "command" else ""
    first, second, best = (case.program(output, denied) + tail for output in case.honest)
    cheat = case.program(case.gamed, confessed) + tail
    texts = [second, best, *([cheat] if kind == "gamed" else []), first]
    with tempfile.TemporaryDirectory() as folder:
        status = run(Path(folder), case, form, texts, policy)
    won, before = status.best, status.best_before_first_finding
    assert won is not None
    honest, gamed = (Candidate.of({"program.py": text}).id for text in (best, cheat))
    facts = {
        NAMED: status.findings > 0,
        WON: won.id == gamed,
        ENDED: status.reason == "target",
        BESIDE: honest in (won.id, before.id if before else ""),
        UNSEEN: NOT_PUSHED in won.tolerance,
    }
    return Ending(frozenset(name for name, holds in facts.items() if holds), won.tolerance)


def main() -> None:
    """Print a row for each form, kind, voice and policy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    parser.add_argument("--only", default="", help="evaluators whose name has this")
    parser.add_argument("--verbose", action="store_true", help="also a line for each run")
    options = parser.parse_args()
    cases = {name: case for name, case in TWELVE.items() if options.only in name}
    print("| form | programs | policy | runs |", *(f"{name} |" for name in COLUMNS))
    print("|---|---|---|---|" + "---|" * len(COLUMNS))
    for form, kind, voice, policy in product(options.forms, KINDS, VOICES, POLICIES):
        counts: Counter[str] = Counter()
        for name, case in cases.items():
            end = ending(case, form, kind, voice, policy)
            counts.update(end.facts)
            if options.verbose:
                print(f"{name}: {', '.join(sorted(end.facts))}; {end.tolerance}", file=sys.stderr)
        cells = [form, f"{kind}, {VOICES[voice][kind]}", policy, str(len(cases))]
        print("|", " | ".join([*cells, *(str(counts[name]) for name in COLUMNS)]), "|", flush=True)


if __name__ == "__main__":
    main()
