"""The worth of each of a task's runs, on equal terms: a value and its error.

Programs are valued, so equal programs have one value, whichever runs returned them. Certified
values are exact. Otherwise, if all programs were scored together (`culmen compare --score`), that
measurement counts. Otherwise each run has its own measurement: if it was made on only some of the
cases, which differ between runs, the run counts by its gain over the initial program on the same
cases, added to that program's score over all runs; otherwise by its score. A run that returned the
initial program, or whose gain is not shown by its interval, found nothing and has that program's
value.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from culmen.core.task import Objective
from culmen.extensions.bench.fresh_scores import FreshScore
from culmen.extensions.bench.records import ComparedRun, Measurement
from culmen.extensions.bench.stats import CONFIDENCE, NORMAL, RESAMPLES, MeasuredValues

if TYPE_CHECKING:
    from culmen.extensions.bench.stats import Floats

    # reward of a program, and draws of it of shape (RESAMPLES,)
    _Table = dict[str, tuple[float, Floats]]

NOTHING = float("-inf")  # reward of a run without a value
_SEED = 1  # random seed of the resampling
_ORDER = ("test", "val", "train", "")  # splits, the most informative first


class Worth(NamedTuple):
    """Worth of some runs, in their order.

    `values` are in the task's own direction (None: no score), with `margins`, the cases `on` which
    they were measured, and `nothing` for runs that found nothing; `rewards` have draws, and are
    -inf without a value. `basis` is the kind of the values, `initial` the initial program's value
    (None: not measured), `start` draws of its reward. `unequal`: values were measured on different
    samples of cases; `together`: all on the same.
    """

    basis: str
    values: list[float | None]
    margins: list[float | None]
    on: list[str]
    nothing: list[bool]
    rewards: MeasuredValues
    initial: float | None = None
    start: Floats | None = None
    unequal: bool = False
    together: bool = False


def worth_of_runs(runs: Sequence[ComparedRun]) -> Worth:
    """The worth of these runs of one task, at least one."""
    valued = [run for run in runs if run.score is not None]
    if any(run.strict is not None for run in runs):
        return _certified_worth(runs)
    together = _common_measurement(valued)
    return _own_worth(runs) if together is None else _common_worth(runs, *together)


def _program_key(run: ComparedRun) -> str:
    """The run's program or, if unknown, a key of the run itself."""
    return run.program or f"{run.run} {run.seed} {run.contender_key}"


def _values_and_rewards(
    runs: Sequence[ComparedRun],
    keys: Sequence[str | None],
    table: _Table,
    shared: _Table | None = None,
    raw: Sequence[str | None] = (),
) -> tuple[list[float | None], MeasuredValues]:
    """Values and rewards of runs by their keys in the table of programs (None: no value).

    `shared` is the table with only the errors that runs share; `raw` are the keys of the programs
    returned, where `keys` has the initial program for runs without a shown gain.
    """
    objective = runs[0].objective
    valued = [table.get(key) if key is not None else None for key in keys]
    values = [NOTHING if each is None else each[0] for each in valued]
    rewards = MeasuredValues(values, _stacked_draws(keys, table))
    if shared is not None:
        rewards = rewards._replace(
            ruled=_stacked_draws(keys, shared), raw=_stacked_draws(raw, shared)
        )
    values = [None if each is None else objective.score(each[0]) for each in valued]
    return values, rewards


def _stacked_draws(keys: Sequence[str | None], table: _Table) -> Floats:
    """Draws of shape (RESAMPLES, number of keys)."""
    import numpy as np

    none = np.full(RESAMPLES, NOTHING)
    return np.stack([none if key is None else table[key][1] for key in keys], axis=1)


def _within_bounds(table: _Table, objective: Objective) -> _Table:
    """The table with rewards and draws inside the bounds of honest scores."""
    import numpy as np

    low, high = objective.reward_range
    return {
        name: (min(max(low, value), high), np.clip(draws, low, high))
        for name, (value, draws) in table.items()
    }


def _certified_worth(runs: Sequence[ComparedRun]) -> Worth:
    known: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.certified is not None:
            known[_program_key(run)].append(run.objective.reward(run.certified))
    table = {key: (min(each), _constant_draws(min(each))) for key, each in known.items()}
    keys = [None if run.certified is None else _program_key(run) for run in runs]
    nothing = [run.returned_the_initial_program for run in runs]
    margins = [None if key is None else 0.0 for key in keys]
    values, rewards = _values_and_rewards(runs, keys, table)
    return Worth(
        values=values,
        rewards=rewards,
        basis="certified values",
        margins=margins,
        on=[""] * len(runs),
        nothing=nothing,
    )


def _constant_draws(value: float) -> Floats:
    import numpy as np

    return np.full(RESAMPLES, value)


# Programs that were scored together, on the same cases with the same random seeds.


def _common_measurement(
    runs: Sequence[ComparedRun],
) -> tuple[str, int, int, dict[str, list[float]]] | None:
    """The common measurement of all programs; None if not all were scored together.

    Split, number of its cases, repeats, and the rewards of every program in units that pair: means
    over the repeats of each case or, without a data set, single evaluations. A failure counts as
    the floor of the task, or else as the lowest of these rewards.
    """
    names = {name for run in runs for name in (run.program, run.initial_program) if name}
    if not runs or any(not run.program for run in runs):
        return None
    for split in _ORDER:
        scores: dict[str, dict[tuple[str, int], FreshScore]] = defaultdict(dict)
        for each in (each for run in runs for each in run.fresh if each.split == split):
            scores[each.candidate].setdefault((each.case, each.repeat), each)
        if names <= scores.keys():
            shared = set.intersection(*(set(scores[name]) for name in names))
            of = next(iter(scores[runs[0].program].values())).of
            repeats = _whole_repeats(shared, of)
            if repeats:
                chosen = {name: {unit: scores[name][unit] for unit in shared} for name in names}
                return split, of, repeats, _unit_rewards(chosen, repeats, of, runs[0].objective)
    return None


def _whole_repeats(evaluated: Iterable[tuple[str, int]], of: int) -> int:
    """Number of repeats, from the first on, in which all cases were evaluated."""
    counts: dict[int, int] = defaultdict(int)
    for _, repeat in evaluated:
        counts[repeat] += 1
    complete = 0
    while counts[complete] >= max(1, of):
        complete += 1
    return complete


def _unit_rewards(
    scores: Mapping[str, Mapping[tuple[str, int], FreshScore]],
    repeats: int,
    of: int,
    objective: Objective,
) -> dict[str, list[float]]:
    known = [
        objective.reward(each.score)
        for by in scores.values()
        for each in by.values()
        if each.score is not None
    ]
    floor = objective.floor if objective.floor is not None else min(known, default=0.0)
    rewards: dict[str, list[float]] = {}
    for name, by in scores.items():
        units: dict[object, list[float]] = defaultdict(list)
        for (case, repeat), each in sorted(by.items()):
            if repeat < repeats:
                reward = floor if each.score is None else objective.reward(each.score)
                units[case if of else repeat].append(reward)
        rewards[name] = [sum(each) / len(each) for each in units.values()]
    return rewards


def _common_worth(
    runs: Sequence[ComparedRun],
    split: str,
    of: int,
    repeats: int,
    units: Mapping[str, Sequence[float]],
) -> Worth:
    """Worth by values of programs that were scored together."""
    table = _within_bounds(
        _drawn_units(units, exact=bool(runs[0].deterministic)), runs[0].objective
    )
    keys = [None if run.score is None else run.program for run in runs]
    margins = [None if key is None else _half_width(table[key][1]) for key in keys]
    times = "once" if repeats == 1 else f"{repeats} times each"
    measured = f"all {of} {split} cases, {times}" if of else f"{repeats} evaluations"
    first = next((run.initial_program for run in runs if run.initial_program), "")
    values, rewards = _values_and_rewards(runs, keys, table)
    return Worth(
        values=values,
        rewards=rewards,
        basis=f"scores on {measured}",
        margins=margins,
        on=[f"{of} of {of}" if of else ""] * len(runs),
        nothing=[run.returned_the_initial_program for run in runs],
        initial=runs[0].objective.score(table[first][0]) if first in table else None,
        start=table[first][1] if first in table else None,
        together=True,
    )


def _drawn_units(units: Mapping[str, Sequence[float]], exact: bool) -> _Table:
    """Means of programs, and draws of them by a bootstrap over units common to all programs.

    Draws are spread by Student's t for the number of units, since the bootstrap of few units is too
    narrow. Exact scores have no error.
    """
    import numpy as np
    import scipy.stats

    size = len(next(iter(units.values())))
    means = {name: math.fsum(each) / size for name, each in units.items()}
    if exact or size < 2:
        return {name: (mean, _constant_draws(mean)) for name, mean in means.items()}
    positions = np.random.default_rng(_SEED).integers(0, size, (RESAMPLES, size))
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, size - 1))
    wider = quantile / NORMAL * math.sqrt(size / (size - 1))
    return {
        name: (
            means[name],
            means[name] + wider * (np.asarray(each)[positions].mean(axis=1) - means[name]),
        )
        for name, each in units.items()
    }


def _half_width(draws: Floats) -> float:
    import numpy as np

    low, high = np.percentile(draws, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(high - low) / 2


# Programs as measured by their own runs.


def _own_worth(runs: Sequence[ComparedRun]) -> Worth:
    valued = [run for run in runs if run.score is not None]
    firsts = {run.initial_program for run in valued}
    unequal = any(0 < run.cases < run.of for run in valued)
    initial, gains = _initial_programs(valued), _program_gains(valued)
    by_gain = unequal and len(firsts) == 1 and firsts <= initial.keys()
    nothing = [
        _found_nothing(run, gains, by_gain) and run.initial_program in initial for run in runs
    ]
    if by_gain:
        (first,) = firsts
        measured = _scores_from_gains(initial, gains, first)
    else:
        measured = {**_program_scores(valued), **initial}
    keys = [
        None if run.score is None else run.initial_program if none else _program_key(run)
        for run, none in zip(runs, nothing)
    ]
    margins = [None if key is None else measured[key].margin for key in keys]
    base = next(iter(firsts)) if by_gain else ""
    objective = runs[0].objective
    table = _within_bounds(_normal_draws(measured, gains if by_gain else {}, base), objective)
    several = {*_repeated_programs(valued), *initial}
    exact = {
        name: each if name in several else Measurement(each.value, 0.0)
        for name, each in measured.items()
    }
    first = next((name for name in sorted(firsts) if name in initial), None)
    returned = [
        _program_key(run) if run.score is not None and _program_key(run) in table else key
        for run, key in zip(runs, keys)
    ]
    shared = _within_bounds(_normal_draws(exact, gains if by_gain else {}, base), objective)
    values, rewards = _values_and_rewards(runs, keys, table, shared, returned)
    return Worth(
        values=values,
        rewards=rewards,
        basis="gains over the initial program" if by_gain else "scores",
        margins=margins,
        on=[_measured_cases(run) for run in runs],
        nothing=nothing,
        initial=None if first is None else objective.score(table[first][0]),
        start=None if first is None else table[first][1],
        unequal=unequal,
    )


def _repeated_programs(runs: Sequence[ComparedRun]) -> set[str]:
    """Programs that several runs of one strategy returned."""
    counts = Counter((run.contender_key, _program_key(run)) for run in runs)
    return {key for (_, key), count in counts.items() if count > 1}


def _measured_cases(run: ComparedRun) -> str:
    return f"{run.cases} of {run.of}" if run.of else ""


def _pooled_measurement(measurements: Sequence[Measurement]) -> Measurement:
    """The pooled measurement of independent ones, each weighted by its evaluations.

    No margin if any measurement has none.
    """
    total = sum(each.count for each in measurements)
    shares = [each.count / total if total else 1 / len(measurements) for each in measurements]
    value = math.fsum(share * each.value for share, each in zip(shares, measurements))
    margins = [each.margin for each in measurements]
    known = [share * margin for share, margin in zip(shares, margins) if margin is not None]
    return Measurement(value, math.hypot(*known) if len(known) == len(margins) else None, total)


def _by_program(measurements: Iterable[tuple[str, Measurement]]) -> dict[str, Measurement]:
    """Pooled measurements (rewards) by program."""
    kept: dict[str, list[Measurement]] = defaultdict(list)
    for name, each in measurements:
        kept[name].append(each)
    return {name: _pooled_measurement(each) for name, each in kept.items()}


def _reward_measurement(run: ComparedRun, measurement: Measurement) -> Measurement:
    return Measurement(
        run.objective.reward(measurement.value), measurement.margin, measurement.count
    )


def _own_score(run: ComparedRun) -> Measurement:
    assert run.score is not None
    return Measurement(run.objective.reward(run.score), run.margin, run.count)


def _program_scores(runs: Iterable[ComparedRun]) -> dict[str, Measurement]:
    return _by_program(
        (_program_key(run), _own_score(run)) for run in runs if run.score is not None
    )


def _initial_programs(runs: Sequence[ComparedRun]) -> dict[str, Measurement]:
    """Initial programs, as measured by all runs."""
    beside = [
        (run.initial_program, _reward_measurement(run, run.initial))
        for run in runs
        if run.initial is not None
    ]
    returned = [(run.program, _own_score(run)) for run in runs if run.returned_the_initial_program]
    return _by_program([*beside, *returned])


def _program_gains(runs: Sequence[ComparedRun]) -> dict[str, Measurement]:
    return _by_program(
        (_program_key(run), _reward_measurement(run, run.gain))
        for run in runs
        if run.gain is not None
    )


def _found_nothing(run: ComparedRun, gains: Mapping[str, Measurement], by_gain: bool) -> bool:
    if run.returned_the_initial_program:
        return True
    gain = gains.get(_program_key(run))
    if gain is None:
        return by_gain
    return gain.margin is None or gain.value <= gain.margin


def _scores_from_gains(
    initial: Mapping[str, Measurement], gains: Mapping[str, Measurement], first: str
) -> dict[str, Measurement]:
    """Scores of programs as the initial program's score plus their gains.

    Margins are those of the gains.
    """
    base = initial.get(first, Measurement(0.0, 0.0))
    return {
        **{
            name: Measurement(base.value + gain.value, gain.margin, gain.count)
            for name, gain in gains.items()
        },
        **initial,
    }


def _normal_draws(
    measured: Mapping[str, Measurement], gains: Mapping[str, Measurement], first: str
) -> _Table:
    """Normal draws with the same 95 % intervals.

    Draws of gains share the initial program's error.
    """
    import numpy as np

    rng = np.random.default_rng(_SEED)
    error = {
        name: (each.margin or 0.0) / NORMAL * rng.standard_normal(RESAMPLES)
        for name, each in sorted(measured.items())
    }
    shared = error.get(first, 0.0)
    return {
        name: (
            each.value,
            each.value + error[name] + (shared if name in gains and name != first else 0.0),
        )
        for name, each in measured.items()
    }
