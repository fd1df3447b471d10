"""Runs that one text had ended go on: those that broke off with it, and new ones."""

import contextlib

import pytest

from culmen.cli.keep import replay_run
from culmen.core.errors import NoAnswer
from culmen.core.evaluation import Observation, Status
from culmen.core.foreign import UNREADABLE, boundary
from culmen.run.study import optimize
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.testing.scripted import ScriptedModel
from tests.boundaries import make_text
from tests.run.killed import FENCED, NAMES, PROGRAM, kill, model, resume, start
from tests.run.recorded import evaluate


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_a_text_had_ended_resumes_and_ends(name, tmp_path):
    kill(name, tmp_path / "run")
    reached = views.run_status(tmp_path / "run")
    assert reached.state == "interrupted"
    before = list(SqlJournal.open(tmp_path / "run").read())
    resume(name, tmp_path / "run")
    assert list(SqlJournal.open(tmp_path / "run").read())[: len(before)] == before
    status = views.run_status(tmp_path / "run")
    assert status.state == "finished" and status.evaluations > reached.evaluations


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_new_run_with_that_text_ends(name, tmp_path):
    start(name, tmp_path / "run")
    assert views.run_status(tmp_path / "run").state == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["best_of_n", "turboevolve", "pacevolve"])
def test_a_run_whose_model_replies_anything_ends(strategy, tmp_path):
    def reply(call):
        text = make_text(call.seed)
        return FENCED(PROGRAM + text) if call.seed % 2 else text

    with contextlib.suppress(NoAnswer):  # a good end where no answer can be used
        optimize(
            PROGRAM,
            evaluator=evaluate,
            strategy=strategy,
            model=ScriptedModel(reply),
            budget={"calls": 250, "evaluations": 100},
            workers=2,
            run_dir=tmp_path / "run",
            progress=False,
        )
    assert views.run_status(tmp_path / "run").state == "finished"
    assert replay_run(tmp_path / "run", verify=True).data["matches"]


@boundary()
def read_mark(text):
    """A reader that fails for every text but the initial program's."""
    return text.index("A = 0.5")


class Reading:
    """A backend that reads a candidate's text before it scores it."""

    async def start(self):
        return "limits"

    async def close(self):
        pass

    async def evaluate(self, candidate, case, seed, certify=False):
        read_mark(candidate.text)
        return Observation(candidate.id, Status.OK, score=0.5, seed=seed)


class Heard:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.words = []

    def see(self, events):
        pass

    def told(self, text):
        self.words.append(text)


def test_words_that_cannot_be_read_are_journaled_and_told_once(tmp_path):
    heard = Heard()
    optimize(
        PROGRAM,
        evaluator=evaluate,
        strategy="best_of_n",
        model=model("told"),
        backend=Reading(),
        budget={"evaluations": 12, "calls": 12},
        workers=1,
        run_dir=tmp_path / "run",
        progress=False,
        observers=[heard],
    )
    told = [text for text in heard.words if "counts as a fault" in text]
    assert len(told) == 1 and "unreadable: ValueError in" in told[0] and "read_mark" in told[0]
    results = [event.entry.result for event in SqlJournal.open(tmp_path / "run").read()]
    faults = [each for each in results if isinstance(each, Observation) and each.reason]
    assert {each.reason for each in faults} == {UNREADABLE} and "read_mark" in faults[0].feedback
    assert views.run_status(tmp_path / "run").state == "finished"
