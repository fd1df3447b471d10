"""`culmen demo --strategy pacevolve_plus_plus`: an advisor trained during a search, beside the same one untrained."""

from __future__ import annotations

from collections import Counter
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
ISLANDS, BARRIERS = 8, 20
SETTINGS = {"scaffold": f"pacevolve(islands={ISLANDS})", "barriers": str(BARRIERS)}


def answer(screen: Screen, seed: int, workers: int, run_dir: Path | None) -> Answer:
    """Two searches of the same length, then what their advisors chose and what it came to."""
    from culmen.train.extra import require

    require("torch", "train")
    require("transformers", "train")
    if not screen.as_json:
        screen.err.print(_WELCOME, style="dim", markup=False)
    runs = {name: _search(screen, name, seed, workers, run_dir) for name in ("none", "phase_adaptive")}
    told = {name: _told(Path(found.data["path"])) for name, found in runs.items()}
    data: dict[str, Any] = {
        name: {"path": runs[name].data["path"], "best": runs[name].data["best"], **told[name]} for name in runs
    }

    def show(screen: Screen) -> None:
        screen.rule("reward of a decision (-1 failed, 0 no better than the start, 5 the target)")
        rows = [
            (_TITLES[name], *(number(round(level, 2)) for level in one["quarters"]), ", ".join(one["favourites"]))
            for name, one in told.items()
        ]
        screen.table(["advisor", "1st quarter", "2nd", "3rd", "last", "chosen most in the end"], rows)
        path = runs["phase_adaptive"].data["path"]
        screen.next_steps((f"culmen log {path}", "every barrier"), (f"culmen best {path}", "the best program"))

    return Answer(data, show, max(found.code for found in runs.values()))


def _search(screen: Screen, objective: str, seed: int, workers: int, run_dir: Path | None) -> Answer:
    from culmen.evaluate import contracts
    from culmen.strategies import catalog
    from culmen.study import Study

    if not screen.as_json:
        screen.err.print(f"\n{_TITLES[objective]}:", markup=False)

    def create(watch: Watch) -> Study:
        return Study.create(
            contracts.load(contracts.example_path(TASK)),
            catalog.make("pacevolve_plus_plus", {**SETTINGS, "objective": objective}),
            budget=Budget(evaluations=1 + ISLANDS * BARRIERS, final=0.02),
            random_seed=seed,
            workers=workers,
            run_dir=None if run_dir is None else run_dir / objective,
            observers=(watch,),
        )

    return session.search(screen, create, quiet=False)


def _told(path: Path) -> dict[str, Any]:
    """Mean rewards of the four quarters of a run's barriers, and what was chosen most in the last one."""
    from culmen.store.journal import SqlJournal

    with SqlJournal.open(path) as journal:
        bodies = [event.entry.body for event in journal.read() if event.entry.body.get("note") == "barrier"]
    edges = [round(n * len(bodies) / 4) for n in range(5)]
    quarters = [bodies[low:high] for low, high in pairwise(edges)]
    chosen = Counter(line.partition(":")[0] for body in quarters[-1] for line in body["experiments"] if line)
    means = [fmean(reward for body in part for reward in body["rewards"]) if part else 0.0 for part in quarters]
    return {"quarters": means, "favourites": [name for name, _ in chosen.most_common(3)], "barriers": len(bodies)}


_TITLES = {"none": "untrained advisor", "phase_adaptive": "trained advisor"}
_WELCOME = (
    "Packs 26 circles into a square twice. An advisor, a language model of some 22,000 random weights made just now,\n"
    "says which kind of edit to try; the offline proposer makes it. The second one is trained on what its choices do.\n"
)
