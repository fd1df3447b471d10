"""The trampoline: order, errors, closing."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.engine.loop import Future, Loop


def test_tasks_advance_in_the_order_their_futures_are_resolved():
    loop, seen = Loop(), []
    futures = [Future() for _ in range(4)]

    async def wait(n):
        seen.append((n, await futures[n]))

    for n in range(4):
        loop.spawn(wait(n))
    loop.drain()
    for n in (2, 0, 3, 1):
        futures[n].resolve(n * 10)
    loop.drain()
    assert seen == [(2, 20), (0, 0), (3, 30), (1, 10)]


@given(st.permutations(range(6)))
def test_gather_returns_results_in_the_order_given_whatever_the_completion_order(order):
    loop = Loop()
    futures = [Future() for _ in range(6)]

    async def get(n):
        return await futures[n]

    root = loop.spawn(loop.gather(*(get(n) for n in range(6))))
    loop.drain()
    for n in order:
        assert not root.done
        futures[n].resolve(n)
        loop.drain()
    assert root.result() == list(range(6))


def test_the_first_error_in_a_gather_closes_the_others_and_is_raised():
    loop, closed = Loop(), []
    never = Future()

    async def patient():
        try:
            await never
        finally:
            closed.append("patient")

    async def hasty():
        raise ValueError("no")

    root = loop.spawn(loop.gather(patient(), hasty()))
    loop.drain()
    assert isinstance(root.error, ValueError)
    assert closed == ["patient"]


def test_close_runs_finally_blocks_of_nested_tasks_once():
    loop, closed = Loop(), []
    never = Future()

    async def leaf(n):
        try:
            await never
        finally:
            closed.append(n)

    async def branch():
        await loop.gather(leaf(1), leaf(2))

    loop.spawn(branch())
    loop.drain()
    loop.close()
    assert sorted(closed) == [1, 2]
    never.resolve(None)
    loop.drain()
    assert sorted(closed) == [1, 2]


def test_a_settled_future_keeps_its_first_value():
    future = Future()
    future.resolve(1)
    future.resolve(2)
    future.fail(ValueError())
    assert future.result() == 1


def test_awaiting_a_failed_task_raises_its_error():
    loop = Loop()

    async def child():
        raise KeyError("x")

    async def parent():
        task = loop.spawn(child())
        with pytest.raises(KeyError):
            await task
        return "caught"

    root = loop.spawn(parent())
    loop.drain()
    assert root.result() == "caught"


def test_what_is_not_done_when_the_time_is_over_is_ended_where_it_stands():
    loop, limit, closed = Loop(), Future(), []

    async def patient():
        try:
            await Future()
        finally:
            closed.append("patient")

    async def quick():
        return 1

    root = loop.spawn(loop.within(limit, quick(), patient()))
    loop.drain()
    assert not root.done and not closed
    limit.resolve(None)
    loop.drain()
    assert root.result() == [1, None] and closed == ["patient"]


def test_where_the_time_is_over_already_nothing_begins():
    loop, limit, begun = Loop(), Future(), []
    limit.resolve(None)

    async def eager():
        begun.append(1)

    root = loop.spawn(loop.within(limit, eager(), eager()))
    loop.drain()
    assert root.result() == [None, None] and not begun


def test_an_error_within_a_time_limit_closes_the_others_and_is_raised():
    loop, closed = Loop(), []

    async def patient():
        try:
            await Future()
        finally:
            closed.append("patient")

    async def hasty():
        raise ValueError("no")

    root = loop.spawn(loop.within(Future(), patient(), hasty()))
    loop.drain()
    assert isinstance(root.error, ValueError) and closed == ["patient"]


def test_what_has_ended_is_not_kept():
    """A search spawns as many as it likes, for days."""

    class Large:
        pass

    loop, kept = Loop(), []

    async def make():
        large = Large()
        kept.append(weakref.ref(large))
        return large

    for _ in range(3):
        loop.spawn(make())
    loop.drain()
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3
