"""Sentences on the result of a run, from `RunResult` alone, for every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import BANK_EMPTY
from culmen.core.event import Entry
from culmen.core.result import FrontPoint, NoiseReport, RunResult, Score
from culmen.core.task import Objective
from culmen.observe.figures import (
    count_text,
    join_nonempty,
    number_text,
    score_with_margin,
)
from culmen.observe.verdict import gain_text, way_text

if TYPE_CHECKING:
    from culmen.store.views import Front

_FAR = 2.0  # fall of a score, in standard errors, that is reported


class Doubt(msgspec.Struct, frozen=True):
    """One doubt about a result: `level` warn or bad, short `words`, and the reason `why`."""

    level: str
    words: str
    why: str


def reported_score_text(result: RunResult) -> str:
    """`0.523 ± 0.035`: the reported score with its 95 % interval; of a front, its size."""
    if result.front:
        return front_size_text(result)
    return score_with_margin(result.score, result.margin, result.bounds)


def _other_score_text(result: RunResult, other: Score) -> str:
    return score_with_margin(other.score, other.margin, result.bounds)


def result_headline(
    result: RunResult, is_over: bool = True, objective: Objective | None = None
) -> str:
    """`initial 0.443 ± 0.090 → best 0.523 ± 0.035: +0.08, within noise`.

    Or a statement that the initial program was kept. For a running search, its estimates so far.
    With the `objective`, the share of the way to its target or best known value follows. Of a
    front: its size, and its default choice.
    """
    if result.front:
        return _front_headline(result, is_over)
    failed = way = ""
    if result.failures:
        failed = f"; failed {result.failures} of {count_text(result.count, 'evaluation')}"
    if objective is not None and _is_gain_shown(result):
        way = way_text(result, objective)
    return _result_comparison(result, " yet" * (not is_over)) + (way and f"; {way}") + failed


def front_size_text(result: RunResult) -> str:
    """`front of 7`."""
    return f"front of {len(result.front):,}"


def _front_headline(result: RunResult, is_over: bool) -> str:
    """`front of 7, confirmed; default choice: accuracy 0.64 ± 0.03, latency 4.5 ± 0.5`."""
    yet = " yet" * (not is_over)
    sure = "confirmed" if result.confirmed else f"not confirmed by fresh evaluations{yet}"
    line, chosen = f"{front_size_text(result)}, {sure}", chosen_point(result)
    return line if chosen is None else f"{line}; default choice: {metrics_text(chosen)}"


def chosen_point(result: RunResult) -> FrontPoint | None:
    """The member of the front that the result stands for; None with a single score."""
    return next((point for point in result.front if point.id == result.id), None)


def metrics_text(point: FrontPoint) -> str:
    """`accuracy 0.64 ± 0.03, latency 4.5 ± 0.5`."""
    return join_nonempty(
        f"{name} {score_with_margin(value, point.margins.get(name))}"
        for name, value in point.metrics.items()
    )


def choice_reason(front: Front) -> str:
    """The rule of the default choice, in words."""
    names = [goal.name for goal in front.objectives]
    if len(front.members) == 1:
        return "it is the only member of the front"
    if len(names) == 1:
        return f"it has the best {names[0]}"
    equals = f"; of equally near ones, the best {names[0]}"
    return (
        "nearest to the best value of every objective at once, all weighing alike, each "
        f"measured in units of its span on the front{equals}"
    )


def _is_gain_shown(result: RunResult) -> bool:
    """True if a confirmed gain is not within noise."""
    if not result.confirmed or result.kept_initial or result.gain is None:
        return False
    return result.score_difference(result.gain, 0.0) > (result.gain_margin or 0.0)


def _result_comparison(result: RunResult, yet: str) -> str:
    first = result.initial
    if result.kept_initial:
        other = result.challenger
        nothing = f"kept the initial program ({reported_score_text(result)})"
        if other is None:
            return f"{nothing}: no other one has scored{yet}"
        rival = _other_score_text(result, other)
        return f"{nothing}: nothing was shown to be better{yet} (best other: {rival})"
    before = "" if first is None else f"initial {_other_score_text(result, first)} → "
    line = f"{before}best {reported_score_text(result)}"
    if not result.confirmed:
        return f"{line}, not confirmed by fresh evaluations{yet}"
    if first is None or result.gain is None:
        return line
    line = f"{line}: {gain_text(result)}{_gain_certainty(result)}"
    is_better = result.score_difference(result.gain, 0.0) > 0
    return line if is_better else f"nothing better than the initial program was found: {line}"


def _gain_certainty(result: RunResult) -> str:
    margin = result.gain_margin
    if not margin:
        return ", exact" if margin == 0 and result.noise.exact else ", noise not known"
    return ", within noise" if abs(result.gain or 0.0) <= margin else ", beyond noise"


def score_basis_text(result: RunResult) -> str:
    """`mean of 10 evaluations made after it was chosen, on 10 of 100 test cases; ...`.

    With the intervals for these cases and for new ones, and the number of failed evaluations.
    """
    many = count_text(result.count, "evaluation")
    if not result.confirmed and not result.failures:
        return f"from {many} of the search, not confirmed by a fresh one"
    cases = ""
    if result.cases:
        share = (
            f"all {result.of}" if result.cases == result.of else f"{result.cases} of {result.of}"
        )
        cases = f", on {share} {result.split} case{'' if result.of == 1 else 's'}"
    failed = f"{result.failures} of them failed and count as the floor" if result.failures else ""
    return join_nonempty(
        [f"mean of {many} made after it was chosen{cases}", _intervals_text(result), failed], "; "
    )


def _intervals_text(result: RunResult) -> str:
    """The intervals for the cases of the task and for new cases, if both are known."""
    if not result.cases or result.margin is None or not result.new_margin:
        return ""
    here, new = (
        score_with_margin(result.score, m, result.bounds)
        for m in (result.margin, result.new_margin)
    )
    here = here if result.margin else f"{here} exactly"
    return f"{here} for the cases of this task, {new} for new cases of the kind"


def result_doubts(result: RunResult | None) -> list[Doubt]:
    """Doubts about the reported score."""
    if result is None:
        return []
    doubts: list[Doubt] = []
    if result.front:
        pass  # a trade-off need not be better than the initial program in a sum
    elif result.kept_initial:
        doubts.append(Doubt("warn", "initial program kept", _KEPT))
    elif result.confirmed and result.gain is not None:
        gain = result.score_difference(result.gain, 0.0)
        if gain <= 0 and result.gain_margin is not None:
            doubts.append(Doubt("bad", "no better than the initial program", _GAIN))
        elif gain <= (result.gain_margin or 0.0):
            doubts.append(Doubt("warn", "not clearly better than the initial program", _GAIN))
    if result.failures:
        words = f"failed {result.failures} of {count_text(result.count, 'evaluation')}"
        doubts.append(Doubt("warn", words, "failures count as the floor of the score"))
    if (
        not result.front
        and result.se is not None
        and _score_fall(result) > max(1e-9, _FAR * result.se)
    ):
        doubts.append(Doubt("warn", f"fell from {search_score_text(result)}", _FELL))
    return doubts


_KEPT = "no other candidate was shown to be better, on equal terms"
_GAIN = "on the same cases, by the final choice's fresh evaluations"
_FELL = "what the search expected: fresh evaluations are more than two standard errors below it"


def _score_fall(result: RunResult) -> float:
    """Fall of a confirmed score below the search's estimate; 0 without one."""
    if not result.confirmed or result.search_score is None:
        return 0.0
    return max(0.0, result.score_difference(result.search_score, result.score))


def has_fallen(result: RunResult) -> bool:
    """True if the confirmed score is below the search's estimate by more than its margin."""
    least = max(result.margin or 0.0, 1e-9 * abs(result.search_score or 0.0))
    return _score_fall(result) > least


def search_score_text(result: RunResult) -> str:
    """The search's estimate, to the digits of the reported score."""
    return score_with_margin(result.search_score, result.margin).partition(" ")[0]


def noise_sentence(report: NoiseReport) -> str:
    """A sentence on the evaluator's noise."""
    many = count_text(report.repeats, "repeated evaluation")
    if report.exact:
        return (
            f"Scores are exact, as {many} showed."
            if report.repeats
            else "Scores are exact, as the task declares."
        )
    if report.exact is False and not report.sd:
        return f"Evaluations of one program fail now and then; those that scored agreed ({many})."
    if report.exact is False:
        return f"Scores are noisy: one evaluation deviates by about {report.sd:.2g} ({many})."
    if not report.repeats:
        return "Noise is not known: nothing was evaluated twice."
    bound = (
        ""
        if report.differing_rate is None
        else f": up to {report.differing_rate:.0%} of repeats may differ"
    )
    return f"Noise is not known: {many} agreed, too few to tell{bound}."


def noise_note(entry: Entry) -> str:
    """A sentence from a note on the evaluator's noise; "" for any other entry."""
    if entry.kind != "note" or entry.body.get("note") != "noise":
        return ""
    exact, sd, repeats = (entry.body.get(name) for name in ("exact", "sd", "repeats"))
    return noise_sentence(NoiseReport(exact, float(sd or 0.0), int(repeats or 0)))


_ENDS = {
    "evaluations": "the budget of evaluations is spent",
    "calls": "the budget of calls is spent",
    "tokens": "the budget of tokens is spent",
    "dollars": "the budget of dollars is spent",
    "seconds": "the budget of seconds is spent",
    "budget": "the budget is spent",
    "user": "a person stopped it",
    "integrity": "a candidate showed a grave sign of gaming (--integrity stop)",
    "threshold": "the threshold is reached",
    "target": "the score to stop at is reached (--stop-at)",
    "plateau": "too many agents in a row without a gain",
    "agents": "all agents have had their turn",
    "agents_crashed": "every agent crashed (culmen log says how)",
    "unavailable": "no agent could be started",
    "strategy_done": "the strategy is done",
    "initial_fails": "the initial program gives no score",
    "always_fails": "the first evaluations all failed alike",
    "strategy_waits_for_nothing": "the strategy asks for nothing more",
    "nothing_new": "nothing new came up",
    BANK_EMPTY: "all programs of the bank were tried",
}


_BUDGETS = ("evaluations", "calls", "tokens", "dollars", "seconds", "budget")


def state_label(state: str, reason: str) -> str:
    """The state for display; of a finished run also `out of budget` or `stopped`."""
    if state != "finished":
        return state
    if reason in _BUDGETS:
        return "out of budget"
    return "stopped" if reason in ("user", "integrity") else state


def end_reason(state: str, reason: str, error: str = "") -> str:
    """The reason why a run ended, in words; "" while it runs."""
    if state == "running":
        return ""
    if state == "finished":
        return _ENDS.get(reason) or reason.replace("_", " ")
    return error or "nothing is lost"


def best_score_text(result: RunResult | None) -> str:
    """`best 0.52 ± 0.04`, for a line of progress; certified values with all their digits."""
    if result is None:
        return "no score yet"
    if result.front:
        return front_size_text(result)
    if result.certified is None:
        return f"best {reported_score_text(result)}"
    return f"best {number_text(result.certified)}"
