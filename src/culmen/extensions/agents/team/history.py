"""All experiments of a run, by every agent, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.task import Objective, digest_pieces
from culmen.extensions.agents.messages import ExperimentRow


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

    def resolve_candidate(self, name: str) -> str:
        """Id of a candidate by its id, a unique prefix of it, a ticket, or the path of its file.

        A prefix has at least 4 characters. The result is "" if there is no such candidate.
        """
        for row in reversed(self.rows):
            if row.candidate and name in (row.candidate, row.ticket, row.path):
                return row.candidate
        matches = [known for known in self.candidates if len(name) >= 4 and known.startswith(name)]
        return matches[0] if len(matches) == 1 else ""
