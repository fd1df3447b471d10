"""The result of a search as a script of GEPA reads it: the attributes of `GEPAResult`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TYPE_CHECKING, Any

from culmen.core.errors import missing_extra
from culmen.core.json import JsonObject
from culmen.extensions.compat.gepa_evaluators import STRING_PART

if TYPE_CHECKING:
    from culmen.core.evaluation import Observation
    from culmen.run.study import Study

_SCHEMA_VERSION = 2  # of `to_dict`, as of gepa 0.1.4


@dataclass(frozen=True)
class GepaMember:
    """A candidate that was scored on all validation examples.

    `scores` and `metrics` are means over an example's evaluations, by the example's position;
    `parents` are positions among the members, `discovered` the number of evaluations before its
    first one on validation examples.
    """

    parts: Mapping[str, str]
    parents: Sequence[int | None]
    scores: Mapping[int, float]
    metrics: Mapping[int, Mapping[str, float]]
    discovered: int = 0


@dataclass(frozen=True)
class GepaResult:
    """A finished search with the attributes of GEPA's result.

    `candidates` are those with a score on every validation example, the initial one first;
    examples are named by their position. `best_idx` is the candidate that culmen reports, which
    the final choice may have measured anew. Outputs are not kept. `study` is the search itself;
    its methods and attributes can be used here, too, except `candidates`.
    """

    members: Sequence[GepaMember]
    best_idx: int
    study: Study
    is_text: bool = False
    total_metric_calls: int | None = None
    num_full_val_evals: int | None = None
    run_dir: str | None = None
    seed: int | None = None
    best_outputs_valset: None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "study":
            raise AttributeError(name)
        return getattr(self.study, name)

    def __repr__(self) -> str:
        return repr(self.study)

    @cached_property
    def candidates(self) -> list[dict[str, str]]:
        """All members' texts by the names of their parts."""
        return [dict(member.parts) for member in self.members]

    @cached_property
    def parents(self) -> list[list[int | None]]:
        """Positions of each candidate's parents; [None] without one."""
        return [list(member.parents) for member in self.members]

    @cached_property
    def val_subscores(self) -> list[dict[int, float]]:
        """Each candidate's scores by validation example."""
        return [dict(member.scores) for member in self.members]

    @cached_property
    def val_aggregate_scores(self) -> list[float]:
        """Each candidate's mean over the validation examples; -inf without a score."""
        return [
            sum(scores.values()) / len(scores) if scores else float("-inf")
            for scores in self.val_subscores
        ]

    @cached_property
    def per_val_instance_best_candidates(self) -> dict[int, set[int]]:
        """The candidates with the best score by validation example."""
        return {example: best[1] for example, best in _leaders(self.val_subscores).items()}

    @cached_property
    def val_aggregate_subscores(self) -> list[dict[str, float]] | None:
        """Each candidate's mean objective scores; None if there are none at all."""
        means = [_mean_metrics(member.metrics.values()) for member in self.members]
        return means if any(means) else None

    @cached_property
    def per_objective_best_candidates(self) -> dict[str, set[int]] | None:
        """The candidates with the best mean by objective; None without objectives."""
        leaders = _leaders(self.val_aggregate_subscores or [])
        return {name: best[1] for name, best in leaders.items()} or None

    @cached_property
    def objective_pareto_front(self) -> dict[str, float] | None:
        """The best mean by objective; None without objectives."""
        leaders = _leaders(self.val_aggregate_subscores or [])
        return {name: best[0] for name, best in leaders.items()} or None

    @property
    def discovery_eval_counts(self) -> list[int]:
        """Evaluations before each candidate's first one on validation examples."""
        return [member.discovered for member in self.members]

    @property
    def num_candidates(self) -> int:
        """Number of candidates."""
        return len(self.members)

    @property
    def num_val_instances(self) -> int:
        """Number of validation examples."""
        return len(self.per_val_instance_best_candidates)

    @property
    def best_candidate(self) -> str | dict[str, str]:
        """The reported candidate: a text if the initial one was a text, else texts by name."""
        parts = self.candidates[self.best_idx]
        return next(iter(parts.values())) if self.is_text else parts

    @property
    def best_refiner_prompt(self) -> str | None:
        """The part `refiner_prompt` of the reported candidate; None without one."""
        return self.candidates[self.best_idx].get("refiner_prompt")

    def candidate_tree_dot(self) -> str:
        """The lineage as Graphviz's text; needs the package gepa."""
        return _visualization().candidate_tree_dot_from_data(**self._tree())

    def candidate_tree_html(self) -> str:
        """The lineage as a page; needs the package gepa."""
        return _visualization().candidate_tree_html_from_data(**self._tree())

    def _tree(self) -> JsonObject:
        return {
            "candidates": self.candidates,
            "parents": self.parents,
            "val_scores": self.val_aggregate_scores,
            "pareto_front_programs": self.per_val_instance_best_candidates,
        }

    def to_dict(self) -> JsonObject:
        """The result as plain data, which `GEPAResult.from_dict` of the package reads."""
        names = (
            *("candidates", "parents", "val_aggregate_scores", "val_subscores"),
            *("best_outputs_valset", "val_aggregate_subscores", "objective_pareto_front"),
            *("discovery_eval_counts", "total_metric_calls", "num_full_val_evals"),
            *("run_dir", "seed", "best_idx"),
        )
        objectives = self.per_objective_best_candidates
        return {name: getattr(self, name) for name in names} | {
            "per_val_instance_best_candidates": {
                key: list(front) for key, front in self.per_val_instance_best_candidates.items()
            },
            "per_objective_best_candidates": None
            if objectives is None
            else {key: list(front) for key, front in objectives.items()},
            "_str_candidate_key": STRING_PART if self.is_text else None,
            "validation_schema_version": _SCHEMA_VERSION,
        }


def _visualization() -> Any:
    try:
        from gepa import visualization  # pyright: ignore
    except ImportError:
        raise missing_extra("the tree of candidates", "gepa", "gepa") from None
    return visualization


def _leaders(rows: Iterable[Mapping[Any, float]]) -> dict[Any, tuple[float, set[int]]]:
    """The best value by key, and the positions of the rows that have it."""
    best: dict[Any, tuple[float, set[int]]] = {}
    for position, row in enumerate(rows):
        for key, value in row.items():
            if key not in best or value > best[key][0]:
                best[key] = value, {position}
            elif value == best[key][0]:
                best[key][1].add(position)
    return best


def _mean_metrics(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def result_of(study: Study, is_text: bool) -> GepaResult:
    """The result of a finished study."""
    cases = study.meta.task.split("val") or study.meta.task.split("train")
    places = {case.id: place for place, case in enumerate(cases)} or {"": 0}
    seen = _Seen(places)
    for observation in study.observations():
        seen.add(observation)
    rows = sorted(study.candidates(), key=lambda row: row.seq)
    reported = study.best.id if study.best is not None else ""
    # a search that scores candidates on few examples has none that is complete
    listed = [row for row in rows if seen.is_complete(row.id) or row.id == reported]
    if rows and rows[0] not in listed:
        listed.insert(0, rows[0])
    ids = [row.id for row in listed]
    families = {row.id: row.parents for row in rows}
    members = [
        GepaMember(
            {STRING_PART: study.candidate(id).candidate.text}
            if is_text
            else study.candidate(id).parts,
            _listed_parents(id, families, ids),
            seen.scores_of(id),
            seen.metrics_of(id),
            0 if place == 0 else seen.first.get(id, seen.count),
        )
        for place, id in enumerate(ids)
    ]
    return GepaResult(
        members,
        ids.index(reported) if reported in ids else 0,
        study,
        is_text,
        seen.count,
        sum(map(seen.is_complete, ids)),
        str(study.path),
        study.meta.seed,
    )


def _listed_parents(
    id: str, families: Mapping[str, Sequence[str]], listed: Sequence[str]
) -> list[int | None]:
    """Positions of the nearest listed ancestors; [None] without one."""
    places = {name: place for place, name in enumerate(listed)}
    found: dict[int, None] = {}
    left, known = list(families.get(id, ())), {id}
    while left:
        parent = left.pop(0)
        if parent in known:
            continue
        known.add(parent)
        if parent in places:
            found[places[parent]] = None
        else:
            left.extend(families.get(parent, ()))
    return list(found) or [None]


class _Seen:
    """Evaluations on validation examples, by candidate and the example's position."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places, self.count = places, 0
        self.first: dict[str, int] = {}  # evaluations before a candidate's first one on examples
        self._scored: dict[str, dict[int, list[Observation]]] = {}

    def add(self, observation: Observation) -> None:
        """Add an evaluation, in the order of completion."""
        place = self._places.get(observation.case)
        if place is not None:
            self.first.setdefault(observation.candidate, self.count)
            if observation.score is not None:
                scored = self._scored.setdefault(observation.candidate, {})
                scored.setdefault(place, []).append(observation)
        self.count += 1

    def is_complete(self, id: str) -> bool:
        """True if every example has a score."""
        return len(self._scored.get(id, ())) == len(self._places)

    def scores_of(self, id: str) -> dict[int, float]:
        """Mean scores by position, in the order of positions."""
        rows = sorted(self._scored.get(id, {}).items())
        return {place: mean(each.score or 0.0 for each in seen) for place, seen in rows}

    def metrics_of(self, id: str) -> dict[int, dict[str, float]]:
        """Mean metrics by position."""
        rows = self._scored.get(id, {}).items()
        return {place: _mean_metrics(each.metrics for each in seen) for place, seen in rows}
