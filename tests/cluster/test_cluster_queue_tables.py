"""The queue's tables and functions: leases, tries, copies and quotas as a state machine, and a worker's rights."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from culmen.cluster import queue
from culmen.cluster.queue_link import connection_text, new_token, prepare_queue, read_queue
from culmen.cluster.queue_schema import MIGRATIONS, worker_grants
from culmen.core.errors import UserError
from culmen.store.address import parse_address

pytestmark = pytest.mark.postgres
RETRIES = 2
LATER = "UPDATE culmen_queue.item SET expires = expires - interval '1 hour' WHERE state = 1 AND id = %s"


def connect(conninfo: str) -> Any:
    import psycopg

    return psycopg.connect(conninfo, autocommit=True)


class QueueMachine(RuleBasedStateMachine):
    """Three workers and two runs, one of them with a quota; `held` are leases as their holders know them."""

    url: str

    @initialize()
    def begin(self) -> None:
        address = parse_address(self.url)
        prepare_queue(address)
        self.base = connect(connection_text(address))
        self.base.execute("TRUNCATE culmen_queue.run, culmen_queue.worker RESTART IDENTITY CASCADE")
        self.tokens = [new_token(address, name, None, False) for name in "abc"]
        self.runs = [self.call(queue._ENTER, name, name, name, b"", b"", quota, RETRIES, 60.0)[0][0]
                     for name, quota in (("free", 0), ("held back", 2))]  # fmt: skip
        self.held: list[tuple[int, int, Any]] = []  # worker, item, lease
        self.answers: dict[int, list[bytes]] = {}
        self.tries: dict[int, int] = {}
        self.keys = 0

    def call(self, statement: str, *values: object) -> list[Any]:
        cursor = self.base.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    @rule(run=st.integers(0, 1), copies=st.integers(1, 2))
    def put(self, run: int, copies: int) -> None:
        self.keys += 1
        number, key = self.runs[run], self.keys.to_bytes(4, "big")
        body = ([b"h"] * copies, [b"{}"] * copies, [9.0] * copies)
        self.call(queue._PUT, number, [b"h"], [b"{}"], number, [key] * copies, list(range(copies)), *body)

    @rule(worker=st.integers(0, 2), free=st.integers(1, 3))
    def pull(self, worker: int, free: int) -> None:
        rows = self.call(
            "SELECT * FROM culmen_queue.pull(%s, %s, %s, NULL, '{}')", self.tokens[worker], f"p{worker}", free
        )
        assert len(rows) <= free
        for row in rows:
            self.held.append((worker, row[0], row[1]))
            self.tries[row[0]] = self.tries.get(row[0], 0) + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), answer=st.binary(max_size=3))
    def finish(self, data: Any, answer: bytes) -> None:
        """A current lease is answered, also twice; a lost one is refused."""
        worker, item, lease = data.draw(st.sampled_from(self.held))
        state, current = self.call("SELECT state, lease FROM culmen_queue.item WHERE id = %s", item)[0]
        other = self.tokens[(worker + 1) % 3]
        statement = "SELECT culmen_queue.finish(%s, %s, %s, %s)"
        assert not self.call(statement, other, item, lease, b"forged")[0][0]
        took = self.call(statement, self.tokens[worker], item, lease, answer)[0][0]
        assert took == (current == lease and state in (1, 2))
        if took and state == 1:
            self.answers.setdefault(item, []).append(answer)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["expire", "fail", "refuse", "leave"]))
    def lose(self, data: Any, how: str) -> None:
        worker, item, lease = data.draw(st.sampled_from(self.held))
        token = self.tokens[worker]
        before = self.call("SELECT state, lease, tries FROM culmen_queue.item WHERE id = %s", item)[0]
        if how == "expire":
            self.call(LATER, item)
            self.call("SELECT culmen_queue.end_expired()")
        elif how == "leave":
            self.call("SELECT culmen_queue.beat(%s, %s, 'h', 1, '{}', true)", token, f"p{worker}")
        else:
            refusal = "no" if how == "refuse" else None
            self.call("SELECT culmen_queue.fail(%s, %s, %s, 'broken', %s)", token, item, lease, refusal)
        after = self.call("SELECT state, tries FROM culmen_queue.item WHERE id = %s", item)[0]
        if before[0] == 1 and before[1] == lease:
            blameless = how in ("refuse", "leave")
            assert after[0] == (3 if before[2] > RETRIES and not blameless else 0)
            assert after[1] == before[2] - blameless

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not hasattr(self, "base"):
            return
        rows = self.call("SELECT id, run, key, copy, state, tries, worker, reply FROM culmen_queue.item")
        for number, _, _, _, state, tries, _, reply in rows:
            assert 0 <= tries <= RETRIES + 1 and tries <= self.tries.get(number, 0)
            assert (state == 2) == (reply is not None)
            assert ([reply] if state == 2 else []) == self.answers.get(number, [])  # accepted once
        holders = [(run, key, worker) for _, run, key, _, state, _, worker, _ in rows if state in (1, 2)]
        assert len(holders) == len(set(holders)), "two copies at one worker"
        assert sum(run == self.runs[1] and state == 1 for _, run, _, _, state, *_ in rows) <= 2, "over the quota"

    def teardown(self) -> None:
        if hasattr(self, "base"):
            self.base.close()


def test_no_sequence_of_calls_breaks_the_queue(database: str) -> None:
    machine = type("Machine", (QueueMachine,), {"url": database})
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=25))


def test_runs_take_turns(database: str) -> None:
    """A run with much work does not keep another one waiting."""
    machine = type("Machine", (QueueMachine,), {"url": database})()
    machine.begin()
    for _ in range(20):
        machine.put(0, 1)
    machine.put(1, 1)
    machine.put(1, 1)
    machine.pull(0, 4)
    runs = [machine.call("SELECT run FROM culmen_queue.item WHERE id = %s", item)[0][0] for _, item, _ in machine.held]
    assert sorted(runs) == sorted([*machine.runs, *machine.runs])
    machine.teardown()


def test_a_worker_has_no_right_but_its_functions(database: str) -> None:
    """The role of the printed grants sees no table, and no function of the owner; tokens are checked by the server."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    address = parse_address(database)
    prepare_queue(address)
    token = new_token(address, "w", ["mine"], False)
    name = address.url.partition("?")[0].rpartition("/")[2]
    with connect(connection_text(address)) as owner:
        for statement in worker_grants(name, f"worker_{name}").replace("'...'", "'secret'").split(";"):
            owner.execute(statement)
        for run in ("mine", "other"):
            owner.execute(queue._ENTER, (run, run, run, run.encode(), b"", 0, 1, 60.0))
            stored_body = (
                "INSERT INTO culmen_queue.artifact SELECT id, 'h', 'body' FROM culmen_queue.run WHERE name = %s"
            )
            owner.execute(stored_body, (run,))
        owner.execute("CREATE SCHEMA culmen_run_1")
        owner.execute("CREATE TABLE culmen_run_1.event (seq integer)")
        stored = owner.execute("SELECT token FROM culmen_queue.worker").fetchone()
        runs = dict(owner.execute("SELECT name, id FROM culmen_queue.run").fetchall())
    assert stored is not None and token.encode() not in stored[0]
    login = make_conninfo(user=f"worker_{name}", password="secret", dbname=name, host=database.partition("host=")[2])
    with connect(login) as worker:
        for table in ("run", "item", "worker", "artifact", "mark", "finding", "process", "format"):
            for statement in (f"SELECT * FROM culmen_queue.{table}", f"DELETE FROM culmen_queue.{table}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    worker.execute(statement)
        for statement in (
            "SELECT * FROM culmen_run_1.event",
            "SELECT culmen_queue.end_expired()",
            "SELECT culmen_queue.give_back('{1}')",
            "CREATE TABLE culmen_queue.mine (x integer)",
            "CREATE TEMPORARY TABLE item (x integer)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement)
        body = "SELECT culmen_queue.read_artifact(%s, %s, 'h')"
        assert worker.execute(body, (token, runs["mine"])).fetchone() == (b"body",)
        assert worker.execute(body, (token, runs["other"])).fetchone() == (None,)
        assert worker.execute("SELECT * FROM culmen_queue.describe(%s, %s)", (token, runs["other"])).fetchall() == []
        with pytest.raises(psycopg.Error, match="token"):
            worker.execute("SELECT * FROM culmen_queue.pull('guessed', 'p', 1, NULL, '{}')")


def test_a_queue_of_a_newer_version_is_refused(database: str) -> None:
    address = parse_address(database)
    assert prepare_queue(address) == len(MIGRATIONS) and prepare_queue(address) == 0
    with connect(connection_text(address)) as owner:
        owner.execute("UPDATE culmen_queue.format SET version = 99")
    with pytest.raises(UserError, match="newer culmen"):
        prepare_queue(address)


def test_a_queue_of_the_first_version_is_brought_up(database: str) -> None:
    """Its workers stay, without a place; until then the queue cannot be shown, and the error has the command."""
    address = parse_address(database)
    with connect(connection_text(address)) as owner:
        owner.execute("CREATE SCHEMA culmen_queue")
        owner.execute("SET search_path TO culmen_queue, pg_temp")
        owner.execute(MIGRATIONS[0])
        owner.execute("INSERT INTO format VALUES (1)")
        owner.execute("INSERT INTO worker (name, token) VALUES ('old', 'h')")
    with pytest.raises(UserError, match="no queue of this version") as caught:
        read_queue(address)
    assert "culmen queue setup" in caught.value.fix
    assert prepare_queue(address) == len(MIGRATIONS) - 1
    assert [(each["name"], each["place"]) for each in read_queue(address)["workers"]] == [("old", None)]
