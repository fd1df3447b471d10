"""The kit for evaluation backends, on this machine's own.

Also the data that travel to nodes, without any node.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import EVALUATOR_LOG, Observation, Status
from culmen.core.options import BackendChoice, Needs
from culmen.core.task import Task
from culmen.evaluate import backends as cluster
from culmen.evaluate.backends import make_backend
from culmen.evaluate.integrity.guard import EvaluatorChanged
from culmen.extensions.cluster import messages
from culmen.extensions.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.extensions.cluster.remote import Lost, RemoteBackend
from culmen.run.plan import requested_run
from culmen.run.request import RunRequest, session_keywords
from culmen.run.study import Study
from culmen.tasks import load
from culmen.testing.backend_kit import check_backend, check_cancel, kit_task


@pytest.mark.slow
def test_the_local_backend_keeps_its_promises(tmp_path: Path):
    asyncio.run(
        check_backend(lambda task, workers: make_backend(BackendChoice(), task, workers), tmp_path)
    )


def test_the_local_backend_ends_what_is_cancelled(tmp_path: Path):
    asyncio.run(
        check_cancel(lambda task, workers: make_backend(BackendChoice(), task, workers), tmp_path)
    )


def test_as_a_choice_a_backend_is_a_name_or_a_mapping():
    choice = BackendChoice("ray", "local", Needs(2, 1, 2 * 10**9, {"fpga": 0.5}), wait=9.0)
    assert cluster.as_choice(msgspec.to_builtins(choice)) == choice
    assert (
        cluster.as_choice("slurm") == BackendChoice("slurm")
        and cluster.as_choice(None) == BackendChoice()
    )
    for wrong in ("moon", {"address": "10.0.0.1:6379"}):
        with pytest.raises(UserError):
            cluster.as_choice(wrong)


def test_a_task_says_what_it_needs_and_a_run_remembers(tmp_path: Path):
    kit_task(tmp_path)
    toml = tmp_path / "task.toml"
    toml.write_text(
        toml.read_text() + '[resources]\ncpu = 2\nmemory = "1GB"\ncustom = { fpga = 1 }\n'
    )
    task = load(tmp_path)
    chosen = requested_run(
        tmp_path, RunRequest(backend="local", backend_set="gpu=1")
    ).options.backend
    assert chosen == BackendChoice(needs=Needs(2, 1, 10**9, {"fpga": 1.0}))
    study = Study.create(task, backend=chosen, run_dir=tmp_path / "run")
    kept = Study.open(study.path).meta
    assert kept.backend == chosen
    changed = session_keywords(kept, RunRequest(backend_set="gpu=0"))["backend"]
    assert changed.needs == Needs(2, 0, 10**9, {"fpga": 1.0})
    assert "backend" not in session_keywords(kept, RunRequest())


def test_a_parcel_arrives_as_it_was_sent(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    task = kit_task(here)
    sent = messages.pack_task(task)
    arrived = messages.unpack_task(sent, messages.parcel_digest(sent), there)
    assert arrived.digest == task.digest and arrived.evaluator.digest == task.evaluator.digest
    assert arrived.cases == task.cases and Path(arrived.evaluator.path).is_relative_to(there)
    assert {p.name for p in Path(arrived.root).iterdir()} == {p.name for p in here.iterdir()}
    with pytest.raises(TaskError):
        messages.unpack_task(sent, "0" * 64, tmp_path / "elsewhere")


def test_a_node_refuses_an_evaluator_that_is_not_the_runs(tmp_path: Path):
    here = tmp_path / "here"
    here.mkdir()
    task = kit_task(here)
    (here / "offset.txt").write_text("1.0")
    sent = messages.pack_task(task)
    with pytest.raises(EvaluatorChanged, match=r"offset\.txt"):
        messages.unpack_task(sent, messages.parcel_digest(sent), tmp_path / "there")


def test_odd_texts_and_numbers_cross():
    candidate = Candidate.of({"p": "\ud83d \x00 \x1b", "q": ""})
    assert messages.load_struct(
        messages.encode_job(candidate, None, 2**62, True, 3), EvaluationJob
    ) == EvaluationJob(candidate.id, candidate.parts, None, 2**62, True, 3)
    seen = Observation("c", Status.OK, -0.5, metrics={"a": float("inf")}, feedback="\udc00")
    assert (
        messages.load_struct(
            messages.dump_struct(NodeReply(observation=seen)), NodeReply
        ).observation
        == seen
    )


class Unlucky:
    """A carrier that loses the first `losses` jobs."""

    def __init__(self, losses: int) -> None:
        self.retries, self.terms, self._losses, self.tried = 2, b"", losses, 0

    async def open(self, parcel: bytes, name: str) -> bytes:
        return READY

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        self.tried += 1
        if self.tried <= self._losses:
            raise Lost("node_died")
        asked = messages.load_struct(job, EvaluationJob)
        return messages.dump_struct(NodeReply(observation=Observation(asked.id, Status.OK, 1.0)))

    def room(self) -> int:
        return 3

    async def close(self) -> None:
        return None


READY = messages.dump_struct(NodeReply(level="restricted", niceness=15))


@pytest.mark.parametrize("losses", [0, 2, 3])
def test_what_a_node_took_down_is_tried_again_and_then_lost_not_bad(losses: int):
    carrier, told = Unlucky(losses), list[str]()

    async def work() -> Observation:
        backend = RemoteBackend(Task("t"), 1, carrier, on_message=told.append)
        assert await backend.start() == "restricted"
        assert "niceness 15" in backend.notes[0].what
        assert (
            messages.load_struct(carrier.terms, NodeTerms).level == "restricted"
        )  # what nodes that join later must reach
        try:
            return await backend.evaluate(Candidate.of({"p": ""}), None, 1)
        finally:
            await backend.close()

    seen = asyncio.run(work())
    assert carrier.tried == min(3, losses + 1)
    assert (seen.status, seen.score, seen.reason) == (
        (Status.OK, 1.0, "") if losses < 3 else (Status.LOST, None, "node_died")
    )
    lost = f"Lost with their worker or node: {losses} evaluations (node died); each is tried again, at most 2 times."
    assert told == ([lost] if losses else [])
    log = {2: {EVALUATOR_LOG: "attempt 3: lost before (node died, node died)"}}
    assert seen.artifacts == log.get(losses, {})
