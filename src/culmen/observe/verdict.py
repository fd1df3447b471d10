"""The verdict on a run: the gain in one line, its confidence, and the way to the target."""

from __future__ import annotations

import math

import msgspec

from culmen.core.result import RunResult, Score
from culmen.core.task import Objective
from culmen.observe.figures import (
    column_decimals,
    count_text,
    difference_text,
    join_nonempty,
    margin_decimals,
    number_text,
    score_with_margin,
)
from culmen.store.views import Front, RunStatus

_LARGEST = 1000.0  # per cent beyond which a gain is not given in per cent
_COARSE = 0.1  # share of a value without a margin by which its digits are chosen: three
_LONG = 160  # characters of an error in a headline


class RunVerdict(msgspec.Struct, frozen=True):
    """The first words about a run.

    `headline` is one short sentence; `tone` is good, warn, bad, live or quiet. `details` are
    sentence fragments: the scores compared, the way to the target, and the confidence.
    """

    headline: str
    tone: str
    details: tuple[str, ...] = ()


def run_verdict(
    now: RunStatus, objective: Objective, front: Front | None = None, has_cause: bool = False
) -> RunVerdict:
    """The verdict on a run at this moment; never good if a serious problem explains the result."""
    verdict = _verdict_on_result(now, objective, front)
    is_doubted = has_cause and verdict.tone == "good"
    return msgspec.structs.replace(verdict, tone="warn") if is_doubted else verdict


def _verdict_on_result(now: RunStatus, objective: Objective, front: Front | None) -> RunVerdict:
    best = now.best
    if now.shown_state == "failed":
        return _failed_verdict(now, objective)
    if best is None:
        return _unscored_verdict(now)
    if front is not None and front.members:
        return _front_verdict(front, now.state)
    is_over = now.state == "finished"
    if not best.confirmed and not best.kept_initial:
        return _leader_verdict(best, objective, now.state)
    return _compared_verdict(best, objective, is_over)


def _failed_verdict(now: RunStatus, objective: Objective) -> RunVerdict:
    error = (now.error.strip().splitlines() or [""])[-1]
    if now.best is not None:
        scores = _scores_text(now.best, objective)
        return RunVerdict(f"Failed: {_shorten(error) or 'the search broke off'}", "bad", (scores,))
    if error:
        return RunVerdict(f"Failed: {_shorten(error)}", "bad", ("nothing has scored",))
    what = "the initial program gives no score" * (now.reason == "initial_fails")
    return RunVerdict(f"Failed: {what or 'nothing has scored'}", "bad", _failed_counts(now))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."


def _failed_counts(now: RunStatus) -> tuple[str, ...]:
    failed = [f"{many:,} {status}" for status, many in now.statuses.items() if status != "ok"]
    return (f"evaluations without a score: {join_nonempty(failed)}",) if failed else ()


def _unscored_verdict(now: RunStatus) -> RunVerdict:
    yet = " yet" if now.state == "running" else ""
    return RunVerdict(f"Nothing has scored{yet}", "quiet", _failed_counts(now))


def _front_verdict(front: Front, state: str) -> RunVerdict:
    """The size of the front; spans of its objectives, and its confidence."""
    is_over = state == "finished"
    names = [goal.name for goal in front.objectives]
    several = f"between {', '.join(names[:-1])} and {names[-1]}" if names[1:] else f"of {names[0]}"
    many = count_text(len(front.members), "trade-off")
    spans = [_span_text(front, goal.name) for goal in front.objectives]
    sure = (
        "confirmed by fresh evaluations"
        if front.confirmed
        else f"not confirmed by fresh evaluations{' yet' * (not is_over)}"
    )
    feasible = any(member.feasible for member in front.members)
    broken = "" if feasible else "none meets every constraint"
    details = tuple(filter(None, [join_nonempty(spans), broken, sure]))
    tone = "good" if front.confirmed and feasible else _unsure_tone(state)
    return RunVerdict(f"{many} {several}{' so far' * (not is_over)}", tone, details)


def _unsure_tone(state: str) -> str:
    """The tone of a result that fresh evaluations have not confirmed."""
    return {"finished": "warn", "running": "live"}.get(state, "quiet")


def _span_text(front: Front, name: str) -> str:
    return f"{name} {front_span_text(front, name)}"


def front_span_text(front: Front, name: str) -> str:
    """`0.61 to 0.66`: the values of a metric on the front, with no more digits than they carry."""
    values = [member.metrics[name] for member in front.members]
    margins = [member.margins.get(name) or 0.0 for member in front.members]
    size = min(margins) or max(map(abs, values)) * _COARSE
    places = min(margin_decimals(size), column_decimals(values)) if size else None
    texts = (number_text(value, places) for value in (min(values), max(values)))
    return " to ".join(dict.fromkeys(texts))


def _leader_verdict(best: RunResult, objective: Objective, state: str) -> RunVerdict:
    """The leader by the search's own estimate, beside the initial program's."""
    is_over = state == "finished"
    first, far = best.initial, " so far" * (not is_over)
    unsure = (
        "not confirmed by fresh evaluations"
        if is_over
        else "an estimate of the search, which fresh evaluations confirm at the end"
    )
    tone = _unsure_tone(state)
    scores, way = _scores_text(best, objective), way_text(best, objective)
    details = (scores, way, unsure, *_reservations(best))
    if first is None:
        shown = score_with_margin(best.score, best.margin, best.bounds)
        return _make_verdict(f"Best score{far}: {shown}", tone, details)
    gain = best.score - first.score
    if best.id == first.id or best.score_difference(gain, 0.0) <= 0:
        line = f"Nothing better than the initial program{far}"
        return _make_verdict(line, tone, (scores, unsure))
    margin = _joint_margin(best, first)
    size = difference_text(gain, margin or None)
    if margin and abs(gain) <= margin:
        line = f"{size} against the initial program{far}, within noise"
        return _make_verdict(line, tone, (details[0], *details[2:]))
    share = percent_gain(first.score, best.score, margin)
    return _make_verdict(f"{size}{share} better than the initial program{far}", tone, details)


def _joint_margin(best: RunResult, first: Score) -> float:
    """Half the width of the interval of the difference of two independent estimates."""
    return math.hypot(best.margin or 0.0, first.margin or 0.0)


def _compared_verdict(best: RunResult, objective: Objective, is_over: bool) -> RunVerdict:
    """The confirmed result beside the initial program on the same evaluations."""
    scores, sure = _scores_text(best, objective), confidence_text(best)
    if best.kept_initial:
        far = "" if is_over else " so far"
        line = f"Nothing better than the initial program was found{far}"
        return _make_verdict(line, "warn", (scores, target_text(best, objective), sure))
    way = way_text(best, objective)
    if best.initial is None or best.gain is None:
        shown = score_with_margin(best.score, best.margin, best.bounds)
        return _make_verdict(f"Best score: {shown}", "good", (way, sure, *_reservations(best)))
    if best.score_difference(best.gain, 0.0) <= 0:
        line = "Nothing better than the initial program was found"
        return _make_verdict(line, "warn", (scores, sure, *_reservations(best)))
    size = difference_text(best.gain, best.gain_margin)
    if best.gain_margin and abs(best.gain) <= best.gain_margin:
        line = f"Not clearly better than the initial program: {size}, within noise"
        return _make_verdict(line, "warn", (scores, sure, *_reservations(best)))
    kept = _reservations(best)
    is_known = bool(best.gain_margin) or best.noise.exact
    tone = "warn" if kept else "good" if is_known else "quiet"
    line = f"{gain_text(best)} better than the initial program"
    return _make_verdict(line, tone, (scores, way, sure, *kept))


def _make_verdict(headline: str, tone: str, details: tuple[str, ...]) -> RunVerdict:
    return RunVerdict(headline, tone, tuple(filter(None, details)))


def gain_text(result: RunResult) -> str:
    """`+0.25 (33 %)`: the gain in the score's unit and, if its scale allows, in per cent."""
    if result.gain is None:
        return ""
    size = difference_text(result.gain, result.gain_margin)
    if result.initial is None or result.score_difference(result.gain, 0.0) <= 0:
        return size
    margin = result.gain_margin
    if margin and abs(result.gain) <= margin:
        return size
    return size + percent_gain(result.initial.score, result.initial.score + result.gain, margin)


def percent_gain(before: float, after: float, margin: float | None = None) -> str:
    """` (33 %)`: the size of a change; "" for scores of different signs, or near zero."""
    if before * after <= 0:
        return ""
    share, unit = 100 * abs(after - before) / abs(before), 100 / abs(before)
    if not 0 < share <= _LARGEST:
        return ""
    if margin:
        return f" ({share:.{max(0, margin_decimals(margin * unit) - 1)}f} %)"
    return f" ({share:.0f} %)" if share >= 10 else f" ({float(f'{share:.2g}'):g} %)"


def _scores_text(result: RunResult, objective: Objective) -> str:
    """`initial 0.75 → best 1`, with intervals; `lower is better` for a minimised score."""
    lower = ", lower is better" if objective.direction == "min" else ""
    shown = score_with_margin(result.score, result.margin, result.bounds)
    if result.kept_initial:
        other = result.challenger
        rival = "" if other is None else f", best other {_score_text(result, other)}"
        return f"initial {shown}{rival}{lower}"
    before = "" if result.initial is None else f"initial {_score_text(result, result.initial)} → "
    return f"{before}best {shown}{lower}"


def _score_text(result: RunResult, score: Score) -> str:
    return score_with_margin(score.score, score.margin, result.bounds)


def way_text(result: RunResult, objective: Objective) -> str:
    """`62 % of the way to the target 0.95`, to the best known value, or beyond it.

    "" without either, and for a result that is not shown to be better than the initial program.
    """
    reached = target_text(result, objective)
    goal, name = objective.target, "target"
    if goal is None or reached:
        goal, name = objective.known, "best known value"
    first = result.initial.score if result.initial is not None else objective.start
    share = None if goal is None else _share_of_way(first, result.value, goal, objective)
    if share is None:
        return reached
    left = f"{_way_percent(share)} of the way to the {name} {number_text(goal)}"
    return join_nonempty([reached, left])


def target_text(result: RunResult, objective: Objective) -> str:
    """`the target 0.95 is reached`, `beyond the best known value 2.635`; else ""."""
    known, value, texts = objective.known, result.value, []
    if objective.reaches_target(value):
        texts.append(f"the target {number_text(objective.target)} is reached")
    if objective.is_beyond_known(value):
        texts.append(f"beyond the best known value {number_text(known)}")
    elif known is not None and objective.reward(value) >= objective.reward(known):
        texts.append(f"as good as the best known value {number_text(known)}")
    return join_nonempty(texts)


def _share_of_way(
    first: float | None, value: float, goal: float, objective: Objective
) -> float | None:
    """Share (0..1) of the distance from the start to the goal; None if there is no way left."""
    if first is None:
        return None
    whole = objective.reward(goal) - objective.reward(first)
    share = (objective.reward(value) - objective.reward(first)) / whole if whole > 0 else 0.0
    return share if 0 < share < 1 else None


def _way_percent(share: float) -> str:
    """`62 %`; from 1 % to 99 %, since neither end is reached."""
    return f"{min(99, max(1, round(100 * share)))} %"


def confidence_text(result: RunResult) -> str:
    """The confidence in a confirmed gain, in plain words."""
    fresh = count_text(result.count, "fresh evaluation")
    gain, margin = result.gain, result.gain_margin
    if gain is None or result.kept_initial:
        return f"by {fresh}"
    if not margin:
        if margin == 0 and result.noise.exact:
            return f"scores are exact ({fresh})"
        return f"how much scores vary by chance is not known ({fresh})"
    digits = margin_decimals(margin)
    low, high = (f"{gain + sign * margin:+.{digits}f}" for sign in (-1, 1))
    holds = ", so there may be none" if abs(gain) <= margin else ", beyond noise"
    return f"95 % sure of {low} to {high}{holds} ({fresh})"


def _reservations(result: RunResult) -> tuple[str, ...]:
    """`failed in 2 of 12 evaluations, counted as the lowest score`."""
    if not result.failures:
        return ()
    many = count_text(result.count, "evaluation")
    worst = "lowest" if result.direction == "max" else "highest"
    return (f"failed in {result.failures} of {many}, counted as the {worst} score",)
