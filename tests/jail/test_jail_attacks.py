"""Every program in culmen/extensions/audit/jail_attacks/ against every form of evaluator.

The score is not won, nothing leaks, and the run goes on.

The first lines of an attack say how it may end (`# expect:` reasons, "ok" for a score) and where it
does not apply (`# not:` forms or levels): those on the scorer in its own process mean nothing where
both share one, which is what "shared" stands for: an evaluator of the form legacy without a proxy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.cli.main import main
from culmen.core.evaluation import Case, Status
from culmen.core.task import Evaluator, Task
from culmen.extensions.audit import jail_suite as attack_suite
from culmen.extensions.audit.jail_suite import (
    ATTACKS,
    FAKE_KEY,
    HONEST,
    JUDGE,
    Decoys,
    header_words,
)
from tests.evaluate.conftest import LIMITS, Ground, need, texts, wait_until

SOURCES = {
    "call": JUDGE + "def score(output, case):\n    return judge(output, case.input['values'])\n",
    "serve": JUDGE
    + "def score(call, case):\n    return judge(call(case.input), case.input['values'])\n",
    "command": JUDGE
    + "def score(output, data, case):\n    return judge(data or output, case.input['values'])\n",
    "legacy": JUDGE
    + """
import importlib.util, json, os
TARGET = json.load(open(os.path.join(os.path.dirname(__file__), "target.json")))
def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"combined_score": judge(module.run(**TARGET), TARGET["values"])}
""",
}
TAILS = {
    "serve": "\n\ndef serve(target):\n    return run(**target)\n",
    "command": "\n\nif __name__ == '__main__':\n    import json, sys\n"
    "    print(json.dumps(run(**json.load(sys.stdin)), default=str))\n",
}
SOURCES["shared"] = SOURCES["legacy"]
GROUNDS = [
    "call@namespaces",
    "call@restricted",
    "serve@namespaces",
    "command@namespaces",
    "legacy@namespaces",
    "legacy@restricted",
    "shared@namespaces",
]


PAIRS = [
    pytest.param(place, name, id=f"{place}-{name}")
    for place in GROUNDS
    for name, text in ATTACKS.items()
    if not header_words(text, "not") & {*place.split("@")}
]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Ground, Decoys]]]:
    """One backend per kind, kept over all attacks: a run goes on after each of them."""
    made: dict[str, tuple[Ground, Decoys]] = {}
    yield made
    for ground, around in made.values():
        ground.close()
        around.close()


def enter(
    arena: dict[str, tuple[Ground, Decoys]], place: str, folder: Path
) -> tuple[Ground, Decoys]:
    if place not in arena:
        form, level = place.split("@")
        need(level)
        os.environ["OPENAI_API_KEY"] = FAKE_KEY
        around = Decoys(folder, SOURCES[form])
        if form in ("legacy", "shared"):
            (around.task_folder / "target.json").write_text(json.dumps(around.attack_arguments()))
            around.before = around.file_states()
        evaluator = Evaluator(
            form="legacy" if form == "shared" else form,  # type: ignore[arg-type]
            proxy="never" if form == "shared" else "always",
            path=str(around.evaluator),
            entry="serve" if form == "serve" else "run",
            command=("python", "{program.py}"),
        )
        seeds = ({"program.py": HONEST},) if form == "legacy" else ()
        arena[place] = (
            Ground(Task("attacked", evaluator=evaluator, seeds=seeds, limits=LIMITS), level),
            around,
        )
    return arena[place]


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize(("place", "name"), PAIRS)
def test_attack_fails(
    place: str,
    name: str,
    arena: dict[str, tuple[Ground, Decoys]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ground, around = enter(arena, place, tmp_path_factory.mktemp("arena"))
    tail = TAILS.get(place.split("@")[0], "")
    case = Case("1", around.attack_arguments(), info={"secret": around.secret})
    attacks = [ATTACKS[name] + tail] * (2 if name == "leftovers" else 1)

    *hostile, beside = ground.evaluate(*attacks, HONEST + tail, case=case)

    for observation in hostile:
        outcome = "ok" if observation.ok else observation.reason
        assert outcome in header_words(ATTACKS[name], "expect") | also(place), (
            outcome,
            observation.feedback,
        )
        assert observation.status is not Status.LOST
        assert observation.score in (None, 0.0)
        assert FAKE_KEY not in texts(observation)
    assert beside.score == 1.0, (beside.reason, beside.feedback)
    after = ground.one(HONEST + tail, case=case)
    assert after.score == 1.0, (after.reason, after.feedback)
    assert not around.describe_harm()
    assert wait_until(lambda: ground.processes() == [])


def also(place: str) -> set[str]:
    """Endings that a form adds.

    A command has an exit status and prints text, drivers see exceptions.
    """
    extra = {"exit_status", "exception", "no_output"}
    return (
        extra | {"ok"}
        if place.startswith("command")
        else extra
        if place.startswith("serve")
        else set()
    )


def test_patched_clocks_do_not_shorten_the_time_taken(
    arena: dict[str, tuple[Ground, Decoys]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ground, around = enter(arena, "call@namespaces", tmp_path_factory.mktemp("arena"))
    observation = ground.one(ATTACKS["patch_clocks"], case=Case("1", around.attack_arguments()))
    assert observation.seconds >= 0.25


CHEAT = "# expect: ok\ndef run(**target):\n    return {'loot': ['everything']}\n"


@pytest.mark.slow
def test_the_doctor_says_who_won_and_who_was_held(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    need("restricted")
    chosen = {
        "cheat": CHEAT,
        "unix_sockets": ATTACKS["unix_sockets"],
        "limits_of_others": ATTACKS["limits_of_others"],
    }
    monkeypatch.setattr(attack_suite, "ATTACKS", chosen)
    assert main(["doctor", "--attack", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["attacks"] == {
        "cheat": "WON: scored 100",
        "unix_sockets": "held",
        "limits_of_others": "held",
    }
    assert report["won"] == 1 and report["level"] in ("namespaces", "restricted")
    monkeypatch.setattr(attack_suite, "ATTACKS", {"unix_sockets": ATTACKS["unix_sockets"]})
    assert main(["doctor", "--attack"]) == 0
    assert "0 of 1 attacks won" in capsys.readouterr().out
