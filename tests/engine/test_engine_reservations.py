"""The one owner of reservations for calls in flight: which wait, go first, are refused."""

from __future__ import annotations

import asyncio

from culmen.core.usage import Budget, Usage
from culmen.engine.ledger import PERFORMING, Ledger, Reservations


def made(**budget) -> tuple[Ledger, Reservations]:
    ledger = Ledger(Budget(**budget), 0)
    return ledger, Reservations(ledger)


def calls(number: int) -> Usage:
    return Usage(calls=number)


def test_who_came_first_goes_first_and_nothing_is_given_twice() -> None:
    ledger, owner = made(calls=5)
    order: list[int] = []

    async def effect(key: int, need: int) -> None:
        assert await owner.open_reservation(key, calls(need)) == ""
        order.append(key)

    async def main() -> None:
        assert await owner.open_reservation(1, calls(4)) == ""
        waiting = [asyncio.create_task(effect(key, need)) for key, need in ((2, 3), (3, 1))]
        await asyncio.sleep(0)
        assert order == []  # the third would fit, but the second came before it
        assert owner.try_grow_reservation(1, calls(5)) and not owner.try_grow_reservation(
            1, calls(6)
        )
        ledger.settle(1, calls(1))
        assert owner.release(1) == calls(5) and owner.release(1) is None
        await asyncio.gather(*waiting)
        assert (
            order == [2, 3]
            and owner.try_grow_reservation(2, calls(3))
            and not owner.try_grow_reservation(2, calls(4))
        )

    asyncio.run(main())


def test_what_no_wait_will_make_room_for_is_refused_by_name() -> None:
    _, owner = made(calls=5, dollars=1.0)

    async def main() -> None:
        assert await owner.open_reservation(1, Usage(calls=1, dollars=2.0)) == "dollars"
        assert await owner.open_reservation(1, Usage(calls=1, uncertain_dollars=2.0)) == "dollars"
        assert await owner.open_reservation(2, calls(5)) == ""
        late = asyncio.create_task(owner.open_reservation(3, calls(6)))
        await asyncio.sleep(0)
        assert not late.done()
        owner.release(2)
        assert await late == "calls"

    asyncio.run(main())


def test_who_waits_can_be_cancelled_and_the_next_goes_on() -> None:
    ledger, owner = made(calls=3)

    async def main() -> None:
        assert await owner.open_reservation(1, calls(2)) == ""
        first, second = (
            asyncio.create_task(owner.open_reservation(key, calls(need)))
            for key, need in ((2, 3), (3, 1))
        )
        await asyncio.sleep(0)
        first.cancel()
        assert await second == ""
        assert not owner.has_room_for(calls(1))
        ledger.settle(1, Usage())
        owner.release(1)
        assert owner.has_room_for(calls(1)) and not owner.has_room_for(calls(3))

    asyncio.run(main())


def test_a_permit_is_for_the_effect_that_the_task_performs() -> None:
    _, owner = made(calls=4)

    async def performing(key: int, need: int) -> bool:
        PERFORMING.set(key)
        await owner.open_reservation(key, Usage())
        return await asyncio.create_task(asyncio.sleep(0, owner.permit_current_effect(calls(need))))

    async def main() -> None:
        assert await asyncio.gather(performing(1, 2), performing(2, 2), performing(3, 1)) == [
            True,
            True,
            False,
        ]
        assert owner.release(1) == owner.release(2) == calls(2)

    asyncio.run(main())
