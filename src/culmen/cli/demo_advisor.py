"""`culmen demo --strategy pacevolve_plus_plus`: an advisor trained during a search, beside the same one untrained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from culmen.cli import session
from culmen.cli.screen import Answer, Screen
from culmen.core.usage import Budget
from culmen.observe.figures import number

if TYPE_CHECKING:
    from culmen.observe.watch import Watch
    from culmen.study import Study

TASK = "circle_packing"
ISLANDS, BARRIERS = 8, 16
SETTINGS = {
    "scaffold": f"pacevolve(islands={ISLANDS}, implementing=implementing(repairs=0))",  # one evaluation a decision
    "barriers": str(BARRIERS),
}


def answer(screen: Screen, seed: int, workers: int, run_dir: Path | None) -> Answer:
    """Two searches of the same length, then what their advisors chose and what it came to."""
    from culmen.train.extra import require

    require("torch", "train")
    require("transformers", "train")
    if not screen.as_json:
        screen.err.print(_WELCOME, style="dim", markup=False)
    runs = {name: _search(screen, name, seed, workers, run_dir) for name in ("none", "phase_adaptive")}
    notes = {name: _barriers(Path(found.data["path"])) for name, found in runs.items()}
    values = _values(notes.values())
    told = {name: _told(bodies, values) for name, bodies in notes.items()}
    data: dict[str, Any] = {
        name: {"path": runs[name].data["path"], "best": runs[name].data["best"], **told[name]} for name in runs
    }
    data["values"] = values

    def show(screen: Screen) -> None:
        screen.rule("what a choice is worth: the mean reward of its kind of edit, over both searches")
        columns = ["advisor", "1st quarter", "2nd", "3rd", "last", "reward, last", "chosen most in the end"]
        screen.table(columns, [_row(_TITLES[name], one) for name, one in told.items()])
        screen.line("rewards: -1 failed, 0 no better than the start, 5 the target")
        path = runs["phase_adaptive"].data["path"]
        screen.next_steps(
            (f"culmen log {path}", "every barrier"),
            (f"culmen best {path}", "the best program"),
            (f"culmen advisor chat {path} --say generate", "ask the trained advisor"),
        )

    return Answer(data, show, max(found.code for found in runs.values()))


def _search(screen: Screen, objective: str, seed: int, workers: int, run_dir: Path | None) -> Answer:
    from culmen.evaluate import taskfiles
    from culmen.strategies import catalog
    from culmen.study import Study

    if not screen.as_json:
        screen.err.print(f"\n{_TITLES[objective]}:", markup=False)

    def create(watch: Watch) -> Study:
        return Study.create(
            taskfiles.load(taskfiles.example_path(TASK)),
            catalog.make("pacevolve_plus_plus", {**SETTINGS, "objective": objective}),
            budget=Budget(evaluations=1 + ISLANDS * BARRIERS, final=0.02),
            random_seed=seed,
            workers=workers,
            run_dir=None if run_dir is None else run_dir / objective,
            observers=(watch,),
        )

    return session.search(screen, create, quiet=False)


def _barriers(path: Path) -> list[dict[str, Any]]:
    """The notes of a run's barriers."""
    from culmen.store.journal import SqlJournal

    with SqlJournal.open(path) as journal:
        return [event.entry.body for event in journal.read() if event.entry.body.get("note") == "barrier"]


def _choices(bodies: Iterable[dict[str, Any]]) -> list[tuple[str, float]]:
    """What was chosen, by name, and what it brought."""
    pairs = (pair for body in bodies for pair in zip(body["experiments"], body["rewards"], strict=True))
    return [(line.partition(":")[0], reward) for line, reward in pairs if line]


def _values(runs: Iterable[list[dict[str, Any]]]) -> dict[str, float]:
    """Mean reward of every kind of edit over all runs: one measure for both advisors, whatever else a run had found."""
    rewards: dict[str, list[float]] = {}
    for name, reward in (choice for bodies in runs for choice in _choices(bodies)):
        rewards.setdefault(name, []).append(reward)
    return {name: fmean(found) for name, found in rewards.items()}


def _told(bodies: list[dict[str, Any]], values: dict[str, float]) -> dict[str, Any]:
    """The four quarters of a run: the worth of its choices, and its own rewards; what was chosen most in the last."""
    edges = [round(n * len(bodies) / 4) for n in range(5)]
    quarters = [_choices(bodies[low:high]) for low, high in pairwise(edges)]
    chosen = Counter(name for name, _ in quarters[-1])
    return {
        "quarters": [fmean(values[name] for name, _ in part) if part else 0.0 for part in quarters],
        "rewards": [fmean(reward for _, reward in part) if part else 0.0 for part in quarters],
        "favourites": [name for name, _ in chosen.most_common(3)],
        "barriers": len(bodies),
    }


def _row(title: str, one: dict[str, Any]) -> tuple[str, ...]:
    worth = [number(round(level, 2)) for level in one["quarters"]]
    return title, *worth, number(round(one["rewards"][-1], 2)), ", ".join(one["favourites"])


_TITLES = {"none": "untrained advisor", "phase_adaptive": "trained advisor"}
_WELCOME = (
    "Packs 26 circles into a square twice. An advisor, a language model of some 22,000 random weights made just now,\n"
    "says which kind of edit to try; the offline proposer makes it. The second one is trained on what its choices do.\n"
)
