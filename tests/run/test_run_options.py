"""The options of a run: one struct from the keywords to the journal."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from pathlib import Path

import msgspec
import pytest

import culmen
from culmen.cli.search import limits_data
from culmen.core.errors import JournalDamaged
from culmen.core.options import BackendChoice, Needs, RunOptions, TaskDefaults
from culmen.run import options
from culmen.run.options import CreateKeywords, ForkKeywords, ResumeKeywords
from culmen.run.study import Study
from culmen.store import views
from culmen.store.database import RunMeta
from tests.run.parts import Arithmetic, Dice, Flat

TASK = culmen.Task("number", seeds=({"number": "1.5"},), deterministic=True)


def stored(run: Path) -> dict:
    return json.loads(
        sqlite3.connect(run / "journal.db").execute("select meta from run").fetchone()[0]
    )


def made(folder: Path, **keywords: object) -> Study:
    return Study.create(TASK, "best_of_n", run_dir=folder, **keywords)  # pyright: ignore[reportArgumentType]


def test_defaults_of_a_task_are_read_as_they_were_stored(tmp_path: Path):
    preset = TaskDefaults(strategy="polca", settings={"epsilon": "0.1"})
    defaults = TaskDefaults(
        model="gpt-5",
        budget=culmen.Budget(evaluations=9),
        backend=BackendChoice(needs=Needs(cpu=2)),
        presets={"paper": preset},
    )
    task = msgspec.structs.replace(TASK, defaults=defaults)
    study = Study.create(task, "best_of_n", run_dir=tmp_path / "run")
    assert views.run_meta(study.path).task.defaults == defaults


def test_what_is_stored_keeps_its_names(tmp_path: Path):
    study = made(
        tmp_path / "run",
        model="offline",
        integrity="stop",
        random_seed=4,
        workers=2,
        require="limits",
    )
    plain = stored(study.path)
    assert (plain["seed"], plain["workers"], plain["budget"]) == (4, 2, {"evaluations": 200})
    assert (plain["model"], plain["integrity"], plain["require"]) == ("offline", "stop", "limits")
    assert views.run_meta(study.path) == study.meta


@pytest.mark.parametrize("kind", [CreateKeywords, ForkKeywords, ResumeKeywords])
def test_an_unknown_keyword_names_the_known_ones(kind: type):
    with pytest.raises(culmen.UserError, match=r"no keyword 'modell' here(.|\n)*models_file"):
        options.read_keywords({"modell": "gpt-5"}, RunOptions(), kind)


def test_a_resumed_run_keeps_its_budget(tmp_path: Path):
    study = made(tmp_path / "run")
    with pytest.raises(culmen.UserError, match="no keyword 'budget'"):
        Study.resume(study.path, budget=culmen.Budget(evaluations=9))  # pyright: ignore[reportCallIssue]


def test_objects_are_named_in_the_journal_and_nothing_more(tmp_path: Path):
    study = made(tmp_path / "run", model=Dice(), embedder=Flat(), backend=Arithmetic())
    meta = views.run_meta(study.path)
    assert meta.model == "tests.run.parts:Dice" and meta.embedder == "flat" and meta.backend is None


def test_a_fork_has_its_parents_options_but_for_those_given(tmp_path: Path):
    first = made(
        tmp_path / "run", integrity="reject", embedder="hashing-64", stop_at=3.0, workers=2
    )
    forked = Study.fork(
        first.path, tmp_path / "fork", budget=culmen.Budget(evaluations=9), stop_at=None
    )
    assert forked.meta.options == RunOptions(
        integrity="reject",
        embedder="hashing-64",
        workers=2,
        budget=culmen.Budget(evaluations=9),
        fork_of=str(first.path),
    )


@pytest.mark.parametrize(
    ("keyword", "thing"), [("backend", object()), ("embedder", 7), ("observers", (object(),))]
)
def test_an_object_that_cannot_do_its_part_is_refused_at_once(
    tmp_path: Path, keyword: str, thing: object
):
    with pytest.raises(culmen.UserError, match="is not a valid "):
        made(tmp_path / "run", **{keyword: thing})


@pytest.mark.parametrize(
    ("model", "own", "person"),
    [
        ("offline", False, False),
        ("gpt-5-mini", False, False),
        ("ft:gpt-4o-mini:acme::x1", False, False),
        ("ollama/llama3:8b", False, False),
        ("bank:/banks/one", False, False),
        ("mymodels.echo:Echo", True, False),
        ("tests.run:test_it.<locals>.reply", True, False),
        ("__main__:<lambda>", True, False),
        ("llama3:8b", False, False),
        ({"default": "gpt-5", "judge": "mymodels:judge"}, True, False),
        ({"default": "gpt-5", "summarizer": "gpt-5-mini"}, False, False),
        ("proposer=gpt-5|ask", False, True),
        ("3*ask|1*gpt-5", False, True),
        ("openai/ask", False, False),
        ("ask=gpt-5", False, False),
        ("bank:/x#ask", False, False),
    ],
)
def test_a_models_text_tells_objects_of_ones_own_and_a_person(model, own: bool, person: bool):
    chosen = RunOptions(model=model)
    assert (chosen.has_own_model, chosen.asks_person) == (own, person)


def test_models_given_by_role_have_prices_of_their_own():
    models: dict[str, str] = {"default": "openai/gpt-5", "summarizer": "openai/gpt-5-mini"}
    limits = limits_data(RunMeta("run", TASK, model=models, budget=culmen.Budget(calls=3)))
    assert limits["price_unknown"] == [] and limits["calls"] == 3


@pytest.mark.parametrize(
    ("keyword", "odd", "words"),
    [
        ("workers", "2", "workers cannot be of type str"),
        ("workers", "2", "pass a whole number"),
        ("budget", object(), "budget"),
        ("run_dir", 5, "pass a text or a path"),
        ("limits", 5, "pass Limits"),
        ("workers", -1, "cannot be -1"),
        ("workers", 10**9, "cannot be 1000000000"),
        ("random_seed", 2.5, "random_seed cannot be of type float"),
        ("random_seed", True, "Expected `int`, got `bool`"),
        ("goal", b"x", "goal cannot be of type bytes"),
        ("cases", 5, "cases cannot be of type int"),
        ("cases", [object()], "cannot be kept"),
        ("cases", [10**5000], "cannot be kept"),
        ("cases", [culmen.Case("\ud83d")], "cannot be kept"),
        ("objectives", ["a"], "objectives cannot be of type list"),
        ("constraints", 5, "constraints cannot be of type int"),
        ("limits", 5, "limits cannot be of type int"),
        ("same_draws", "no", "same_draws cannot be of type str"),
        ("deterministic", "no", "deterministic cannot be of type str"),
        ("run_dir", 5, "run_dir cannot be of type int"),
        ("run_dir", "a\0b", "cannot be kept"),
        ("run_dir", "x" * 400, "cannot be kept"),
        ("stop_at", math.nan, "'nan' is not a score"),
        ("stop_at", 10**400, "is not a score"),
        ("require", "limit", "no isolation level 'limit'"),
        ("models_file", "nowhere.toml", "models file"),
        ("fork_of", "nowhere", "nowhere"),
        ("observers", 5, "observers cannot be of type int"),
        ("budget", culmen.Budget(evaluations=-1), "evaluations"),
        ("budget", culmen.Budget(seconds=math.nan), "seconds"),
        ("budget", culmen.Budget(evaluations=10**400), "evaluations"),
    ],
)
def test_a_value_that_a_keyword_cannot_have_is_refused_before_anything_is_written(
    tmp_path: Path, keyword: str, odd: object, words: str
):
    given = {"budget": 1, "run_dir": tmp_path / "run", "progress": False, keyword: odd}
    with pytest.raises(culmen.UserError, match=re.escape(words)) as caught:
        culmen.optimize("1", float, **given)  # pyright: ignore[reportArgumentType]
    assert not isinstance(caught.value, JournalDamaged)
    assert not list(tmp_path.iterdir())


def test_none_is_the_default_of_any_keyword(tmp_path: Path):
    given = dict.fromkeys(["goal", "cases", "workers", "random_seed", "name", "constraints"])
    study = culmen.optimize("1", float, budget=1, run_dir=tmp_path / "r", progress=False, **given)
    assert study.status.evaluations == 1 and study.meta.task.name == "study"


@pytest.mark.parametrize("dollars", ["a", -1, math.nan, math.inf])
def test_a_price_that_no_call_has_is_refused(dollars: float):
    with pytest.raises(culmen.UserError, match="is no price"):
        culmen.Model(str, dollars=dollars)


def test_the_text_of_an_error_controls_no_terminal():
    error = culmen.UserError("a\x1b[2J", where="b\x9b", fix="c\n\0")
    assert str(error) == "a\\x1b[2J\n  where: b\\x9b\n  next:  c\n\\x00"
