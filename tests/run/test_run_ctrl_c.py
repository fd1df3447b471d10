"""Ctrl-C while the event loop of a session is made, and while it is taken down."""

import asyncio
import gc
import signal
import sys

import pytest

from culmen.run.assemble import run_blocking

BEFORE = ("new_event_loop", "BaseSelectorEventLoop.__init__", "BaseEventLoop.create_task")
AFTER = (
    "_cancel_all_tasks",
    "BaseEventLoop.shutdown_default_executor",
    "_UnixSelectorEventLoop.close",
)


@pytest.fixture
def interrupted_in():
    """Sends Ctrl-C to this process when a function of this name is called."""
    told = []

    def interrupt_in(name):
        def watch(frame, event, argument):
            if event == "call" and frame.f_code.co_qualname == name and not told:
                told.append(name)
                signal.raise_signal(signal.SIGINT)

        sys.setprofile(watch)

    yield interrupt_in
    sys.setprofile(None)


async def session(seen):
    async def wait():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.to_thread(seen.append, "left")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    seen.append("begun")
    waiting.cancel()
    return 5


@pytest.mark.parametrize("name", BEFORE)
def test_ctrl_c_before_the_session_ends_it(name, interrupted_in, recwarn, capfd):
    seen = []
    work = session(seen)
    interrupted_in(name)
    with pytest.raises(KeyboardInterrupt):
        run_blocking(work)
    sys.setprofile(None)
    gc.collect()
    assert seen == [] and not recwarn.list
    assert capfd.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("name", AFTER)
def test_ctrl_c_after_the_session_leaves_no_task(name, interrupted_in, recwarn, capfd):
    seen = []
    interrupted_in(name)
    assert run_blocking(session(seen)) == 5
    sys.setprofile(None)
    gc.collect()
    assert "begun" in seen and not recwarn.list
    assert capfd.readouterr().err == ""
