"""`culmen demo`: a real search on a built-in task, with nothing to install, no key and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from culmen.cli import look, pages
from culmen.cli.screen import Answer, Screen
from culmen.cli.search import run_study
from culmen.core.usage import Budget
from culmen.observe.figures import number
from culmen.store import views

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.observe.watch import Watch
    from culmen.store.views import BestCandidate
    from culmen.study import Study

TASK = "circle_packing"
DIFF_LINES = 40
SETTINGS = {  # one lane and one child at a time: the proposer evaluates side by side
    "pedigree": {"most": "1", "lanes": "1"},
    "polca": {"explore": "1", "epsilon": "0.03", "lanes": "1"},
}
EVALUATIONS = 280  # they alone end it, so that a slow machine finds the same for a seed
ISLANDS, BARRIERS = 8, 16  # of the demo with an advisor
ADVISOR_SETTINGS = {
    "scaffold": f"pacevolve(islands={ISLANDS}, implementing=implementing(repairs=0))",  # one evaluation a decision
    "barriers": str(BARRIERS),
}

_WELCOME = (
    "Packs 26 circles into a square by rewriting a small program, offline: no language model, no key, no network.\n"
    "Candidates run in a jail; every result is journaled, so Ctrl-C and culmen resume lose nothing.\n"
    "The sum of their radii is the score: the start has 0.96, the best packing known 2.636.\n"
)
_ADVISOR_WELCOME = (
    "Packs 26 circles into a square twice. An advisor, a language model of some 22,000 random weights made just now,\n"
    "says which kind of edit to try; the offline proposer makes it. The second one is trained on what its choices do.\n"
)
_ADVISORS = {"none": "untrained advisor", "phase_adaptive": "trained advisor"}


def demonstrate(
    screen: Screen, strategy: str, seed: int, seconds: float | None, workers: int, run_dir: Path | None
) -> Answer:
    """Search with the offline proposer, at most `seconds`, then show what was gained and how."""
    from culmen.evaluate import taskfiles

    task = taskfiles.load(taskfiles.example_path(TASK))
    if not screen.as_json:
        screen.err.print(_WELCOME, style="dim", markup=False)
    budget = Budget(evaluations=EVALUATIONS, seconds=seconds)
    answer = _search(screen, task, strategy, SETTINGS[strategy], budget, seed, workers, run_dir)
    path = Path(answer.data["path"])
    best = views.best(path)
    if best is None:
        return answer
    first_id = views.candidates(path, "old", operator="seed", limit=1)[0].id
    first, last = (views.candidate(path, name) for name in (first_id, best.id))
    changed = look.diff_lines(first, last)
    data: dict[str, Any] = {**answer.data, "seed_score": first.row.mean, "diff": "\n".join(changed)}

    def show(screen: Screen) -> None:
        screen.rule("what improved: initial program -> best")
        look.show_diff(screen, first, last, without_helpers(changed), most=DIFF_LINES)
        screen.line()
        screen.prose(_outcome(task, first.row.mean, best))
        pages.end(screen, views.status(path), path)

    return Answer(data, show, answer.code)


def _search(
    screen: Screen,
    task: Task,
    strategy: str,
    settings: dict[str, str],
    budget: Budget,
    seed: int,
    workers: int,
    run_dir: Path | None,
) -> Answer:
    """Run one search to its end."""
    from culmen.strategies import catalog
    from culmen.study import Study

    def create(watch: Watch) -> Study:
        made = catalog.make(strategy, settings)
        more: dict[str, Any] = {"workers": workers, "run_dir": run_dir, "observers": (watch,)}
        return Study.create(task, made, budget=budget, random_seed=seed, **more)

    return run_study(screen, create, quiet=False)


def _outcome(task: Task, start: float | None, best: BestCandidate) -> str:
    """The result in words for somebody who has never seen a run."""
    score = best.value if best.certified is None else best.certified
    known = task.objective.known
    return (
        f"The sum of the 26 radii went from {number(start)} to {number(score)}; the best packing known to anybody has "
        f"{number(known)}. The program that does it is an ordinary file: `culmen best` prints it."
    )


def without_helpers(lines: Sequence[str]) -> list[str]:
    """A diff with one line for each helper that the offline proposer inserted whole: its calls are what is new."""
    from culmen.offline.edits.source import INSERTED

    kept: list[str] = []
    inside = 0  # lines of the helper that is being left out
    for text in (*lines, ""):
        body = text[:1] == "+" and (not text[1:].strip() or text[1:2] in (" ", ")"))
        if inside and body:
            inside += 1
            continue
        if inside:
            kept[-1] += f" ...  # a general-purpose loop of {inside} lines, left out here"
        inside = int(any(text.startswith(f"+def {name}(") for name in INSERTED))
        kept.append(f"{text.partition('(')[0]}()" if inside else text)
    return kept[:-1]


def demonstrate_advisor(screen: Screen, strategy: str, seed: int, workers: int, run_dir: Path | None) -> Answer:
    """Two searches of the same length, one with its advisor untrained, one with it trained on the way;
    then what the advisors chose, and what it was worth."""
    from culmen.evaluate import taskfiles
    from culmen.train.engine import require

    require("torch", "train")
    require("transformers", "train")
    if not screen.as_json:
        screen.err.print(_ADVISOR_WELCOME, style="dim", markup=False)
    task, budget = taskfiles.load(taskfiles.example_path(TASK)), Budget(evaluations=1 + ISLANDS * BARRIERS, final=0.02)
    runs: dict[str, Answer] = {}
    for name, title in _ADVISORS.items():
        if not screen.as_json:
            screen.err.print(f"\n{title}:", markup=False)
        settings, folder = {**ADVISOR_SETTINGS, "objective": name}, None if run_dir is None else run_dir / name
        runs[name] = _search(screen, task, strategy, settings, budget, seed, workers, folder)
    notes = {name: _barriers(Path(answer.data["path"])) for name, answer in runs.items()}
    values = _values(notes.values())
    sums = {name: _summary(bodies, values) for name, bodies in notes.items()}
    data: dict[str, Any] = {
        name: {"path": runs[name].data["path"], "best": runs[name].data["best"], **sums[name]} for name in runs
    }
    data["values"] = values

    def show(screen: Screen) -> None:
        screen.rule("what a choice is worth: the mean reward of its kind of edit, over both searches")
        columns = ["advisor", "1st quarter", "2nd", "3rd", "last", "reward, last", "chosen most in the end"]
        screen.table(columns, [_advisor_row(_ADVISORS[name], one) for name, one in sums.items()])
        screen.line("rewards: -1 failed, 0 no better than the start, 5 the target")
        path = runs["phase_adaptive"].data["path"]
        screen.next_steps(
            (f"culmen log {path}", "every barrier"),
            (f"culmen best {path}", "the best program"),
            (f"culmen advisor chat {path} --say generate", "ask the trained advisor"),
        )

    return Answer(data, show, max(answer.code for answer in runs.values()))


def _barriers(path: Path) -> list[dict[str, Any]]:
    """The notes of a run's barriers."""
    from culmen.store.journal import SqlJournal

    with SqlJournal.open(path) as journal:
        return [event.entry.body for event in journal.read() if event.entry.body.get("note") == "barrier"]


def _choices(bodies: Iterable[dict[str, Any]]) -> list[tuple[str, float]]:
    """Kinds of edits that were chosen, by name, and their rewards."""
    pairs = (pair for body in bodies for pair in zip(body["experiments"], body["rewards"], strict=True))
    return [(line.partition(":")[0], reward) for line, reward in pairs if line]


def _values(runs: Iterable[list[dict[str, Any]]]) -> dict[str, float]:
    """Mean reward of every kind of edit over all runs: one measure for both advisors, whatever else a run had found."""
    rewards: dict[str, list[float]] = {}
    for name, reward in (choice for bodies in runs for choice in _choices(bodies)):
        rewards.setdefault(name, []).append(reward)
    return {name: fmean(found) for name, found in rewards.items()}


def _summary(bodies: list[dict[str, Any]], values: dict[str, float]) -> dict[str, Any]:
    """Of each quarter of a run the worth of its choices and its own rewards; what was chosen most in the last."""
    edges = [round(n * len(bodies) / 4) for n in range(5)]
    quarters = [_choices(bodies[low:high]) for low, high in pairwise(edges)]
    chosen = Counter(name for name, _ in quarters[-1])
    return {
        "quarters": [fmean(values[name] for name, _ in part) if part else 0.0 for part in quarters],
        "rewards": [fmean(reward for _, reward in part) if part else 0.0 for part in quarters],
        "favourites": [name for name, _ in chosen.most_common(3)],
        "barriers": len(bodies),
    }


def _advisor_row(title: str, one: dict[str, Any]) -> tuple[str, ...]:
    worth = [number(round(level, 2)) for level in one["quarters"]]
    return title, *worth, number(round(one["rewards"][-1], 2)), ", ".join(one["favourites"])
