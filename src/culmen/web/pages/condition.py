"""What a strategy's own notes say in a sentence each, and whether that is healthy: above its Memory and Mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from culmen.observe.figures import count, number
from culmen.store.views import StrategyNote
from culmen.web.runs import Digest

Bodies = Sequence[dict[str, Any]]
Finding = tuple[str, bool]  # the sentence, and whether it is healthy
_ENOUGH = 6  # notes of a kind below which nothing is concluded from the last third of them
_FADED = 0.01  # of the gain expected at first: less than that is little
_SIMILAR = 0.5  # share of refused candidates above which the filter is too wide


def condition(run: Digest) -> list[dict[str, Any]]:
    """One finding for each kind of note that is understood: `text`, and `healthy`. `run` is up to date."""
    kinds: dict[str, list[StrategyNote]] = {}
    for note in run.notes:
        kinds.setdefault(note.kind, []).append(note)
    made = [(TELL[kind]([note.body for note in notes])) for kind, notes in kinds.items() if kind in TELL]
    return [{"text": text, "healthy": healthy} for text, healthy in made]


def _pedigree(notes: Bodies) -> Finding:
    again = sum(note.get("action") == "again" for note in notes)
    told = f"{count(len(notes) - again, 'request')} for children, {count(again, 'repeated evaluation')}"
    gains = [float(note["gain"]) for note in notes if note.get("gain")]
    if len(gains) < _ENOUGH:
        return f"{told}.", True
    first, last = (sum(part) / len(part) for part in (gains[: len(gains) // 3], gains[-(len(gains) // 3) :]))
    share = last / first if first else 1.0
    if share < _FADED:
        return f"{told}. Steps promise {share:.1%} of what they did at first: more budget will change little.", False
    return f"{told}. Steps promise {share:.0%} of what they did at first.", True


def _memory(notes: Bodies) -> Finding:
    size, refused = int(notes[-1].get("size", 0)), int(notes[-1].get("refused", 0))
    told = f"The memory holds {count(size, 'program')}; {refused} of {size + refused} were refused as too similar"
    if refused > _SIMILAR * (size + refused):
        return f"{told}: they were paid for, so a smaller epsilon would serve better.", False
    return f"{told}.", True


def _entered(what: str, remedy: str, entered: Callable[[dict[str, Any]], bool]) -> Callable[[Bodies], Finding]:
    """How many of the notes tell of a success; not healthy if none of the last third does."""

    def tell(notes: Bodies) -> Finding:
        late = notes[-(len(notes) // 3) :]
        some = sum(map(entered, notes))
        told = f"{some} of {count(len(notes), 'turn')} {what}"
        if len(notes) < _ENOUGH:
            return f"{told}.", True
        if not any(map(entered, late)):
            return f"{told}, none of the last {len(late)}: {remedy}.", False
        return f"{told}, {sum(map(entered, late))} of the last {len(late)}.", True

    return tell


_MORE = "other models, hints or a task with more to find would help"
_better = _entered("brought an experiment better than its parent", _MORE, lambda note: bool(note.get("better")))


def _placed(note: dict[str, Any]) -> bool:
    return any(each.get("outcome") in ("new", "replaced") for each in note.get("candidates") or ())


def _experiment(notes: Bodies) -> Finding:
    if "better" in notes[-1]:
        return _better(notes)
    scored, best = sum(note.get("score") is not None for note in notes), notes[-1].get("best")
    told = f"The agents made {count(len(notes), 'experiment')}, of which {scored} gave a score"
    if not scored:
        return f"{told}: what went wrong stands under Sessions.", False
    return f"{told}; the best {number(best) if isinstance(best, float | int) else 'is not known'}.", True


def _barrier(notes: Bodies) -> Finding:
    skipped, late = sum(bool(note.get("skip")) for note in notes), notes[-(len(notes) // 3) :] or notes
    alarmed = sum(bool(note.get("alarms")) for note in late)
    alpha = f"alpha is {float(notes[-1].get('alpha') or 0.0):.2f}"
    told = f"{count(len(notes), 'barrier')}, of which {skipped} taught nothing; {alpha}"
    if alarmed:
        return f"{told}. Something looked wrong at {alarmed} of the last {len(late)}: see the alarms.", False
    if skipped > _SIMILAR * len(notes):
        return f"{told}: nothing is learnt where all rewards are alike. More islands would help.", False
    return f"{told}. Nothing looked wrong at the last {len(late)}.", True


def _noise(notes: Bodies) -> Finding:
    last = notes[-1]
    if last.get("exact"):
        return f"Scores are exact, as {count(int(last.get('repeats', 0)), 'repeated evaluation')} showed.", True
    return f"Scores are noisy: one deviates by about {float(last.get('sd') or 0.0):.3g}.", True


def _told(note: dict[str, Any]) -> str:
    return str(note.get("told", "")).rstrip(".")


def _warning(notes: Bodies) -> Finding:
    last = notes[-1]
    if {"turns", "needed"} <= last.keys():
        return f"Only {count(last['turns'], 'turn')}: this method needs about {last['needed']} evaluations.", False
    return f"{_told(last) or 'The filter refused most of the latest candidates'}.", False


TELL: dict[str, Callable[[Bodies], Finding]] = {
    "noise": _noise,
    "pedigree": _pedigree,
    "memory": _memory,
    "few_turns": _warning,
    "filter_crowded": _warning,
    "event": _entered("brought a program that took a cell of an island's grid", _MORE, _placed),
    "grid": _entered("brought a program that took a cell of the grid", _MORE, lambda note: bool(note.get("entered"))),
    "pareto": _entered("brought a child better than its parent", _MORE, lambda note: bool(note.get("accepted"))),
    "puct": _entered("brought a state worth keeping", _MORE, lambda note: bool(note.get("kept"))),
    "experiment": _experiment,
    "barrier": _barrier,
}
"""Sentences by the kind of note they are told from."""
