"""The demonstration of `culmen demo --strategy pacevolve_plus_plus`: an advisor in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from culmen.cli.screen import Answer, Screen
from culmen.cli.start import TASK, run_demo_search
from culmen.core.json import JsonObject
from culmen.core.usage import Budget
from culmen.extensions.train.engine import import_extra
from culmen.report.figures import number_text

ISLANDS, BARRIERS = 8, 16  # of the demo with an advisor
ADVISOR_SETTINGS = {
    # one evaluation a decision
    "scaffold": f"pacevolve(islands={ISLANDS}, implementing=implementing(repairs=0))",
    "barriers": str(BARRIERS),
}

_ADVISOR_WELCOME = (
    "Packs 26 circles into a square twice. An advisor, a language model of some 22,000 random "
    "weights made just now,\n"
    "says which kind of edit to try; the offline proposer makes it. The second one is trained "
    "on what its choices do.\n"
)
_ADVISORS = {"none": "untrained advisor", "phase_adaptive": "trained advisor"}


def demonstrate_advisor(
    screen: Screen, strategy: str, seed: int, workers: int, run_dir: Path | None
) -> Answer:
    """Run two searches of one length, with an untrained advisor and with one in training.

    Shows the advisors' choices and their rewards at the end.
    """
    from culmen import tasks as taskfiles

    import_extra("torch", "train")
    import_extra("transformers", "train")
    if not screen.as_json:
        screen.err.print(_ADVISOR_WELCOME, style="dim", markup=False)
    task, budget = (
        taskfiles.load(taskfiles.example_path(TASK)),
        Budget(evaluations=1 + ISLANDS * BARRIERS, final=0.02),
    )
    runs: dict[str, Answer] = {}
    for name, title in _ADVISORS.items():
        if not screen.as_json:
            screen.err.print(f"\n{title}:", markup=False)
        settings, folder = (
            {**ADVISOR_SETTINGS, "objective": name},
            None if run_dir is None else run_dir / name,
        )
        runs[name] = run_demo_search(
            screen, task, strategy, settings, budget, seed, workers, folder
        )
    notes = {name: _barrier_notes(Path(answer.data["path"])) for name, answer in runs.items()}
    values = _mean_rewards(notes.values())
    sums = {name: _advisor_summary(bodies, values) for name, bodies in notes.items()}
    data: JsonObject = {
        name: {"path": runs[name].data["path"], "best": runs[name].data["best"], **sums[name]}
        for name in runs
    }
    data["values"] = values

    def show(screen: Screen) -> None:
        screen.print_rule(
            "what a choice is worth: the mean reward of its kind of edit, over both searches"
        )
        columns = [
            "advisor",
            "1st quarter",
            "2nd",
            "3rd",
            "last",
            "reward, last",
            "chosen most in the end",
        ]
        screen.print_table(
            columns, [_advisor_row(_ADVISORS[name], one) for name, one in sums.items()]
        )
        screen.print_line("rewards: -1 failed, 0 no better than the start, 5 the target")
        path = runs["phase_adaptive"].data["path"]
        screen.print_next_steps(
            (f"culmen show {path} --log", "every barrier"),
            (f"culmen best {path}", "the best program"),
            (f"culmen runs advisor chat {path} --say generate", "ask the trained advisor"),
        )

    return Answer(data, show, max(answer.code for answer in runs.values()))


def _barrier_notes(path: Path) -> list[JsonObject]:
    """The notes of a run's barriers."""
    from culmen.store.journal import SqlJournal

    with SqlJournal.open(path) as journal:
        return [
            event.entry.body
            for event in journal.read()
            if event.entry.body.get("note") == "barrier"
        ]


def _chosen_edits(bodies: Iterable[JsonObject]) -> list[tuple[str, float]]:
    """Kinds of edits that were chosen, by name, and their rewards."""
    pairs = (
        pair for body in bodies for pair in zip(body["experiments"], body["rewards"], strict=True)
    )
    return [(line.partition(":")[0], reward) for line, reward in pairs if line]


def _mean_rewards(runs: Iterable[list[JsonObject]]) -> dict[str, float]:
    """Mean reward of every kind of edit over all runs: one measure for both advisors.

    It does not depend on the other choices of a run.
    """
    rewards: dict[str, list[float]] = {}
    for name, reward in (choice for bodies in runs for choice in _chosen_edits(bodies)):
        rewards.setdefault(name, []).append(reward)
    return {name: fmean(found) for name, found in rewards.items()}


def _advisor_summary(bodies: list[JsonObject], values: dict[str, float]) -> JsonObject:
    """Worth of the choices and rewards of a run by quarter, and its final favourites.

    The favourites are the three most frequent choices of the last quarter.
    """
    edges = [round(n * len(bodies) / 4) for n in range(5)]
    quarters = [_chosen_edits(bodies[low:high]) for low, high in pairwise(edges)]
    chosen = Counter(name for name, _ in quarters[-1])
    return {
        "quarters": [fmean(values[name] for name, _ in part) if part else 0.0 for part in quarters],
        "rewards": [fmean(reward for _, reward in part) if part else 0.0 for part in quarters],
        "favourites": [name for name, _ in chosen.most_common(3)],
        "barriers": len(bodies),
    }


def _advisor_row(title: str, one: JsonObject) -> tuple[str, ...]:
    worth = [number_text(round(level, 2)) for level in one["quarters"]]
    return title, *worth, number_text(round(one["rewards"][-1], 2)), ", ".join(one["favourites"])
