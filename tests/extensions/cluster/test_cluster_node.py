"""The evaluator of one node by itself; no cluster is needed.

The requests that it accepts, loses and cancels, and the things it leaves behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.asking import AskingFailed
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Status
from culmen.core.task import Task
from culmen.extensions.cluster import messages, node
from culmen.extensions.cluster.messages import EvaluationJob, NodeReply, NodeTerms
from culmen.extensions.cluster.node import NodeActor, NodeAsker, NodeEvaluator, forget_secrets
from culmen.jail import procfs
from culmen.testing.backend_kit import kit_task

TERMS = NodeTerms(workers=2, seconds=60.0)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nodes make their folders below this one, and what they forget is there again afterwards."""
    before = dict(os.environ)
    (tmp_path / "nodes").mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nodes"))
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "task").mkdir()
    return kit_task(tmp_path / "task")


def on_node(
    task: Task, work: Callable[[NodeEvaluator], Awaitable[Any]], terms: NodeTerms = TERMS
) -> Any:
    """The result of `work` with a node that has begun."""

    async def run() -> Any:
        evaluator = NodeEvaluator()
        try:
            parcel = messages.pack_task(task)
            said = await evaluator.begin(
                parcel, messages.parcel_digest(parcel), messages.dump_struct(terms)
            )
            assert messages.load_struct(said, NodeReply).level
            return await work(evaluator)
        finally:
            await evaluator.close()

    return asyncio.run(run())


def job(task: Task, text: str | None = None, **changed: Any) -> bytes:
    candidate = Candidate.of(task.seeds[0] if text is None else {"program.py": text})
    sent = EvaluationJob(candidate.id, candidate.parts, task.cases[0].id, 1, False, 0)
    return messages.dump_struct(msgspec.structs.replace(sent, **changed))


def reply(raw: bytes) -> NodeReply:
    return messages.load_struct(raw, NodeReply)


@pytest.mark.jail
def test_a_job_is_evaluated_and_a_damaged_one_is_lost(task: Task):
    async def work(evaluator: NodeEvaluator) -> list[NodeReply]:
        jobs = [job(task), job(task, id="another"), job(task, case="unknown")]
        return [reply(await evaluator.evaluate(str(n), each, 60.0)) for n, each in enumerate(jobs)]

    good, *damaged = on_node(task, work)
    assert good.observation.status is Status.OK and good.lost == ""
    assert [(each.lost, each.observation) for each in damaged] == [("damaged", None)] * 2


@pytest.mark.jail
def test_the_state_of_random_that_a_node_was_left_with_is_no_part_of_an_evaluation(task: Task):
    """Ray keeps a worker's state of `random` from one task to the next."""
    drawing = "import random\n\n\ndef run(x):\n    return random.random()\n"

    async def work(evaluator: NodeEvaluator) -> list[float | None]:
        scores = []
        for number in (1, 2):
            random.seed(number)
            seen = reply(await evaluator.evaluate(str(number), job(task, drawing), 60.0))
            assert seen.observation is not None
            scores.append(seen.observation.score)
        return scores

    first, second = on_node(task, work)
    assert first == second is not None


async def begun(evaluator: NodeEvaluator, number: str) -> asyncio.Task[NodeReply]:
    while number not in evaluator._running:
        await asyncio.sleep(0)
    return evaluator._running[number]


@pytest.mark.jail
def test_what_takes_too_long_or_is_cancelled_is_lost_and_the_node_goes_on(task: Task):
    endless = "import time\n\n\ndef run(x):\n    time.sleep(600)\n"

    async def work(evaluator: NodeEvaluator) -> list[str]:
        first = asyncio.create_task(evaluator.evaluate("late", job(task, endless), 0.2))
        left_over = await begun(evaluator, "late")
        late = reply(await first)
        assert left_over.cancelling() or left_over.cancelled()
        running = asyncio.create_task(evaluator.evaluate("mine", job(task, endless), 60.0))
        await begun(evaluator, "mine")
        assert evaluator.idle_seconds == 0.0
        evaluator.cancel("nobody's")
        evaluator.cancel("mine")
        cancelled = reply(await running)
        after = reply(await evaluator.evaluate("next", job(task), 60.0))
        assert after.observation is not None and evaluator.idle_seconds > 0
        return [late.lost, cancelled.lost, after.observation.status]

    assert on_node(task, work) == ["deadline", "cancelled", Status.OK]


@pytest.mark.jail
def test_a_greater_epoch_renews_the_scorers_once(task: Task):
    async def work(evaluator: NodeEvaluator) -> list[set[int]]:
        children = []
        for number, epoch in enumerate((0, 0, 2, 2, 1)):
            assert reply(
                await evaluator.evaluate(str(number), job(task, epoch=epoch), 60.0)
            ).observation
            children.append(set(procfs.child_pids(os.getpid())))
        return children

    first, same, renewed, *later = on_node(task, work)
    assert first == same and renewed - first and later == [renewed, renewed]


def test_a_damaged_parcel_is_an_error_for_the_user(task: Task):
    async def run() -> NodeReply:
        evaluator = NodeEvaluator()
        try:
            return reply(
                await evaluator.begin(
                    messages.pack_task(task), "0" * 64, messages.dump_struct(TERMS)
                )
            )
        finally:
            await evaluator.close()

    said = asyncio.run(run())
    assert said.level == "" and said.error is not None


def test_an_actor_without_a_task_or_about_to_rest_takes_no_job(task: Task):
    async def run() -> str:
        actor = NodeActor()
        try:
            return reply(await actor.evaluate("1", job(task), 1.0)).lost
        finally:
            await actor.close()

    assert asyncio.run(run()) == "no_evaluator"


def test_questions_leave_by_the_outbox_and_replies_come_back_to_who_asked():
    async def run() -> None:
        evaluator = NodeEvaluator()
        first, second = (
            NodeAsker(name, evaluator._outbox, evaluator.replies) for name in ("a", "b")
        )
        waiting = [asyncio.create_task(each.ask({"number": 1})) for each in (first, second)]
        sent = [*await evaluator.next_questions(), *evaluator.questions_now()]
        while len(sent) < 2:
            sent += await evaluator.next_questions()
        keys = [key for key, _ in sent]
        assert [key.partition(messages.ASKED)[0] for key in keys] == ["a", "b"]
        evaluator.deliver_reply("given up", b"{}")
        evaluator.deliver_reply(keys[1], messages.dump_struct({"failed": {"reason": "calls"}}))
        evaluator.deliver_reply(keys[0], messages.dump_struct({"reply": {"text": "hi"}}))
        assert await waiting[0] == {"text": "hi"}
        with pytest.raises(AskingFailed) as caught:
            await waiting[1]
        assert caught.value.reason == "calls" and evaluator.replies == {}
        assert first.waited > 0 and evaluator.questions_now() == []
        await evaluator.close()

    asyncio.run(run())


def test_keys_are_forgotten_and_what_the_cluster_needs_is_kept(monkeypatch: pytest.MonkeyPatch):
    given = {
        "OPENAI_API_KEY": "1",
        "my_token": "1",
        "DB_PASSWORD": "1",
        "SLURM_JOB_TOKEN": "1",
        "RAY_KEY": "1",
        "PLAIN": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    forget_secrets()
    assert {name for name in given if name in os.environ} == {"SLURM_JOB_TOKEN", "RAY_KEY", "PLAIN"}


def test_a_nodes_folder_is_private_goes_with_it_and_those_of_dead_nodes_go_with_the_next(
    tmp_path: Path,
):
    nodes = tmp_path / "nodes"
    dead, alive = nodes / f"{node._PREFIX}dead", nodes / f"{node._PREFIX}alive"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "lock").touch()
    (nodes / "culmen-draft-of-somebody").mkdir()
    with open(alive / "lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        async def run() -> None:
            evaluator = NodeEvaluator()
            assert (
                not dead.exists()
                and alive.exists()
                and (nodes / "culmen-draft-of-somebody").exists()
            )
            (mine,) = set(nodes.glob(f"{node._PREFIX}*")) - {alive}
            assert mine.stat().st_mode & 0o777 == 0o711
            await evaluator.close()
            assert not mine.exists()

        asyncio.run(run())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower a nice value")
def test_a_node_works_at_the_usual_priority() -> None:
    """Ray starts workers at niceness 15; scores are to mean the same on a node as here."""
    code = (
        "import os, threading; from culmen.extensions.cluster.node import restore_priority\n"
        "os.nice(15); wait = threading.Event(); seen = []\n"
        "one = threading.Thread(target=lambda: (wait.wait(), seen.append(os.nice(0))))\n"
        "one.start(); restore_priority(); wait.set(); one.join(); print(os.nice(0), *seen)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0", "0"]


def test_a_node_that_may_not_raise_its_priority_names_it() -> None:
    code = (
        "import os; from culmen.extensions.cluster.node import restore_priority\n"
        "os.nice(5); os.geteuid() or os.setuid(65534); print(restore_priority())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["5"]
