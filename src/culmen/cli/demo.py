"""`culmen demo`: a real search on a built-in task, with nothing to install, no key and no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from culmen.cli import differences, session
from culmen.cli.screen import Answer, Screen
from culmen.core.usage import Budget
from culmen.observe.figures import number
from culmen.store import views
from culmen.store.views import Best

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.observe.watch import Watch
    from culmen.study import Study

TASK = "circle_packing"
DIFF_LINES = 40
SETTINGS = {"explore": "1", "epsilon": "0.03", "lanes": "1"}  # greedy: there is under a minute
EVALUATIONS = 280  # one lane, counted evaluations: a machine that does them in time finds the same for a seed


def answer(screen: Screen, seed: int, seconds: float, workers: int, run_dir: Path | None) -> Answer:
    """Search for at most `seconds` with POLCA and the offline proposer, then show what was gained and how."""
    from culmen.evaluate import taskfiles
    from culmen.strategies import catalog
    from culmen.study import Study

    task = taskfiles.load(taskfiles.example_path(TASK))
    if not screen.as_json:
        screen.err.print(_WELCOME, style="dim", markup=False)

    def create(watch: Watch) -> Study:
        return Study.create(
            task,
            catalog.make("polca", SETTINGS),
            budget=Budget(evaluations=EVALUATIONS, seconds=seconds),
            random_seed=seed,
            workers=workers,
            run_dir=run_dir,
            observers=(watch,),
        )

    found = session.search(screen, create, quiet=False)
    path = Path(found.data["path"])
    best = views.best(path)
    if best is None:
        return found
    seeds = views.candidates(path, "old", operator="seed", limit=1)
    first, last = (views.candidate(path, name) for name in (seeds[0].id, best.id))
    changed = differences.lines(first, last)
    data: dict[str, Any] = {**found.data, "seed_score": first.row.mean, "diff": "\n".join(changed)}

    def show(screen: Screen) -> None:
        screen.rule("what improved: seed -> best")
        differences.show(screen, first, last, differences.without_helpers(changed), most=DIFF_LINES)
        screen.line()
        screen.prose(_outcome(task, first.row.mean, best))
        session.end(screen, views.status(path), path)

    return Answer(data, show, found.code)


def _outcome(task: Task, start: float | None, best: Best) -> str:
    """The result in words for somebody who has never seen a run."""
    score = best.value if best.certified is None else best.certified
    known = task.objective.known
    return (
        f"The sum of the 26 radii went from {number(start)} to {number(score)}; the best packing known to anybody has "
        f"{number(known)}. The program that does it is an ordinary file: `culmen best` prints it."
    )


_WELCOME = (
    "Packs 26 circles into a square by rewriting a small program, offline: no language model, no key, no network.\n"
    "Candidates run in a jail; every result is journaled, so Ctrl-C and culmen resume lose nothing.\n"
    "The sum of their radii is the score: the start has 0.96, the best packing known 2.636.\n"
)
