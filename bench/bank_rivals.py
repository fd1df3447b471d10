"""Picks of OpenEvolve and GEPA among recorded programs, by their own code.

For `bench_bank.py`:

    PYTHON bench/bank_rivals.py < world.json > picks.json

PYTHON is that of an environment with `openevolve` and `gepa`. The world has the initial program's
name, the rewards of each program's evaluations (null: it failed), budgets and random seeds; an
evaluation is one of these rewards, drawn at random, and 0 for a failure.

openevolve   every program is evaluated once and added to its `ProgramDatabase`; the report is its
             `get_best_program`, which the controller returns at the end of a run
gepa         `gepa.optimize` as a whole: an adapter proposes the next program and evaluates it; two
             training and two validation examples, minibatches of one, and its own acceptance
"""

from __future__ import annotations

import json
import logging
import sys
from random import Random


class World:
    """Programs in the order of their draws, and evaluations, by one random seed."""

    def __init__(self, data: dict, seed: int) -> None:
        self.rng, self.rewards, self.initial = Random(seed), data["rewards"], data["initial"]
        self.drawn = [name for name in sorted(self.rewards) if name != self.initial]
        self.rng.shuffle(self.drawn)

    def evaluate(self, name: str) -> float:
        reward = self.rng.choice(self.rewards[name])
        return 0.0 if reward is None else reward


def pick_openevolve(data: dict, budget: int, seed: int) -> tuple[str, float]:
    from openevolve.config import DatabaseConfig
    from openevolve.database import Program, ProgramDatabase

    world = World(data, seed)
    database = ProgramDatabase(DatabaseConfig(random_seed=seed, log_prompts=False))
    for turn, name in enumerate([world.initial, *world.drawn][:budget]):
        metrics = {"combined_score": world.evaluate(name)}
        database.add(Program(id=name, code=name, metrics=metrics), iteration=turn)
    best = database.get_best_program()
    return best.id, best.metrics["combined_score"]


def pick_gepa(data: dict, budget: int, seed: int) -> tuple[str, float]:
    import gepa
    from gepa.core.adapter import EvaluationBatch

    world = World(data, seed)

    class Adapter:
        def evaluate(self, batch, candidate, capture_traces=False):
            scores = [world.evaluate(candidate["program"]) for _ in batch]
            traces = [{} for _ in batch] if capture_traces else None
            return EvaluationBatch(outputs=scores, scores=scores, trajectories=traces)

        def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
            return {
                name: [{"score": s} for s in eval_batch.scores] for name in components_to_update
            }

        def propose_new_texts(self, candidate, reflective_dataset, components_to_update):
            if not world.drawn:
                raise EOFError("every program was drawn")
            return {"program": world.drawn.pop(0)}

    class Quiet:
        def log(self, message):
            pass

    result = gepa.optimize(
        seed_candidate={"program": world.initial},
        trainset=["train-1", "train-2"],
        valset=["val-1", "val-2"],
        adapter=Adapter(),
        reflection_minibatch_size=1,
        skip_perfect_score=False,
        max_metric_calls=budget,
        seed=seed,
        logger=Quiet(),
        raise_on_exception=False,
        display_progress_bar=False,
        stop_callbacks=[lambda state: not world.drawn],
    )
    return result.best_candidate["program"], result.val_aggregate_scores[result.best_idx]


def main() -> None:
    logging.disable(logging.CRITICAL)
    data = json.load(sys.stdin)
    ways = {"openevolve": pick_openevolve, "gepa": pick_gepa}
    picks = {
        name: {
            str(b): [way(data, b, seed) for seed in range(data["seeds"])] for b in data["budgets"]
        }
        for name, way in ways.items()
    }
    json.dump(picks, sys.stdout)


if __name__ == "__main__":
    main()
