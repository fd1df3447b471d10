"""Deriving a run again from its journal, to see that nothing in it depends on luck."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import JournalMismatch
from culmen.core.event import Event
from culmen.observe.figures import clean, count
from culmen.store.journal import SqlJournal


class Journaled(msgspec.Struct):
    """What the journal says came out: filled while its events pass by."""

    notes: list[dict[str, Any]] = []
    state: str = ""
    reason: str = ""
    winner: dict[str, Any] | None = None

    def watch(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass events through, remembering what the replay must come to."""
        for event in events:
            entry = event.entry
            if entry.kind == "note" and entry.key:
                self.notes.append(entry.body)
            elif entry.kind == "state":
                self.state = str(entry.body.get("state", ""))
                self.reason = str(entry.body.get("reason", ""))
                self.winner = entry.body.get("winner")
            yield event


def answer(run: Path, verify: bool) -> Answer:
    """Replay and compare."""
    from culmen.engine.replay import replay
    from culmen.run.live import rebuild
    from culmen.study import Parts

    journal = SqlJournal.open(run)
    said, differences = Journaled(), list[str]()
    effects = 0
    try:
        search, estimate = rebuild(run, journal.meta, Parts())
        try:
            replayed = replay(search, said.watch(journal.read()), estimate)
            effects = replayed.effects
            if said.state == "finished":
                differences += _compare(search, said)
        except JournalMismatch as error:
            differences.append(error.what)
        finally:
            search.close()
    finally:
        journal.close()
    matches = not differences
    data = {
        "run": run.name,
        "matches": matches,
        "effects": effects,
        "finished": said.state == "finished",
        "winner": said.winner,
        "differences": differences,
    }
    return Answer(data, lambda screen: _show(screen, data), 0 if matches or not verify else JournalMismatch.exit_code)


def _compare(search: Any, said: Journaled) -> list[str]:
    """Differences between what the replay came to and what the journal says."""
    found: list[str] = []
    verdict = search.verdict
    winner = None if verdict is None else msgspec.json.decode(msgspec.json.encode(verdict))  # as the journal has it
    if not search.done:
        found.append("the journal says the run finished, the replay does not come to an end")
    if winner != said.winner:
        found.append(f"the final choice differs: journal {said.winner}, replay {winner}")
    if search.reason != said.reason:
        found.append(f"the reason it ended differs: journal '{said.reason}', replay '{search.reason}'")
    return found


def _show(screen: Screen, data: dict[str, Any]) -> None:
    effects = count(data["effects"], "effect")
    if data["matches"]:
        end = ", and the same final choice" if data["finished"] else " (the run has not finished yet)"
        screen.line(f"matches: {effects} derived again, all the same{end}", style="green")
        return
    screen.line(f"does not match, after {effects}:", style="red")
    for text in data["differences"]:
        screen.line(f"  {clean(text)}")
    screen.next_steps((f"culmen fork {data['run']}", "a new run that reuses every finished result"))
