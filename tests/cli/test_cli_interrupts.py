"""Ctrl-C in a verb, at a moment when an event loop is half made."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest
import typer
from typer.testing import CliRunner

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED, declare_verb


def interrupted_early(_screen: Screen) -> Answer:
    """A verb that is interrupted while `asyncio.run` makes its loop."""
    work = asyncio.sleep(0)
    loop = asyncio.SelectorEventLoop.__new__(asyncio.SelectorEventLoop)
    assert work and loop is not None
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("error")
def test_what_an_interrupt_left_half_made_goes_without_complaints(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app = typer.Typer()
    declare_verb(app, interrupted_early, "early", "Any")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what other tests left
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        answer = CliRunner().invoke(app, [], standalone_mode=False)
        gc.collect()
    assert answer.return_value == INTERRUPTED
    assert "interrupted" in answer.output
    assert complaints == []
    assert "Traceback" not in answer.output + "".join(capfd.readouterr())
