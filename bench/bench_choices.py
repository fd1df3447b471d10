"""Does training the advisor help, where choosing well can be learnt?

The whole of `pacevolve_plus_plus` on a simulated search whose hypotheses differ, each baseline
against the same advisor untrained, paired by random seed.

The world: a candidate has a true value x in 0..1 and its score is x with noise of 0.01. An experiment is one of ten
kinds of edit, its feature the first word of the hypothesis. Every random seed gives the kinds other merits q (0, 1/81,
4/81, ... 1, shuffled). An experiment of merit q fails with probability (1 - q) / 2; else x moves by (1 - x) (0.2 q -
0.07 + 0.1 z), z standard normal: late in a search differences shrink in proportion to the rest. The advisor is
`policy=tiny`, informed of its latest failures, as in a search offline; 8 islands, 40 barriers. Needs the extra `train`.

    python bench/bench_choices.py [--seeds 30] [--rows runs/choices.jsonl] [--jobs 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from bench_advisor_luck import interval
from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Custom, CustomRequest
from culmen.core.usage import Budget, Usage
from culmen.strategies import catalog
from culmen.strategies.pacevolve.advisor import MENU
from culmen.testing.landscape import Landscape, landscape_program, task, written_reward
from culmen.testing.virtual import simulate

ISLANDS, BARRIERS = 8, 40
ARMS: dict[str, dict[str, str]] = {
    "untrained": {"preset": "no_rl"},
    "phase_adaptive": {},
    "grpo (ThetaEvolve)": {"preset": "thetaevolve"},
    "pkpo (Max@k)": {"preset": "max_at_k"},
    "entropic (TTT-Discover)": {"preset": "ttt_discover", "starts": "islands"},
    "several steps": {"epochs": "2", "minibatches": "2"},
}


@dataclass(frozen=True)
class Choices(Landscape):
    """The world of one random seed, and the policy that is trained in it."""

    seed: int = 0
    craft: Any = None

    @property
    def merits(self) -> dict[str, float]:
        """q of each kind of edit."""
        names = sorted(MENU)
        Random(f"merits {self.seed}").shuffle(names)
        return {name: (n / (len(names) - 1)) ** 2 for n, name in enumerate(names)}

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        """The experiment carried out; a failed one has the value -1."""
        assert brief.parent is not None
        x, q = written_reward(brief.parent), self.merits[kind(brief.hypothesis)]
        moved = x + (1 - x) * (0.2 * q - 0.07 + 0.1 * rng.gauss(0.0, 1.0))
        value = -1.0 if rng.random() < (1 - q) / 2 else min(1.0, max(0.0, moved))
        made = Candidate.of(
            landscape_program(value, rng.getrandbits(40)), (brief.parent.id,), Origin("world")
        )
        return Proposal((made,), model="world", usage=Usage(calls=1))

    def observe(self, candidate: Candidate, seed: int, rng: Random) -> Observation:
        """x with noise, or the failure."""
        if written_reward(candidate) < 0:
            return Observation(
                candidate.id, Status.ERROR, reason="failed", seed=seed, feedback="it failed"
            )
        return Observation(
            candidate.id, Status.OK, written_reward(candidate) + rng.gauss(0.0, 0.01), seed=seed
        )

    def train(self, request: CustomRequest) -> Custom:
        """By the code and the tiny model of a real search."""
        return asyncio.run(self.craft.perform(request))


def kind(experiment: str) -> str:
    """The feature of a hypothesis: the kind of edit it names."""
    return experiment.partition(":")[0].strip()


def one(arm: str, seed: int) -> dict[str, Any]:
    """One search: quality of its choices by quarter, the true value of its report.

    Also alpha and both spreads.
    """
    import torch  # pyright: ignore[reportMissingImports]

    from culmen.extensions.train.advisors import policy_maker
    from culmen.extensions.train.craft import TrainCraft

    torch.set_num_threads(1)
    scaffold = f"pacevolve(islands={ISLANDS}, advising=advising(), upkeep=upkeep(), implementing=implementing(repairs=0))"  # noqa: E501
    strategy = catalog.make_strategy(
        "pacevolve_plus_plus", {"scaffold": scaffold, "worst": "0", "best": "1", **ARMS[arm]}
    )
    with tempfile.TemporaryDirectory() as folder:
        world = Choices(
            seed=seed, craft=TrainCraft(Path(folder), policy_maker(lambda role, slots: ("", "")))
        )
        budget = Budget(evaluations=2 + ISLANDS * BARRIERS, final=0.0)
        run = simulate(strategy, task(seeds=(0.1,)), world, budget, seed=seed, workers=ISLANDS)
    entries = [entry.entry for entry in run.journal.read()]
    notes = [entry.body for entry in entries if entry.body.get("note") == "barrier"]
    merits = [[world.merits[kind(e)] for e in note["experiments"] if e] for note in notes]
    chosen = [fmean(row) if row else 0.0 for row in merits]
    failed = [sum(note["failures"].values()) / ISLANDS for note in notes]
    size = len(chosen) // 4
    verdict = run.verdict
    assert verdict is not None
    scored = {c.id: written_reward(c) for entry in entries for c in _candidates(entry)}
    return {
        "arm": arm,
        "seed": seed,
        "barriers": len(notes),
        "choices": [fmean(chosen[q * size : (q + 1) * size]) for q in range(4)],
        "failed": [fmean(failed[q * size : (q + 1) * size]) for q in range(4)],
        "value": scored.get(verdict.id, 0.1),
        "alpha": [note["alpha"] for note in notes],
        "spreads": [note["spreads"] for note in notes],
        "skipped": sum(bool(note["skip"]) for note in notes),
    }


def _candidates(entry: Any) -> Sequence[Candidate]:
    return getattr(getattr(entry, "result", None), "candidates", ())


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Means with intervals, differences paired with the untrained advisor.

    Also the course of alpha and spreads.
    """
    table = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in ARMS}
    base = table["untrained"]
    heads = (
        "advisor",
        "seeds",
        "merit of choices, first → last quarter",
        "less untrained, last",
        "failed, last",
    )
    print(f"| {' | '.join((*heads, 'value found', 'less untrained'))} |")
    print("|---|---|---|---|---|---|---|")
    for arm, runs in table.items():
        if len(runs) < 2:
            continue
        pairs = [(run, base[seed]) for seed, run in runs.items() if seed in base]
        better = interval([a["choices"][3] - b["choices"][3] for a, b in pairs])
        found = interval([a["value"] - b["value"] for a, b in pairs])
        first, last = ([run["choices"][quarter] for run in runs.values()] for quarter in (0, 3))
        cells = [
            arm,
            str(len(runs)),
            f"{fmean(first):.2f} → {interval(last)}",
            "-" if arm == "untrained" else better,
            f"{fmean(r['failed'][3] for r in runs.values()):.0%}",
            interval([r["value"] for r in runs.values()]),
            "-" if arm == "untrained" else found,
        ]
        print(f"| {' | '.join(cells)} |")
    _course(table["phase_adaptive"].values())


def _course(runs: Any) -> None:
    """alpha, and the standard deviations of rewards and of both branches, by eighths of a run."""
    print(
        "\n| part of the run | alpha | spread of rewards | group branch | frontier branch |\n|---|---|---|---|---|"
    )
    for part in range(8):
        notes = [
            (a, s) for run in runs for a, s in _part(list(zip(run["alpha"], run["spreads"])), part)
        ]
        means = [
            fmean(s[name] for _, s in notes if name in s)
            for name in ("rewards", "group", "frontier")
        ]
        cells = [
            f"{part + 1}/8",
            f"{fmean(a for a, _ in notes):.2f}",
            *(f"{mean:.4f}" for mean in means),
        ]
        print(f"| {' | '.join(cells)} |")


def _part(pairs: list[Any], part: int) -> list[Any]:
    return pairs[len(pairs) * part // 8 : len(pairs) * (part + 1) // 8]


def main() -> None:
    """The runs that are missing, then the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument(
        "--rows", type=Path, default=Path("runs/choices.jsonl"), help="runs made; others are added"
    )
    parser.add_argument(
        "--arms", type=int, default=len(ARMS), help="so many of the arms, the first ones"
    )
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        [json.loads(line) for line in options.rows.read_text().splitlines()]
        if options.rows.exists()
        else []
    )
    known = {(row["arm"], row["seed"]) for row in rows}
    arms = list(ARMS)[: options.arms]
    missing = [
        (arm, seed) for seed in range(options.seeds) for arm in arms if (arm, seed) not in known
    ]
    with (
        ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool,
        options.rows.open("a") as file,
    ):
        for done in as_completed([pool.submit(one, *job) for job in missing]):
            rows.append(done.result())
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    report([row for row in rows if row["seed"] < options.seeds])


if __name__ == "__main__":
    main()
