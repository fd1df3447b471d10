"""The part of luck in a trained advisor's gains in the demo.

The demo's search with many seeds, three advisors.

Untrained; trained with the phase-adaptive mix; and trained in the same way except for the sign of
every advantage, which is drawn by chance: the same noise in the weights, and nothing to learn from.
Compared is the mean reward of the decisions in the last quarter of a run's barriers. Every run is a
process of its own. Needs the extra `train`.

    python bench/bench_advisor_luck.py [--seeds 10] [--jobs 1] [--rows luck.jsonl]
    python bench/bench_advisor_luck.py --toy [--seeds 20]

Runs already in the file of rows are not made again. `--toy` does the same with as many decisions on
a toy whose truth is known (`tests.extensions.train.toy_advisor`, one kind of edit a decision):
there every decision can be carried out, and only the choice counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from culmen.cli.start import TASK
from culmen.core.usage import Budget
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.strategies import catalog

if TYPE_CHECKING:
    from culmen.extensions.train.objectives import AdvantageRule, Signal

ARMS = ("untrained", "trained", "random sign")
ISLANDS, BARRIERS = 8, 16
SCAFFOLD = f"pacevolve(islands={ISLANDS}, implementing=implementing(repairs=0))"  # one evaluation a decision
T975 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
)
"""Student's t at 97.5 % for 1, 2, ... degrees of freedom; 1.96 beyond."""


@dataclass(frozen=True)
class RandomSign(PacevolvePlusPlus):
    """The same training, except for the sign of each advantage."""

    def advantage_rule(self) -> Any:
        return Flipped(super().advantage_rule())


@dataclass(frozen=True)
class Flipped:
    """Signs are drawn from the rewards alone: a run replays as it was."""

    credit: AdvantageRule

    def training_signal(self, rewards: Sequence[float], alpha: float) -> Signal:
        found, chance = self.credit.training_signal(rewards, alpha), Random(repr((rewards, alpha)))
        return replace(
            found, advantages=tuple(a * chance.choice((-1.0, 1.0)) for a in found.advantages)
        )


def strategy(arm: str, settings: dict[str, str]) -> PacevolvePlusPlus:
    """The search, with one of the three advisors."""
    objective = "none" if arm == "untrained" else "phase_adaptive"
    made: Any = catalog.make_strategy("pacevolve_plus_plus", {**settings, "objective": objective})
    return RandomSign(**vars(made)) if arm == "random sign" else made


def one(arm: str, seed: int, settings: dict[str, str], folder: Path) -> dict[str, Any]:
    """One run: mean rewards of its quarters, share of failures in the last.

    Also the score of its best.
    """
    from culmen import tasks as taskfiles
    from culmen.run.study import Study
    from culmen.store import views

    study = Study.create(
        taskfiles.load(taskfiles.example_path(TASK)),
        strategy(arm, settings),
        budget=Budget(evaluations=1 + ISLANDS * int(settings["barriers"]), final=0.02),
        random_seed=seed,
        workers=2,
        run_dir=folder / "run",
    )
    study.run()
    bodies = [note.entry.body for note in views.note_events(study.path, "barrier")]
    edges = [round(n * len(bodies) / 4) for n in range(5)]
    parts = [
        [reward for body in bodies[edges[q] : edges[q + 1]] for reward in body["rewards"]]
        for q in range(4)
    ]
    best = views.run_status(study.path).best
    return {
        "arm": arm,
        "seed": seed,
        "quarters": [fmean(part) for part in parts],
        "failed": sum(reward == -1.0 for reward in parts[3]) / len(parts[3]),
        "barriers": len(bodies),
        "best": None if best is None else best.value,
    }


def toy(arm: str, seed: int) -> dict[str, Any]:
    """One training on the toy, as long as the demo's; `best` is the quality of fresh replies."""
    import torch  # pyright: ignore[reportMissingImports]

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.extensions.train.toy_advisor import Toy, examined, policy, rehearse

    from culmen.extensions.train.engine import Rules
    from culmen.extensions.train.objectives import AdvantageRule

    torch.set_num_threads(1)
    game, engine = (
        Toy(words=1, group=ISLANDS, barriers=BARRIERS, narrow=1.0, noise=0.05),
        policy(seed),
    )
    credit = AdvantageRule("none" if arm == "untrained" else "phase_adaptive")
    rows = list(rehearse(engine, game, credit, Rules(rate=0.01), seed, flip=arm == "random sign"))
    size = BARRIERS // 4
    parts = [rows[q * size : (q + 1) * size] for q in range(4)]
    return {
        "arm": arm,
        "seed": seed,
        "quarters": [fmean(row["reward"] for row in part) for part in parts],
        "failed": 1 - fmean(row["valid"] for row in parts[3]),
        "best": examined(engine, game, 128)["quality"],
    }


def interval(values: Sequence[float]) -> str:
    """`0.31 ± 0.12`: mean and half of its 95 % interval."""
    if len(values) < 2:
        return f"{fmean(values):.2f}"
    t = T975[len(values) - 2] if len(values) - 2 < len(T975) else 1.96
    return f"{fmean(values):.2f} ± {t * stdev(values) / len(values) ** 0.5:.2f}"


def main() -> None:
    """All runs, then the table."""
    options = _options()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(one(options.one, options.seed, _settings(options), Path(folder))))
        return
    if options.toy:
        report([toy(arm, seed) for seed in range(options.seeds) for arm in ARMS])
        return
    rows = (
        [json.loads(line) for line in options.rows.read_text().splitlines()]
        if options.rows.exists()
        else []
    )
    known = {(row["arm"], row["seed"]) for row in rows}
    missing = [
        (arm, seed) for seed in range(options.seeds) for arm in ARMS if (arm, seed) not in known
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda job: _process(job, _settings(options)), missing):
            rows.append(row)
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr, flush=True)
    report([row for row in rows if row["seed"] < options.seeds])


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Means over seeds with their 95 % intervals.

    Also paired differences from the untrained advisor.
    """
    table = {arm: {row["seed"]: row for row in rows if row["arm"] == arm} for arm in ARMS}
    print(
        "| advisor | seeds | first quarter | last quarter | failed in the last | best | less untrained, last quarter |"
    )
    print("|---|---|---|---|---|---|---|")
    for arm, runs in table.items():
        base = table[ARMS[0]]
        gaps = [
            run["quarters"][3] - base[seed]["quarters"][3]
            for seed, run in runs.items()
            if seed in base
        ]
        cells = [
            arm,
            str(len(runs)),
            interval([run["quarters"][0] for run in runs.values()]),
            interval([run["quarters"][3] for run in runs.values()]),
            f"{fmean(run['failed'] for run in runs.values()):.0%}",
            interval([run["best"] for run in runs.values() if run["best"] is not None]),
            "-" if arm == ARMS[0] else interval(gaps),
        ]
        print(f"| {' | '.join(cells)} |")


def _settings(options: argparse.Namespace) -> dict[str, str]:
    return {"barriers": str(options.barriers), "scaffold": options.scaffold}


def _process(job: tuple[str, int], settings: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", job[0], "--seed", str(job[1])]
    command += [part for name, value in settings.items() for part in (f"--{name}", value)]
    run = subprocess.run(
        command, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if run.returncode:
        raise SystemExit(run.stderr.decode() or run.stdout.decode())
    return json.loads(run.stdout.decode().splitlines()[-1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, two workers each")
    parser.add_argument(
        "--rows",
        type=Path,
        default=Path("luck.jsonl"),
        help="one line per run; continued if it exists",
    )
    parser.add_argument("--barriers", type=int, default=BARRIERS, help="planned")
    parser.add_argument(
        "--scaffold",
        default=SCAFFOLD,
        help="of 8 islands; the demo's unless given",
    )
    parser.add_argument("--toy", action="store_true", help="a toy in place of the demo's search")
    parser.add_argument("--one", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
