"""All experiments of a run, by every agent: filters, the best, differences."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.task import Objective, digest_pieces
from culmen.extensions.agents.messages import ExperimentRow

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_Comparable = TypeVar("_Comparable", float, str)


class History:
    """Rows in the order of their evaluation, and the best of them.

    The best has the best certified score if the task has a verifier (`exact`), else the best score.
    """

    def __init__(self, objective: Objective, exact: bool) -> None:
        self.objective, self.exact = objective, exact
        self.rows: list[ExperimentRow] = []
        self.best: ExperimentRow | None = None
        self.candidates: dict[str, Candidate] = {}
        self.digest = ""
        self._rollouts: dict[str, Rollout] = {}

    def record_row(self, row: ExperimentRow, rollout: Rollout | None = None) -> None:
        """Add a row; `rollout` holds the evaluations, None for an experiment that was refused."""
        self.rows.append(row)
        self.digest = digest_pieces(
            self.digest, row.ticket, row.candidate, repr((row.score, row.certified))
        )[:16]
        if rollout is not None:
            self.candidates.setdefault(row.candidate, rollout.candidate)
            self._rollouts[row.candidate] = rollout
        if self.decisive_score(row) is not None and (
            self.best is None or self.beats_best(self.decisive_score(row))
        ):
            self.best = row

    def decisive_score(self, row: ExperimentRow) -> float | None:
        """The score for thresholds and the best: the certified score if the task has a verifier."""
        return row.certified if self.exact else row.score

    def beats_best(self, score: float | None) -> bool:
        """True if a score is better than the best so far."""
        standing = None if self.best is None else self.decisive_score(self.best)
        if score is None or standing is None:
            return score is not None
        return self.objective.reward(score) > self.objective.reward(standing)

    def ranking_reward(self, row: ExperimentRow) -> float | None:
        """Reward by which rows are ranked, higher is better; None for a row without a rank.

        It uses the certified score if there is one, else the score.
        """
        if row.reason == "not_certified":
            return None
        score = row.score if row.certified is None else row.certified
        return None if score is None else self.objective.reward(score)

    def latest_rollout(self, candidate: str) -> Rollout | None:
        """The latest rollout of a candidate; None if there is none."""
        return self._rollouts.get(candidate)

    def top_rows(self, k: int, rows: Sequence[ExperimentRow] | None = None) -> list[ExperimentRow]:
        """The `k` best rows, one per candidate, the earlier first on a tie.

        An uncertified row never ranks above the best certified row if the task has a verifier.
        """
        best_of_all = None if self.best is None else self.decisive_score(self.best)
        cap = (
            math.inf
            if best_of_all is None or not self.exact
            else self.objective.reward(best_of_all)
        )
        best: dict[str, tuple[float, ExperimentRow]] = {}
        for row in self.rows if rows is None else rows:
            reward = self.ranking_reward(row)
            if reward is not None and (
                row.candidate not in best or reward > best[row.candidate][0]
            ):
                best[row.candidate] = (reward, row)
        ranked = sorted(
            best.values(), key=lambda entry: (-min(entry[0], cap), entry[1].certified is None)
        )
        return [row for _, row in ranked[:k]]

    def find_rows(self, conditions: Sequence[str] = ()) -> list[ExperimentRow]:
        """Rows that meet all conditions.

        Conditions: `score>2.5`, `status=ok`, `agent=3`, `note~spiral`, `metrics.gap<0.1`. Raises
        ValueError for a text that is not a condition.
        """
        tests = [_parse_condition(text) for text in conditions]
        return [row for row in self.rows if all(test(row) for test in tests)]

    def resolve_candidate(self, name: str) -> str:
        """Id of a candidate by its id, a unique prefix of it, a ticket, or the path of its file.

        A prefix has at least 4 characters. The result is "" if there is no such candidate.
        """
        for row in reversed(self.rows):
            if row.candidate and name in (row.candidate, row.ticket, row.path):
                return row.candidate
        matches = [known for known in self.candidates if len(name) >= 4 and known.startswith(name)]
        return matches[0] if len(matches) == 1 else ""

    def candidate_diff(self, first_name: str, second_name: str) -> str:
        """Unified diff of two candidates; "" if one of them is unknown or they are equal."""
        pair = [
            self.candidates.get(self.resolve_candidate(name)) for name in (first_name, second_name)
        ]
        if pair[0] is None or pair[1] is None:
            return ""
        first, second = pair[0], pair[1]
        lines: list[str] = []
        for name in sorted({*first.parts, *second.parts}):
            before, after = (
                first.parts.get(name, "").splitlines(),
                second.parts.get(name, "").splitlines(),
            )
            lines += difflib.unified_diff(
                before, after, f"{first.id}/{name}", f"{second.id}/{name}", lineterm=""
            )
        return "\n".join(lines)


def _parse_condition(text: str) -> Callable[[ExperimentRow], bool]:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"not a filter: {text!r}; write for instance score>2.5, status=ok or note~spiral"
        )
    field, sign, wanted = match.groups()
    if sign == "~":  # no regular expressions: one from a model could run for ever
        return lambda row: wanted.lower() in str(_field_value(row, field)).lower()
    return lambda row: _compare_values(sign, _field_value(row, field), wanted)


def _field_value(row: ExperimentRow, name: str) -> object:
    group, _, key = name.partition(".")
    return row.metrics.get(key) if group == "metrics" and key else getattr(row, name, None)


def _compare_values(sign: str, value: object, wanted: str) -> bool:
    if isinstance(value, int | float):
        try:
            return _holds(float(value), sign, float(wanted))
        except ValueError:
            return sign == "!="
    if value is None and sign not in ("=", "!="):
        return False
    return _holds("" if value is None else str(value), sign, wanted)


def _holds(value: _Comparable, sign: str, wanted: _Comparable) -> bool:
    match sign:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case "<":
            return value < wanted
        case ">":
            return value > wanted
        case "<=":
            return value <= wanted
        case _:
            return value >= wanted
