"""The protocol between the evaluator's process and the candidate's.

It is one table, and nothing beside it.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.extensions.compat.openevolve.proxy.candidate_process import CandidateServer
from culmen.extensions.compat.openevolve.proxy.connection import ReplyKind
from culmen.extensions.compat.openevolve.proxy.operations import (
    TABLE,
    Operation,
    OperationRefused,
    Side,
    rule_of,
)
from culmen.jail import wire

PAGE = Path(__file__).parents[4] / "docs" / "decisions" / "proxy.md"


def test_every_operation_has_one_rule_and_a_handler_of_its_own() -> None:
    assert list(TABLE) == list(Operation)
    handlers = [rule.handler for rule in TABLE.values()]
    assert len(set(handlers)) == len(handlers) and all(map(callable, handlers))
    kinds = [*map(str, Operation), *map(str, ReplyKind)]
    assert len(set(kinds)) == len(kinds) and all(len(kind) == 1 for kind in kinds)


@pytest.mark.parametrize("side", Side)
def test_only_what_is_in_the_table_may_be_asked_and_only_by_its_side(side: Side) -> None:
    for number in range(128):
        mine = [
            rule
            for operation, rule in TABLE.items()
            if operation == chr(number) and rule.asker is side
        ]
        if mine:
            assert [rule_of(chr(number), side)] == mine
        else:
            with pytest.raises(OperationRefused):
                rule_of(chr(number), side)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=CandidateServer(theirs, tmp_path).connection.serve)
    thread.start()
    with ours:
        yield ours
    thread.join()
    theirs.close()


@pytest.mark.parametrize("kind", ["?", "B", "R", "\0"])
def test_a_server_refuses_what_it_may_not_be_asked_and_goes_on(
    served: socket.socket, kind: str
) -> None:
    for _ in range(2):
        wire.send(served, kind, wire.encode([None, 0, [], {}]))
        answered, payload = wire.receive(served, 1 << 20)
        assert answered == ReplyKind.EXCEPTION and b"OperationRefused" in payload


def test_the_page_for_reviewers_shows_the_table() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \|", PAGE.read_text(), re.M)
    assert rows == [
        (o.name, rule.asker.value, rule.request, rule.answer) for o, rule in TABLE.items()
    ]
