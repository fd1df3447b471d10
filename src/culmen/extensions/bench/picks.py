"""The candidates of finished runs that other rules would report, evaluated afresh.

POLCA, Section 5.4 and Figure 3d: the empirical mean against five logistic regressors on embeddings,
whose highest, mean or lowest prediction ranks, for shares of the run's observations. Section D.2:
of a run of GEPA the candidate that is on most cases of its frontier, and one drawn by its number of
cases there. The value model of the default strategy is a further rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError, missing_extra
from culmen.core.evaluation import Case, Observation, Rollout, is_excused
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.extensions.bench.analyses import Rows
from culmen.models import embed
from culmen.store import views
from culmen.store.address import has_run

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]

SHARES = (0.25, 0.5, 1.0)  # of the run's observations, drawn at random


class Pick(msgspec.Struct, frozen=True):
    """The candidate of a run that `rule` picks from a `share` of its observations.

    `score` is the mean of `count` fresh evaluations.
    """

    task: str
    strategy: str
    seed: int
    rule: str
    share: float
    candidate: str
    score: float
    count: int


@dataclass(frozen=True)
class Afresh:
    """Evaluation of every initial program, `times` on each case.

    The cases are those of the last split.
    """

    times: int = 1

    async def search(self, lab: Lab) -> None:
        cases = pick_cases(lab.task) * self.times
        await lab.gather(*(lab.evaluate(program, cases) for program in lab.seeds))


def pick_cases(task: Task) -> tuple[Case | None, ...]:
    """The cases that picks are evaluated on: those for the final score, if the task has any."""
    return task.split("test") or task.split("val") or task.split("train") or (None,)


def evaluate_picks(run: Path, strategy: str, seed: int, times: int, **parts: Any) -> list[Pick]:
    """The picks of a finished run, evaluated in a run of their own beside it.

    An interrupted run of picks goes on. `parts` are further keywords of `Study.create`. Embeddings
    come from the run's embedder, outside its budgets.
    """
    from culmen.run.study import Study

    meta, picks_run = views.run_meta(run), run.with_name(f".picks-{times}-{run.name}")
    candidates, chosen = picked_candidates(run, seed)
    programs = [candidates[name] for name in dict.fromkeys(chosen.values())]
    task = msgspec.structs.replace(meta.task, seeds=tuple(program.parts for program in programs))
    budget = Budget(evaluations=len(programs) * len(pick_cases(task)) * times, final=0.0)
    if has_run(picks_run):
        if not views.run_status(picks_run).is_finished:
            Study.resume(picks_run, **parts).run(progress=False)
    else:
        Study.create(
            task, Afresh(times), run_dir=picks_run, budget=budget, random_seed=seed, **parts
        ).run(progress=False)
    rewards: dict[str, list[float]] = {}
    floor, score = task.objective.floor, task.objective.score
    for observation in views.stream_observations(picks_run):
        reward = task.effective_reward(observation)
        value = floor if reward is None else reward
        if value is not None and not is_excused(observation):
            rewards.setdefault(observation.candidate, []).append(value)
    return [
        Pick(task.name, strategy, seed, rule, share, name, score(fmean(values)), len(values))
        for (rule, share), name in chosen.items()
        if (values := rewards.get(name))
    ]


def picked_candidates(
    run: Path, seed: int
) -> tuple[dict[str, Candidate], dict[tuple[str, float], str]]:
    """The candidates of a run by id, and the picked id by rule and share."""
    meta, candidates = views.run_meta(run), _run_candidates(run)
    observations = [
        observation
        for observation in views.stream_observations(run, phase="search")
        if observation.candidate in candidates
    ]
    if not any(meta.task.effective_reward(observation) is not None for observation in observations):
        raise UserError(
            "nothing was scored in this run, so nothing can be picked",
            where=str(run),
            fix=f"culmen show {run.name} --log tells what happened",
        )
    texts = [candidate.text for candidate in candidates.values()]
    vectors = embed.make_embedder(meta.embedder, meta.models_file).embed(texts).astype(float)
    chosen: dict[tuple[str, float], str] = {}
    for share in SHARES:
        rng = Random(f"{seed} {share}")
        sample = (
            observations
            if share == 1
            else rng.sample(observations, max(1, round(share * len(observations))))
        )
        for rule, scores in _scores_by_rule(meta.task, candidates, vectors, sample, rng).items():
            chosen[rule, share] = list(candidates)[max(range(len(scores)), key=scores.__getitem__)]
    for rule, name in frontier_picks(run, Random(seed)).items():
        chosen[rule, 1.0] = name
    return candidates, chosen


def _run_candidates(run: Path) -> dict[str, Candidate]:
    """The candidates of a run in the order of their appearance."""
    candidates = [
        views.candidate_detail(run, row.id, observations=0, children=0).candidate
        for row in views.candidate_rows(run, "old", limit=None)
    ]
    return {candidate.id: candidate for candidate in candidates}


def _scores_by_rule(
    task: Task,
    candidates: Mapping[str, Candidate],
    vectors: Floats,
    observations: Sequence[Observation],
    rng: Random,
) -> dict[str, Floats]:
    """Estimated value of every candidate by each rule, in the order of the candidates."""
    import numpy as np

    from culmen.strategies.memory.queue import PriorityQueue

    queue = PriorityQueue(task.objective.floor)
    queue.add(candidates.values())
    queue.update(
        Rollout(
            candidates[observation.candidate], (observation,), (task.effective_reward(observation),)
        )
        for observation in observations
    )
    row_by_name = {name: row for row, name in enumerate(candidates)}
    observed = [
        (row_by_name[observation.candidate], task.effective_reward(observation))
        for observation in observations
        if not is_excused(observation)
    ]
    rewards = np.array(
        [queue.statistics.floor if reward is None else reward for _, reward in observed]
    )
    predicted = regression_predictions(vectors, [row for row, _ in observed], rewards, rng)
    return {
        "empirical mean": queue.statistics.mean_rewards(),
        "value model": queue.statistics.posterior_means(),
        "regression, highest": predicted.max(axis=0),
        "regression, mean": predicted.mean(axis=0),
        "regression, lowest": predicted.min(axis=0),
    }


def regression_predictions(
    vectors: Floats, rows: Sequence[int], rewards: Floats, rng: Random
) -> Floats:
    """Predictions of five logistic regressors, in 0..1, for every row of `vectors`.

    Shape (5, rows). Observation i is of row `rows[i]`; its reward, brought to 0..1 by the range of
    all, is the weight of the label 1. Each regressor learns from a sample of the observations of
    the same size, drawn with replacement. L2 penalty with C = 1.
    """
    import numpy as np

    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise missing_extra("regression on embeddings", "scikit-learn", "pools") from None
    low, high = rewards.min(), rewards.max()
    # rewards are labels of at least this and at most one minus it
    labels = np.clip((rewards - low) / (high - low or 1.0), 1e-3, 1 - 1e-3)
    predictions: list[Floats] = []
    for _ in range(5):
        drawn = [rng.randrange(len(rows)) for _ in rows]
        points, share = vectors[[rows[i] for i in drawn]], labels[drawn]
        targets = np.concatenate([np.ones(len(drawn)), np.zeros(len(drawn))])
        model = LogisticRegression(max_iter=1000)
        model.fit(np.concatenate([points, points]), targets, np.concatenate([share, 1 - share]))
        predictions.append(model.predict_proba(vectors)[:, 1])
    return np.array(predictions)


def frontier_picks(run: Path, rng: Random) -> dict[str, str]:
    """The two picks of a run with a noted frontier; empty for other runs.

    They depend on the number of cases that each candidate leads on.
    """
    notes = views.note_events(run, "pareto")
    leads: dict[str, int] = notes[-1].entry.body.get("leads", {}) if notes else {}
    if not leads:
        return {}
    drawn = rng.choices(list(leads), list(leads.values()))[0]
    return {"frontier, most frequent": max(leads, key=leads.__getitem__), "frontier, drawn": drawn}


def pick_rows(picks: Sequence[Pick]) -> Rows:
    """A row per task, strategy, share and rule: mean and standard error over runs.

    The same of the difference, run by run, to the pick of the empirical mean from the same
    observations. All in the task's own direction.
    """
    groups: dict[tuple[str, str, float, str], dict[int, Pick]] = {}
    for pick in picks:
        groups.setdefault((pick.task, pick.strategy, pick.share, pick.rule), {})[pick.seed] = pick
    rows: Rows = []
    for (task, strategy, share, rule), runs in groups.items():
        plain = groups.get((task, strategy, share, "empirical mean"), {})
        gaps = [pick.score - plain[seed].score for seed, pick in runs.items() if seed in plain]
        scores = [pick.score for pick in runs.values()]
        row = {"task": task, "strategy": strategy, "share": share, "rule": rule, "runs": len(runs)}
        row |= {"mean": fmean(scores), "se": _standard_error(scores)}
        rows.append(
            row
            | {"difference": fmean(gaps) if gaps else None, "difference_se": _standard_error(gaps)}
        )
    return rows


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
