"""`culmen watch`: the live view of a run, in a terminal that does not make it."""

from __future__ import annotations

import time
from pathlib import Path

from culmen.cli import session
from culmen.cli.screen import Answer, Screen
from culmen.observe.watch import INTERVAL, Watch
from culmen.store import views


def answer(screen: Screen, path: Path) -> Answer:
    """Show the run until it ends, or until Ctrl-C; then how it stands."""
    watch = Watch(session.display(screen, quiet=False))
    with watch.of(path):
        try:
            while views.status(path).state == "running":
                watch.see(())
                time.sleep(INTERVAL)
        except KeyboardInterrupt:
            pass
    now = views.status(path)
    return Answer(session.document(now, path), lambda screen: session.end(screen, now, path))
