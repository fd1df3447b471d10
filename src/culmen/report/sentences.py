"""The sentences on a run and its result: the one table that every surface reads.

Each `yield` below is an entry: the condition on the facts above it, then the sentence's name, text
and tone; a problem has its remedy in place of a tone. `PLACES` and `PROBLEMS` are the parts of the
table. Terminal, dashboard, report, MCP and Python read it through `say`, `say_all` and
`find_problems`. A new sentence is an entry here, and a case in `tests/report/test_sentences.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from culmen.core.answers import refusal_remedy
from culmen.core.brief import BANK_EMPTY, BY_BYTES, BY_CUT, refused_budget
from culmen.core.evaluation import (
    MEANINGS,
    REFUSED,
    SHOWN,
    Observation,
    Status,
    culprit_of,
    is_excused,
)
from culmen.core.event import Entry
from culmen.core.result import FrontPoint, NoiseReport, RunResult, Score, Z
from culmen.core.task import MetricGoal
from culmen.report.causes import unanswered_text, words_for
from culmen.report.facts import (
    NOTABLE,
    STALL,
    Facts,
    common_failure,
    failure_key,
    failure_location,
    is_exception,
    kind_of,
    last_words,
)
from culmen.report.figures import (
    column_decimals,
    count_of_limit,
    count_text,
    difference_text,
    dollars_text,
    drawn_names,
    duration_text,
    failed_text,
    join_nonempty,
    margin_decimals,
    number_text,
    percent_text,
    score_with_margin,
)
from culmen.store.views import Front, RunStatus


class Told(msgspec.Struct, frozen=True):
    """A sentence; `tone` is how strongly it is shown: good, warn, bad, live or quiet."""

    name: str
    text: str
    tone: str = "quiet"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem of a run.

    `what` states it in a sentence; `command` fixes it, and `do` describes the fix. `topic` is a
    word for programs, `share` (0..1) the share of the evaluations, candidates, answers or budget
    concerned, `culprit` the party at fault (`core.evaluation.CULPRITS`), `place` the evaluator's
    `file:line`. `leads`: the finding explains the result and is shown before it.
    """

    topic: str
    what: str
    do: str
    command: str = ""
    share: float | None = None
    culprit: str = ""
    place: str = ""
    leads: bool = True


def say_all(place: str, facts: Facts) -> list[Told]:
    """All sentences of a place that hold, in order."""
    return list(PLACES[place](facts))


def say(place: str, facts: Facts) -> str:
    """The first sentence of a place that holds; "" if there is none."""
    return next((each.text for each in PLACES[place](facts)), "")


def find_problems(facts: Facts) -> list[Finding]:
    """Problems of the run, the most serious first."""
    return [finding for part in PROBLEMS for finding in part(facts)]


# The result in a sentence, for every surface.


class RunVerdict(msgspec.Struct, frozen=True):
    """The result in one short sentence, with details.

    `tone` is good, warn, bad, live or quiet; `doubts` are the details that warn.
    """

    headline: str
    tone: str
    details: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Headline and details in one sentence."""
        rest = "; ".join(self.details)
        separator = "; " if ": " in self.headline else ": "
        return f"{self.headline}{separator if rest else ''}{rest}"


def run_verdict(facts: Facts, has_cause: bool = False) -> RunVerdict:
    """The verdict at this moment; never good if a doubt or a problem explains the result."""
    first, details = next(PLACES["headline"](facts)), say_all("detail", facts)
    doubts = tuple(each.text for each in details if each.tone == "warn")
    is_doubted = first.tone == "good" and (has_cause or doubts)
    tone = "warn" if is_doubted else first.tone
    return RunVerdict(first.text, tone, tuple(each.text for each in details), doubts)


def result_sentence(result: RunResult) -> str:
    """The sentence on a result of which no more is known."""
    return run_verdict(Facts(result=result, noise=result.noise)).sentence


# Numbers of a result.


def reported_score_text(result: RunResult) -> str:
    """`0.523 ± 0.035`: the reported score with its 95 % interval; of a front, its size."""
    if result.front:
        return f"front of {len(result.front):,}"
    return score_with_margin(result.score, result.margin, result.bounds)


def best_score_text(result: RunResult | None) -> str:
    """`best 0.52 ± 0.04`, for a line of progress; certified values with all their digits."""
    if result is None:
        return "no score yet"
    if result.front:
        return reported_score_text(result)
    certified = result.certified
    return f"best {reported_score_text(result) if certified is None else number_text(certified)}"


def chosen_point(result: RunResult) -> FrontPoint | None:
    """The member of the front that the result stands for; None with a single score."""
    return next((point for point in result.front if point.id == result.id), None)


def metrics_text(point: FrontPoint) -> str:
    """`accuracy 0.64 ± 0.03, latency 4.5 ± 0.5`."""
    return join_nonempty(
        f"{name} {score_with_margin(value, point.margins.get(name))}"
        for name, value in point.metrics.items()
    )


def gain_text(f: Facts) -> str:
    """`+0.25 (33 %)`: the gain in the score's unit and, if its scale allows, in per cent."""
    best, margin = f.result, f.gain_margin
    if best is None or (best.gain is None if best.confirmed else best.initial is None):
        return ""
    gain = f.gain if best.direction == "max" else -f.gain
    size = difference_text(gain, best.gain_margin if best.confirmed else margin or None)
    initial = best.initial
    if initial is None or f.gain <= max(0.0, margin) or abs(initial.score) <= (initial.margin or 0):
        return size
    return size + percent_gain(initial.score, initial.score + gain, margin)


def percent_gain(before: float, after: float, margin: float | None = None) -> str:
    """` (33 %)`: the size of a change; "" for scores of different signs, or near zero."""
    if before * after <= 0:
        return ""
    share, unit = 100 * abs(after - before) / abs(before), 100 / abs(before)
    if not 0 < share <= 1000.0:  # beyond, it is no figure to think in
        return ""
    if margin:
        return f" ({share:.{max(0, margin_decimals(margin * unit) - 1)}f} %)"
    return f" ({share:.0f} %)" if share >= 10 else f" ({float(f'{share:.2g}'):g} %)"


def _span_text(members: Sequence[FrontPoint], name: str) -> str:
    """`0.61 to 0.66`: the values of a metric on the front, with no more digits than they carry."""
    values = [member.metrics[name] for member in members]
    margins = [member.margins.get(name) or 0.0 for member in members]
    size = min(margins) or max(map(abs, values)) * 0.1  # three digits of values without a margin
    places = min(margin_decimals(size), column_decimals(values)) if size else None
    texts = (number_text(value, places) for value in (min(values), max(values)))
    return " to ".join(dict.fromkeys(texts))


def moved_text(goal: MetricGoal, start: FrontPoint, end: FrontPoint) -> str:
    """`latency 17.9 → 15.1 (better)`: a metric at two points, and how they compare."""
    name = goal.name
    before, after = start.metrics[name], end.metrics[name]
    margins = start.margins.get(name), end.margins.get(name)
    noise = None if None in margins else math.hypot(*(each or 0.0 for each in margins))
    gain = goal.reward(after) - goal.reward(before)
    word = "better" if gain > 0 else "worse" if gain < 0 else "level"
    if noise and abs(gain) <= noise:
        word = "within noise"
    size = min(filter(None, margins), default=max(abs(before), abs(after)) * 0.1)
    places = min(margin_decimals(size), column_decimals((before, after))) if size else None
    return f"{name} {number_text(before, places)} → {number_text(after, places)} ({word})"


def _choice_text(f: Facts) -> str:
    """The default choice beside the initial program; "" if either is not known."""
    front = f.front
    found = {} if front is None else {each.id: each for each in front.members}
    if front is None or front.start is None or front.choice not in found:
        return ""
    if front.choice == front.start.id:
        return "the default choice is the initial program"
    moves = (moved_text(goal, front.start, found[front.choice]) for goal in front.objectives)
    return f"initial program → default choice: {join_nonempty(moves)}"


def choice_reason(front: Front) -> str:
    """The rule of the default choice, in words."""
    names = [goal.name for goal in front.objectives]
    if len(front.members) == 1:
        return "it is the only member of the front"
    if len(names) == 1:
        return f"it has the best {names[0]}"
    return (
        "nearest to the best value of every objective at once, all weighing alike, each measured "
        f"in units of its span on the front; of equally near ones, the best {names[0]}"
    )


# Headlines: the first that holds is said.

_LONG = 160  # characters of an error in a headline


def _members(f: Facts) -> tuple[FrontPoint, ...]:
    """Members of the front, of several objectives."""
    if f.front is not None:
        return f.front.members
    return () if f.result is None else f.result.front


def _is_sure(f: Facts) -> bool:
    """True if fresh evaluations have confirmed the result."""
    if f.result is None:
        return False
    return f.result.confirmed if f.front is None else f.front.confirmed


def _single(f: Facts) -> RunResult | None:
    """The result with a single score; None without one."""
    return None if f.objective.metrics or _members(f) else f.result


def _broken(f: Facts) -> Iterator[Told]:
    if f.error or f.result is not None:
        error = (f.error.strip().splitlines() or [""])[-1] or "the search broke off"
        short = error if len(error) <= _LONG else error[: _LONG - 3] + "..."
        yield Told("error", f"Failed: {short}", "bad")
    if f.reason == "initial_fails":
        yield Told("initial_fails", "Failed: the initial program gives no score", "bad")
    yield Told("failed", "Failed: nothing has scored", "bad")


def _headlines(f: Facts) -> Iterator[Told]:
    if f.has_failed:
        yield from _broken(f)
    if f.result is None:
        yield Told("unscored", f"Nothing has scored{' yet' * (f.state == 'running')}")
        return
    if not f.result.has_verdict:
        judged = percent_text(f.result.coverage)
        text = f"No verdict{f.so_far}: only {judged} of evaluations were judged"
        yield Told("no_verdict", text, "bad" if f.is_finished else "warn")
    unsure = {"finished": "warn", "running": "live"}.get(f.state, "quiet")
    if members := _members(f):
        is_good = _is_sure(f) and any(each.feasible for each in members)
        yield Told("front", _front_text(f), "good" if is_good else unsure)
    if not f.is_compared:
        shown = reported_score_text(f.result)
        yield Told("alone", f"Best score{f.so_far}: {shown}", "good" if _is_sure(f) else unsure)
    if f.result.kept_initial or f.gain <= 0:
        yield from _without_gain(f, "warn" if f.result.kept_initial or _is_sure(f) else unsure)
    if f.gain <= f.gain_margin:
        words = f"Not clearly better than the initial program{f.so_far}"
        text = f"{words}: {gain_text(f)}, within noise"
        yield Told("within_noise", text, "warn" if _is_sure(f) else unsure)
    if f.result.direction == "min":  # a sign would say twice that it fell
        better = f"{gain_text(f).lstrip('-−')} lower than the initial program"
    else:
        better = f"{gain_text(f)} better than the initial program"
    if not f.result.confirmed:
        yield Told("estimated_gain", f"{better}{f.so_far}", unsure)
    is_sure = f.gain_margin or f.result.noise.exact or _outlasts_flips(f.result)
    yield Told("gain", better, "good" if is_sure else "quiet")


def _without_gain(f: Facts, tone: str) -> Iterator[Told]:
    if f.is_untried:
        why = f": {end_reason(f)}" if f.is_finished else ""
        yield Told("untried", f"Only the initial program was evaluated{f.so_far}{why}", tone)
    if f.is_alone:
        yield Told("others_failed", f"No other candidate gave a score{f.so_far}", tone)
    yield Told("no_gain", f"Nothing better than the initial program was found{f.so_far}", tone)


def _goals(f: Facts) -> list[str]:
    """Names of the objectives of a front."""
    if f.front is not None:
        return [goal.name for goal in f.front.objectives]
    return list(_members(f)[0].metrics)


def _front_text(f: Facts) -> str:
    names = _goals(f)
    between = f"between {', '.join(names[:-1])} and {names[-1]}" if names[1:] else f"of {names[0]}"
    return f"{count_text(len(_trade_offs(f)), 'trade-off')} {between}{f.so_far}"


def _trade_offs(f: Facts) -> list[FrontPoint]:
    """Members of the front that no other member dominates by its means."""
    goals = f.objective.metrics if f.front is None else f.front.objectives
    points = [tuple(goal.reward(each.metrics[goal.name]) for goal in goals) for each in _members(f)]
    return [
        member
        for member, point in zip(_members(f), points, strict=True)
        if not any(
            other != point and all(a >= b for a, b in zip(other, point, strict=True))
            for other in points
        )
    ]


# Details: all that hold are said, in this order.


def _details(f: Facts) -> Iterator[Told]:
    failed = [f"{many:,} {status}" for status, many in f.statuses.items() if status != "ok"]
    if (f.result is None or f.is_alone) and failed:
        yield Told("counts", f"evaluations without a score: {', '.join(failed)}")
    if members := _members(f):
        yield from _front_details(f, members)
    best = _single(f)
    if best is not None and (best.kept_initial or best.initial or f.has_failed):
        yield Told("scores", _scores_text(best))
    if best is not None and not f.has_failed:
        is_shown = not f.is_compared or f.gain > max(0.0, f.gain_margin)
        reached = _reached_text(f, best.value)
        if reached and (is_shown or best.kept_initial):
            yield Told("reached", reached)
        if is_shown and not best.kept_initial and (way := _way_text(f, best, bool(reached))):
            yield Told("way", way)
        if best.confirmed:
            yield _certainty(best)
    if f.result is not None:
        yield from _standing(f, f.result)
        yield from _doubts(f, f.result)
    if f.is_finished and f.reason in _EARLY_ENDS:
        yield Told("ended_early", end_reason(f))


def _front_details(f: Facts, members: Sequence[FrontPoint]) -> Iterator[Told]:
    spans = (f"{name} {_span_text(members, name)}" for name in _goals(f))
    if moved := _choice_text(f):
        yield Told("choice", moved)
    yield Told("spans", f"on the front {join_nonempty(spans)}" if moved else join_nonempty(spans))
    if equal := len(members) - len(_trade_offs(f)):
        what = f"{count_text(equal, 'further member')} {'is' if equal == 1 else 'are'}"
        yield Told("level_members", f"{what} worse than one of these by no more than noise")
    if not any(each.feasible for each in members):
        yield Told("infeasible", "none meets every constraint", "warn")
    if _is_sure(f):
        yield Told("confirmed", fresh_words(members))


def fresh_words(members: Sequence[FrontPoint]) -> str:
    """Words on the fresh evaluations of a front; one evaluation confirms nothing."""
    is_once = min(each.count for each in members) < 2
    return "each with a fresh evaluation" if is_once else "confirmed by fresh evaluations"


def _certainty(best: RunResult) -> Told:
    """Confidence in a confirmed gain, in plain words."""
    fresh, gain, margin = count_text(best.count, "fresh evaluation"), best.gain, best.gain_margin
    if gain is None or best.kept_initial:
        return Told("measured", f"measured by {fresh}")
    if margin:
        digits, size = margin_decimals(margin), gain if best.direction == "max" else -gain
        low, high = (f"{size + sign * margin:.{digits}f}" for sign in (-1, 1))
        holds = ", so there may be none" if abs(gain) <= margin else ", beyond noise"
        return Told("sure", f"true gain {low} to {high} (95 % interval){holds} ({fresh})")
    if best.noise.one_draw:
        kind = "on one draw" if best.noise.draws else "with one random seed"
        return Told("one_draw", f"{kind}; how it does on others was not measured ({fresh})")
    if margin == 0 and best.noise.exact:
        return Told("exact", f"scores are exact ({fresh})")
    if agreed := _agreed_text(best.noise):
        few = ", too few to explain the gain" if _outlasts_flips(best) else ""
        return Told("agreed", f"{agreed}{few} ({fresh})")
    return Told("noise_unknown", f"how much scores vary by chance is not known ({fresh})")


def _agreed_text(report: NoiseReport) -> str:
    """`equal in 8 of 8 repeats, so up to 31 % of repeats may differ`; "" if that is not known."""
    if report.differing_rate is None or not report.repeats:
        return ""
    many, rate = count_text(report.repeats, "repeat"), percent_text(report.differing_rate)
    return f"equal in {report.repeats:,} of {many}, so up to {rate} of repeats may differ"


def _outlasts_flips(best: RunResult) -> bool:
    """True if the gain is larger than repeats that differ as often as they may could make it."""
    rate, (low, high) = best.noise.differing_rate, best.bounds
    if rate is None or low is None or high is None or best.gain is None:
        return False
    spread = (high - low) * math.sqrt(2.0 * rate * (1.0 - rate) / max(1, best.count))
    return abs(best.gain) > Z * spread


def _standing(f: Facts, best: RunResult) -> Iterator[Told]:
    """Steps that the result still awaits, and its level of trust."""
    if f.is_finished and not _is_sure(f):
        why = f": {end_reason(f)}" if f.reason in _BUDGETS else ""
        yield Told("unconfirmed", f"not confirmed by fresh evaluations{why}")
    if f.state not in ("finished", "failed") and not _is_sure(f) and not f.is_alone:
        text = "an estimate of the search, which fresh evaluations confirm at the end"
        yield Told("estimate", text)
    if f.state not in ("finished", "running"):
        made = count_of_limit(f.evaluations, f.budget.evaluations)
        yield Told("unfinished", f"{f.state} after {made}")
    if best.drift:
        verb = "rose" if best.drift > 0 else "fell"
        size = f"{abs(best.drift):.2g}"
        yield Told("drift", f"scores {verb} by {size} during the run, whatever was evaluated")
    if best.trust == "self-reported":
        yield Told("self_reported", "self-reported, so a candidate could forge its score")


def _doubts(f: Facts, best: RunResult) -> Iterator[Told]:
    """Reasons to trust the score less."""
    if best.failures and not f.has_failed:
        worst = "low" if best.direction == "max" else "high"
        many = f"{best.failures} of {count_text(best.count, 'evaluation')}"
        how = "which its means leave out" if best.front else f"counted as a {worst} score"
        yield Told("failures", f"failed in {many}, {how}", "warn")
    if best.strict is not None and best.certified is None:
        yield Told("not_certified", "the exact verifier does not accept it", "warn")
    if best.tolerance.startswith(("used", "doubtful")):
        yield Told("tolerance", "the score may rest on a tolerance of the evaluator", "warn")
    if f.findings:
        many = count_text(f.findings, "candidate")
        yield Told("gaming", f"{many} with a grave sign of gaming", "warn")


def _scores_text(best: RunResult) -> str:
    """`initial 0.75 → best 1`, with intervals; `lower is better` for a minimised score."""

    def shown(score: Score) -> str:
        return score_with_margin(score.score, score.margin, best.bounds)

    lower = ", lower is better" if best.direction == "min" else ""
    if best.kept_initial:
        other = best.challenger
        rival = "" if other is None else f", best other {shown(other)}"
        return f"initial {reported_score_text(best)}{rival}{lower}"
    before = "" if best.initial is None else f"initial {shown(best.initial)} → "
    return f"{before}best {reported_score_text(best)}{lower}"


def _reached_text(f: Facts, value: float) -> str:
    """`the target 0.95 is reached`, `beyond the best known value 2.635`; else ""."""
    known, texts = f.objective.known, list[str]()
    if f.objective.reaches_target(value):
        texts.append(f"the target {number_text(f.objective.target)} is reached")
    if f.objective.is_beyond_known(value):
        texts.append(f"beyond the best known value {number_text(known)}")
    elif known is not None and f.meets(value, known):
        texts.append(f"as good as the best known value {number_text(known)}")
    return join_nonempty(texts)


def _way_text(f: Facts, best: RunResult, is_reached: bool) -> str:
    """`62 % of the way to the target 0.95`, or to the best known value; "" without a way left."""
    goal, name = f.objective.target, "target"
    if goal is None or is_reached:
        goal, name = f.objective.known, "best known value"
    first = best.initial.score if best.initial is not None else f.objective.start
    if goal is None or first is None:
        return ""
    reward = f.objective.reward
    whole = reward(goal) - reward(first)
    share = (reward(best.value) - reward(first)) / whole if whole > 0 else 0.0
    way = f"{percent_text(share)} of the way to the {name} {number_text(goal)}"
    return way if 0 < share < 1 else ""


# How the score was measured, and what it is worth: the first that holds is said.


def _basis(f: Facts) -> Iterator[Told]:
    best = f.result
    if best is None:
        return
    many = count_text(best.count, "evaluation")
    if not best.confirmed and not best.failures:
        yield Told("of_search", f"from {many} of the search, not confirmed by a fresh one")
    cases = here = ""
    if best.cases:
        share = f"all {best.of}" if best.cases == best.of else f"{best.cases} of {best.of}"
        cases = f", on {share} {best.split} case{'' if best.of == 1 else 's'}"
    if best.cases and best.margin is not None and best.new_margin:
        known, new = (
            score_with_margin(best.score, m, best.bounds) for m in (best.margin, best.new_margin)
        )
        exactly = "" if best.margin else " exactly"
        here = f"{known}{exactly} for the cases of this task, {new} for new cases of the kind"
    failed = "" if best.front else failed_text(best.failures)
    of = "" if best.count == 1 else "mean of "
    made = f"{of}{many} made after it was chosen{cases}"
    yield Told("of_choice", join_nonempty([made, here, failed], "; "))


def _trust(f: Facts) -> Iterator[Told]:
    best = f.result
    if best is not None and best.trust:
        yield Told("level", f"{SHOWN.get(best.trust, best.trust)}: {MEANINGS[best.trust]}")


def _certificate(f: Facts) -> Iterator[Told]:
    best = f.result
    if best is None or best.strict is None:
        return
    if best.certified is None:
        text = "no: the exact verifier does not accept it (show it for the reason)"
        yield Told("refused", text, "bad")
    if best.strict:
        yield Told("as_given", f"yes, exactly and as given: {best.certified!r}", "good")
    text = f"not as given; repaired, strictly feasible: {best.certified!r}"
    yield Told("repaired", text, "good")


def _signs(f: Facts) -> Iterator[Told]:
    before = f.best_before_first_finding
    rest = "nothing had scored before"
    if before is not None:
        rest = f"best before the first: {number_text(before.value)}  {before.id}"
    if f.findings:
        many = f"{count_text(f.findings, 'candidate')} with a grave sign ({f.integrity})"
        yield Told("signs", f"{many}; {rest}", "warn")


# Noise of the evaluator: the first that holds is said.


def _noise(f: Facts) -> Iterator[Told]:
    report = f.noise
    many = count_text(report.repeats, "repeated evaluation")
    if report.one_draw and report.draws:
        text = "All programs were compared on one draw, since evaluations draw random numbers and "
        text += "have one random seed; how they do on others was not measured."
        yield Told("drawn_once", text)
    if report.one_draw:
        text = "All evaluations had one random seed; none drew random numbers, as far as was seen, "
        yield Told("seeded_once", text + "and none was made with another seed.")
    if report.exact and report.repeats:
        yield Told("shown_exact", f"Scores are exact, as {many} showed.")
    if report.exact:
        yield Told("declared_exact", "Scores are exact, as the task declares.")
    if report.draws and not report.sd:
        agreed = f"; {_agreed_text(report)}" if _agreed_text(report) else ""
        yield Told("draws", f"Scores are not exact: evaluations draw random numbers{agreed}.")
    if report.exact is False and not report.sd:
        text = "Evaluations of one program fail now and then; those that scored agreed"
        yield Told("fails_at_times", f"{text} ({many}).")
    if report.exact is False:
        text = f"Scores are noisy: one evaluation deviates by about {report.sd:.2g} ({many})."
        yield Told("noisy", text)
    if not report.repeats:
        yield Told("never_repeated", "Noise is not known: nothing was evaluated twice.")
    agreed = _agreed_text(report) or f"{many} agreed, too few to tell"
    yield Told("few_repeats", f"Noise is not known: {agreed}.")


def noise_sentence(report: NoiseReport) -> str:
    """The sentence on the evaluator's noise."""
    return say("noise", Facts(noise=report))


def noise_note(entry: Entry) -> str:
    """The sentence of a note on the evaluator's noise; "" for any other entry."""
    if entry.kind != "note" or entry.body.get("note") != "noise":
        return ""
    exact, sd, repeats = (entry.body.get(name) for name in ("exact", "sd", "repeats"))
    draws, one_draw = (bool(entry.body.get(name)) for name in ("draws", "one_draw"))
    return noise_sentence(
        NoiseReport(exact, float(sd or 0.0), int(repeats or 0), draws=draws, one_draw=one_draw)
    )


def reserve_sentence(evaluations: int, of: int, gain: float, noise: float) -> str:
    """The sentence on a reserve of the final choice that was planned by the gain."""
    kept = f"The final choice kept {evaluations:,} of {count_text(of, 'evaluation')}"
    deviates = f"one evaluation deviates by {noise:.2g}"
    if not gain and not noise:
        return f"{kept}, since scores changed in the course of the run whatever was evaluated."
    if not gain:
        return f"{kept}: the search saw no gain that more could surely tell, where {deviates}."
    return f"{kept}: what telling a gain of {gain:.2g} takes, where {deviates}."


# The reason of the end.

_BUDGETS = ("evaluations", "calls", "tokens", "dollars", "seconds")
_ENDS = {
    **{name: f"the budget of {name} is spent" for name in _BUDGETS},
    "budget": "the budget is spent",
    "user": "a person stopped it",
    "integrity": "a candidate showed a grave sign of gaming (--set integrity=stop)",
    "threshold": "the threshold is reached",
    "target": "the score to stop at is reached (--stop-at)",
    "plateau": "too many agents in a row without a gain",
    "agents": "all agents have had their turn",
    "agents_crashed": "every agent crashed (culmen show --log says how)",
    "unavailable": "no agent could be started",
    "strategy_done": "the strategy is done",
    "initial_fails": "the initial program gives no score",
    "always_fails": "the first evaluations all failed alike",
    "strategy_waits_for_nothing": "the strategy asks for nothing more",
    "nothing_new": "nothing new came up",
    BANK_EMPTY: "all programs of the bank were tried",
}
_EARLY_ENDS = ("user", "integrity", "agents_crashed", "unavailable", "always_fails")


def end_reason(run: Facts | RunStatus) -> str:
    """The reason why a run ended, in words; "" while it runs."""
    if run.state == "running":
        return ""
    if not run.is_finished:
        return run.error or "nothing is lost"
    left = (run.budget.evaluations or 0) - run.evaluations  # too few for what was next
    rest = f" but for {left:,}" * (run.reason == "evaluations" and left > 0)
    return finish_reason(run.reason) + rest


def finish_reason(reason: str) -> str:
    """The reason why a search was over, in words."""
    return _ENDS.get(reason) or reason.replace("_", " ")


def state_label(state: str, reason: str) -> str:
    """The state for display; `stopped` for a run that a person or a forged score ended early.

    A spent budget is the usual end: `end_reason` names it.
    """
    return "stopped" if state == "finished" and reason in ("user", "integrity") else state


# Problems: all that hold, the most serious first. First what they look for.

ENOUGH = 10  # evaluations, answers or candidates below which a share is not meaningful
_FAILING = 0.3  # share of candidates without any score that is reported
# share of evaluations at the limit of time that is reported where programs also score
_HANGING = 0.1
# shares from which on this leads: of a model's candidates, of random edits
_MANY, _RANDOM = 0.4, 0.8
_LOSING = 0.1  # share of lost evaluations that is reported
_CUT_OFF = 0.2  # share of the workers' time in evaluations that the end cut off
# candidates that one line of the evaluator failed on, and the share of them that also scored
_STRUCK, _ALSO_SCORED = 2, 0.3
_VAIN = 0.5  # share of the answers without a new candidate
_RETRIED = 0.3  # share of the calls that failed and were retried
_ALIKE = 0.8  # share of candidates with the same score
_EARLY = 0.8  # share of a budget up to which a met target leaves budget to save
_DECIDES = 0.9  # share of the score's changes that one case accounts for
_BELIEVABLE = 10.0  # largest multiple of a budget that is proposed
_QUANTILE = 2.3  # of a difference of means of few evaluations
_STALLED = 0.4  # share of the evaluations made since the best was found
_DISK = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full")
_GAINS = re.compile(
    r"(^|_)(acc|accuracy|auc|f1|precision|recall|reward|correct|passed|wins?|success)(_|$)"
)
_LOSSES = re.compile(r"(^|_)(loss|error|errors|cost|regret|latency|mae|mse|rmse|perplexity)(_|$)")
# of candidates that are no programs, by form
_LOOK = {"prompt": "see its answers", "rollout": "see what the agent did, and its tests"}
_USE_MODEL = "a language model finds what edits do not"


def _fault_text(failed: Observation) -> str:
    """`KeyError: 'x' (evaluator.py line 6)`."""
    location = failure_location(failed)
    return f"{last_words(failed)}{f' ({location})' if location else ''}"


def _nothing_to_go_on(f: Facts) -> Iterator[Finding]:
    full = sum(times for words, times in f.causes.kinds.items() if _DISK.search(words))
    if full or _DISK.search(f.error):
        share = full / max(1, f.evaluations)
        loss = f": {percent_text(share)} of evaluations failed for that reason"
        what = f"no space is left on the disk{loss if full else ', so the run could not go on'}"
        command = f.fork_command() if f.is_finished else f.resume_command
        do = "once there is room: df -h shows which disk is full"
        yield Finding("disk_full", what, do, command, share, "machine")
    if f.result is None and f.failed and f.state != "running":
        first = f.failed[0]
        alike = sum(each.failure_kind == first.failure_kind for each in f.failed)
        fails = f.reason == "initial_fails"
        who = "the initial program gives no score" if fails else "nothing has scored"
        if fails and first.reason == REFUSED:
            who = "the initial program is refused"
        is_away = first.reason == "provider_away"
        why = f"{_asked(f.form)} did not answer" if is_away else _fault_text(first)
        what = f"{who}: {why}, in {alike:,} of {count_text(len(f.failed), 'evaluation')}"
        location, share = failure_location(first), alike / len(f.failed)
        culprit = culprit_of(first) or ("scorer" if location else "")
        do = failure_remedy(first, f.form)
        is_refused = bool(refused_budget(first.reason))
        command = f.fork_command(more=True) if is_refused else f.check_command
        culprit = "budget" if is_refused else culprit
        yield Finding("nothing_scored", what, do, command, share, culprit, location)
    if f.reason == BANK_EMPTY:
        tried = count_text(f.bank, "program")
        what = (
            f"the bank is empty: all {tried} were drawn and evaluated, and the search ended there"
        )
        do = "a model that can be asked, or --model offline, improves on them; a bank cannot"
        yield Finding("bank_empty", what, do, f.fork_command("--model NAME"), leads=False)


def _budget_remedy(name: str) -> str:
    return (
        f"give a larger budget of {name}, or lower the cost: a cheaper model for that role, or a "
        "smaller max_tokens in the models file"
    )


def _asked(form: str) -> str:
    """The service that evaluations ask, by the evaluator's form."""
    return "the model's server" if form in _LOOK else "the service that the evaluator asks"


def failure_remedy(failed: Observation, form: str) -> str:
    """The fix, in words, for an evaluation without a score by an evaluator of this form."""
    location = failure_location(failed)
    if name := refused_budget(failed.reason):
        return _budget_remedy(name)
    if failed.status is Status.TIMEOUT:
        return "raise the limit of seconds, or make the program faster"
    if failed.reason == "provider_away":
        return f"restore {_asked(form)}"
    if failed.reason == REFUSED:
        return refusal_remedy(failed)
    if location:
        return f"correct {location}"
    return "correct the evaluator, or the initial program if the evaluator is right"


def _evaluator_failures(f: Facts) -> Iterator[Finding]:
    best = f.result
    many = 0 if best is None else best.failed.get("scorer", 0)
    refused = [o for o in f.failed if o.reason == REFUSED and is_excused(o)]
    if best is not None and refused:
        many += best.failed.get("provider", 0)
    if best is not None and many:
        share = many / best.evaluations
        example = common_failure(
            refused or [o for o in f.failed if culprit_of(o) in ("", "scorer")]
        )
        words, location = (
            ("", "") if example is None else (_fault_text(example), failure_location(example))
        )
        what = f"the evaluator itself failed in {percent_text(share)} of evaluations: {words}"
        do = f"correct {location or 'the evaluator'}: no candidate is to blame"
        if refused:
            do = failure_remedy(refused[0], f.form)
        leads = share > NOTABLE
        yield Finding("scorer_fails", what, do, f.check_command, share, "scorer", location, leads)
    undecided = [each for each in f.seen if not each.ok and not culprit_of(each)]
    example = common_failure([each for each in undecided if failure_location(each)])
    if best is None or many or example is None:
        return
    # failures of one line that strike candidates which also score; attributed to nobody, as the
    # initial program was not struck
    alike = [each for each in undecided if each.failure_kind == example.failure_kind]
    share, struck, both = len(alike) / len(f.seen), *_struck_by(f, example.failure_kind)
    if _is_by_chance(struck, both):
        failed = f"the evaluator failed by chance in {percent_text(share)} of evaluations: "
        failed += _fault_text(example)
        struck_text = count_text(struck, "candidate")
        what = f"{failed}; of {struck_text} with this failure {both} also scored"
        place, leads = failure_location(example), share >= 0.1
        do = f"if candidates are not to blame, let {place} try again by itself"
        yield Finding("fails_by_chance", what, do, f.check_command, share, "", place, leads)


def _struck_by(f: Facts, kind: str) -> tuple[int, int]:
    """Number of candidates with a kind of failure, and of those among them that also scored."""
    struck = {each.candidate for each in f.seen if each.failure_kind == kind}
    return len(struck), len(struck & {each.candidate for each in f.seen if each.ok})


def _is_by_chance(struck: int, both: int) -> bool:
    return struck >= _STRUCK and both >= max(1, _ALSO_SCORED * struck)


def _paying_failures(f: Facts) -> Iterator[Finding]:
    best = _single(f)
    if best is None or best.initial is None or not f.paying:
        return
    first, failing = f.paying[0], {each.candidate for each in f.paying}
    words = "" if first.refusal is None else first.refusal.words
    above = "above" if f.objective.direction == "max" else "better than"
    what = f"failing pays: {count_text(len(failing), 'program')} failed and yet scored {above} "
    what += f"the initial program's {number_text(best.initial.score)}, such as "
    what += f"{number_text(first.score)} ({words[:200]})"
    do = "let the evaluator raise, or return None, for a program that fails"
    leads = best.id in failing or any(each.score == best.search_score for each in f.paying)
    share = len(failing) / max(1, f.candidates)
    yield Finding("failing_pays", what, do, f.check_command, share, "scorer", leads=leads)


def _lost_evaluations(f: Facts) -> Iterator[Finding]:
    lost = f.statuses.get("lost", 0)
    if f.evaluations >= ENOUGH and lost >= _LOSING * f.evaluations:
        share, what = lost / f.evaluations, f"{percent_text(lost / f.evaluations)} of evaluations"
        if f.failures.get("provider_away", 0) >= lost / 2:
            do = "restore that service first: lost evaluations are repeated"
            command, culprit = f.fork_command(more=True), "provider"
            what = f"{what} were lost: {_asked(f.form)} did not answer"
        elif name := _budget_losing(f, lost / 2):
            do = _budget_remedy(name)
            command, culprit = f.fork_command(more=True), "budget"
            what = f"{what} were lost: the budget of {name} did not hold what they asked models"
        else:
            do = "fewer at once need less memory; culmen doctor says what this machine lacks"
            command, culprit = f.fork_command("--workers 1", more=True), "machine"
            what = f"{what} were lost by this machine"
        yield Finding("lost", what, do, command, share, culprit)
    share = sum(f.cut) / ((f.budget.seconds or math.inf) * f.workers)
    if f.cut and share >= _CUT_OFF:
        longest = f"{', the longest' if len(f.cut) > 1 else ''} after {duration_text(max(f.cut))}"
        what = f"{percent_text(min(1.0, share))} of the time went into "
        what += f"{count_text(len(f.cut), 'evaluation')} without a result when time was over"
        limits = "[limits] seconds for the candidate, scorer_seconds for the evaluator"
        if f.form == "function":
            limits = "limits=culmen.Limits(seconds=10)"
        do = f"limit an evaluation: {limits}"
        yield Finding("cut_off", what + longest, do, f.check_command, share, leads=False)


def _budget_losing(f: Facts, least: float) -> str:
    """Name of a budget that refused `least` evaluations or more; "" if none did."""
    refused = {kind: n for kind, n in f.failures.items() if n >= least}
    return next(filter(None, map(refused_budget, refused)), "")


def _unanswered(f: Facts) -> Iterator[Finding]:
    """Models without one usable answer."""
    for each in f.unanswered:
        fault, command = words_for(each.fault), f"culmen runs stop {f.run}"
        if f.state != "running":
            more = f.state == "finished"
            command = f.fork_command(fault.options, more=True) if more else f.resume_command
        share = each.number / max(1, each.attempts)
        culprit = "provider" if fault.is_call else ""
        what, leads = unanswered_text(each), each.is_alone
        yield Finding("unanswered", what, fault.remedy, command, share, culprit, leads=leads)


def _vain_answers(f: Facts) -> Iterator[Finding]:
    if f.unanswered:
        return
    failed = {name: n for name, n in f.faults.items() if words_for(name).is_call}
    attempts = max(f.usage.calls, sum(failed.values()))
    if failed and attempts >= ENOUGH and sum(failed.values()) >= _RETRIED * attempts:
        share, worst = sum(failed.values()) / attempts, max(failed, key=lambda n: failed[n])
        asked = f"{count_text(attempts, 'attempt')} to ask {f.model}"
        fault = words_for(worst)
        what = f"{percent_text(share)} of {asked} failed: they {fault.words}"
        do, command = fault.remedy, f.fork_command(fault.options, more=True)
        yield Finding("retried", what, do, command, share, "provider")
    worst, share = _worst_answers(f)
    if worst and not f.is_met:
        fault, do, options = words_for(worst)[:3]
        if f.is_offline:
            do, options = _USE_MODEL, "--model NAME"
        elif not f.has_own_model:
            options = options.replace("A|B", f"{f.model}|NAME")
        what = f"{percent_text(share)} of {count_text(f.requests, 'answer')} of {f.model} {fault}"
        is_live = f.state == "running"
        command = f"culmen runs stop {f.run}" if is_live else f.fork_command(options, more=True)
        yield Finding("nothing_accepted", what, do, command, share)


def _worst_answers(f: Facts) -> tuple[str, float]:
    """The fault of most answers that brought nothing new, and its share; "" if they are few.

    Many known programs also show in few new candidates for many answers.
    """
    if f.requests < ENOUGH:
        return "", 0.0
    faults = {name: n for name, n in f.faults.items() if not words_for(name).is_call}
    known = 1 - f.new_candidates / f.requests
    if sum(faults.values()) < _VAIN * f.requests:
        is_known = known >= _ALIKE and sum(f.faults.values()) < _VAIN * f.requests
        return ("duplicate", known) if is_known else ("", 0.0)
    worst = max(faults, key=lambda name: faults[name])
    share = min(1.0, faults[worst] / f.requests)
    is_known = worst in ("unchanged", "duplicate")
    return ("duplicate", max(share, known)) if is_known else (worst, share)


_TIMES, _IMPORTS = ("timeout", "cpu limit", "TimeoutError"), ("ModuleNotFoundError", "ImportError")


def _failing_candidates(f: Facts) -> Iterator[Finding]:
    if f.causes.candidates < ENOUGH or f.causes.fruitless < _FAILING * f.causes.candidates:
        return
    kinds: dict[str, int] = {}
    for words, times in f.causes.kinds.items():
        kinds[kind_of(words)] = kinds.get(kind_of(words), 0) + times
    kind = max(kinds, key=lambda each: kinds[each], default="")
    first = next((each for each in f.causes.kinds if kind_of(each) == kind), "")
    words = first.partition("\n")[2].rstrip(".")[:120]
    shown = kind if is_exception(kind) or not words else f"{kind}: {words}"
    if kind in _TIMES:
        shown = f"{kind}, the limit of {f.seconds:g} s"
    elif kind in _IMPORTS and words:
        shown = words
    share = f.causes.fruitless / f.causes.candidates
    part = kinds.get(kind, 0) / max(1, sum(kinds.values()))
    of_them = f" ({percent_text(part)} of failures)" if part < 0.995 else ""
    what = f"{percent_text(share)} of candidates fail: {shown}{of_them}"
    like = [each for each in f.failed if kind_of(failure_key(each)) == kind]
    log = f"culmen show {f.run} {like[0].candidate}" if like else f"culmen show {f.run} --log"
    is_elsewhere = like and (kind in _TIMES or failure_location(like[0]))
    if is_elsewhere and _is_by_chance(*_struck_by(f, like[0].failure_kind)):
        return  # candidates are not to blame for what strikes them now and then
    do, command = _failing_fix(kind, f, log)
    location = failure_location(like[0]) if like else ""
    leads = share >= (_RANDOM if f.is_offline else _MANY)
    yield Finding("failing", what, do, command, share, "candidate", location, leads)


def _hangs_by_chance(f: Facts) -> Iterator[Finding]:
    hung = [each for each in f.seen if each.status is Status.TIMEOUT]
    struck, both = _struck_by(f, hung[0].failure_kind) if hung else (0, 0)
    share = len(hung) / max(1, len(f.seen))
    if share < _HANGING or not _is_by_chance(struck, both):
        return
    what = f"{percent_text(share)} of evaluations ran into the limit of {f.seconds:g} s by chance: "
    what += f"of {count_text(struck, 'candidate')} that did {both} also scored"
    do = "see what the evaluator waits for, or raise [limits] seconds; no candidate is to blame"
    yield Finding("hangs_by_chance", what, do, f.check_command, share, leads=share >= _FAILING)


def _failing_fix(kind: str, f: Facts, log: str) -> tuple[str, str]:
    """The fix for candidates that fail alike, in words, and a command for it."""
    if kind in _TIMES:
        do = "raise [limits] seconds, and say in the goal how long a candidate may take"
        return do, f.check_command
    if kind == "memory limit":
        do = "raise [limits] memory_mb, and say in the goal how much memory there is"
        return do, f.check_command
    if kind in _IMPORTS:
        return "install what is missing, or say in the goal which packages there are", log
    if kind == "SyntaxError" and not f.is_offline:
        return "a stronger model", f.fork_command("--model NAME", more=True)
    if kind == "scorer raised":
        return "correct the evaluator: it raises on what candidates return", log
    if kind == "immutable text changed":
        return "widen the EVOLVE-BLOCK markers, or say in the goal which lines may change", log
    if f.is_offline:
        do = "see what failed: random edits break programs"
        if not f.is_marked:
            do += ", fewer where EVOLVE-BLOCK markers keep them to the lines that may change"
        return do, log
    more = "" if f.form in _LOOK else ", and say in the goal what a candidate must return"
    return f"see what failed{more}", log


def _score_problems(f: Facts) -> Iterator[Finding]:
    best, check = _single(f), f.check_command
    if best is None:
        return
    if what := _direction_text(f):
        other = "min" if f.objective.direction == "max" else "max"
        do = f'set direction = "{other}" in the task if so'
        yield Finding("direction", what, do, check, 1.0, "scorer")
    if best.scored >= ENOUGH and best.equal >= _ALIKE * best.scored and best.kept_initial:
        share, value = best.equal / best.scored, number_text(best.score)
        if best.equal == best.scored:
            what = f"all {best.scored:,} programs got the same score, {value} (100 %): the "
            what += "evaluator tells none apart"
            do = "make the evaluator look at what a candidate returns"
            if words := _LOOK.get(f.form):
                do, check = words, f"culmen show {f.run} best"
            yield Finding("constant", what, do, check, share, "scorer")
        else:
            what = f"{percent_text(share)} of {best.scored:,} programs got the very score of the "
            what += f"initial one, {value}: it is flat"
            do = "let the evaluator give part of the score for part of the task"
            yield Finding("flat", what, do, check, share, "scorer")
    bound, first = f.best_possible, f.first_score
    if bound is not None and first is not None and f.meets(first, bound):
        what = f"the initial program scores {number_text(first)}, the best that the task's bounds "
        what += "allow (100 %): nothing is to gain"
        do = "make the task harder: more cases, or a finer score"
        yield Finding("at_bound", what, do, check, 1.0, "scorer")
    level, limit = f.level, f.budget.evaluations
    if level is None or not limit or not f.is_met:
        return
    met = next((p.evaluations for p in f.points if f.meets(p.mean, level)), f.evaluations)
    if met / limit <= _EARLY and f.evaluations > met / _EARLY:
        name = "best possible score" if f.objective.target is None else "target"
        of = f"{met:,} of {count_text(limit, 'evaluation')} ({percent_text(met / limit)})"
        what = f"the {name}, {number_text(level)}, was met after {of}"
        do = f"with --stop-at {number_text(level)} a search ends there"
        command = f"culmen {'stop' if f.state == 'running' else 'best'} {f.run}"
        yield Finding("target_met", what, do, command, met / limit)


def _direction_text(f: Facts) -> str:
    """Signs of a wrong direction: the first score is beyond the target, or a metric's name."""
    first, target, seen = f.first_score, f.objective.target, f.scored
    if first is None:
        return ""
    better = "lower" if f.objective.direction == "min" else "higher"
    if target is not None and first != target and f.meets(first, target) and not f.inherits:
        return (
            f"the direction looks wrong: {better} is better here, so that the initial program "
            f"({number_text(first)}) already meets the target of {number_text(target)}"
        )
    wrong, pairs = _GAINS if better == "lower" else _LOSSES, {} if seen is None else seen.metrics
    same = [k for k, v in pairs.items() if seen and v == seen.score and wrong.search(k.lower())]
    if not same:
        return ""
    means = f"{better} is taken for better in all evaluations"
    return f"the direction looks wrong: the score is {same[0]}, and {means}"


def _thin_data(f: Facts) -> Iterator[Finding]:
    few, cases = f.few_turns, f.cases
    what, need = "", 10 * cases
    if few is not None:
        many = "no turn" if not few.turns else f"only {count_text(few.turns, 'turn')}"
        what, need = f"the strategy finished {many} in {few.evaluations:,}", few.needed
    elif f.state != "running" and cases > 1 and f.evaluations < 2 * cases and f.result is not None:
        tried = count_text(f.candidates, "candidate")
        what = f"{f.evaluations:,} for {cases:,} cases and {tried}"
    if what:
        share, takes = (
            f.evaluations / need,
            "ten turns take" if few else "ten looks at every case take",
        )
        what = f"too few evaluations: {what} ({percent_text(share)} of what {takes})"
        command, do = f"--budget evaluations={need}", "or fewer programs and cases a turn"
        command = f.fork_command(command)
        yield Finding("few_turns", what, do, command, share, "budget", leads=share < 0.5)
    best = _single(f)
    if best is not None and best.deciding_share >= _DECIDES:
        share = percent_text(best.deciding_share)
        what = f"one case decides: {best.deciding_case} makes up {share} of all change of the score"
        do = "see what it did to that case; more cases like it would tell more"
        command = f"culmen show {f.run} best --diff seed"
        yield Finding("one_case", what, do, command, best.deciding_share)
    if f.deterministic and f.drew:
        what = "the task is declared deterministic, but its evaluations draw random numbers "
        what += f"({drawn_names(f.drew)}), so all programs were compared on one draw"
        do = "leave deterministic out to measure how scores vary, or say same_draws = true in its "
        do += "place to compare on one draw"
        share = min(1.0, max(f.drew.values()) / max(1, f.statuses.get("ok", 0)))
        yield Finding("declared_draws", what, do, f.check_command, share, "scorer", leads=False)


def _unsure_gain(f: Facts) -> Iterator[Finding]:
    best = _single(f)
    if best is None:
        return
    if best.gain is not None and best.gain_margin and abs(best.gain) <= best.gain_margin:
        gain, margin = difference_text(best.gain, best.gain_margin), f"{best.gain_margin:.2g}"
        is_better = best.score_difference(best.gain, 0.0) > 0
        ratio = best.gain_margin / max(abs(best.gain), 1e-12)
        told = f"gain of {gain.lstrip('-−')}" if is_better else f"difference of {gain}"
        what = f"the {told} is within the noise, whose margin is ± {margin}"
        leads = best.noise.sd > 0 and (best.kept_initial or ratio > 2)
        if leads:
            what = (
                f"noise hides any gain: one evaluation deviates by {best.noise.sd:.2g}, and {what}"
            )
        do, command = _noise_fix(f, best)
        share = min(1.0, 1 / ratio)
        yield Finding("within_noise", what, do, command, share, leads=leads)
    before = best.score if best.search_score is None else best.search_score
    fall = best.score_difference(before, best.score) if best.confirmed else 0.0
    if fall > max(best.margin or 0.0, 1e-9 * abs(before)):
        spread = best.noise.sd or (best.se or 0.0) * math.sqrt(best.count)
        why = "fresh evaluations differ from those of the search"
        why = f"noise {spread:.2g} per evaluation" if spread else why
        verb = "fell" if f.objective.direction == "max" else "rose"
        after = reported_score_text(best)
        expected = score_with_margin(before, best.margin).partition(" ")[0]
        what = f"the final value {verb} from {expected} to {after}: {why}"
        do = "quote the final value: it took no part in the choice"
        yield Finding("fallen", what, do, leads=False)


def _noise_fix(f: Facts, best: RunResult) -> tuple[str, str]:
    """The fix for a gain within noise, in words, and a command for it."""
    if worst := _costly_failure(f, best):
        do = (
            f"a failed evaluation counts as {worst}, the bad end of [objective] bounds: inf there, "
        )
        return f"{do}unless a failure is as bad", f.check_command
    gain = best.score_difference(best.gain or 0.0, 0.0)
    if gain <= 0:
        return "search on: nothing was measured to be better, so there is no gain to tell", ""
    most = math.ceil(_BELIEVABLE * (f.budget.evaluations or f.evaluations))
    sd, counts = _noise_of_gain(best)
    from culmen.evidence.intervals import repeats_to_tell  # numpy comes with it

    repeats = repeats_to_tell(gain, sd * math.sqrt(sum(1 / each for each in counts)), sd, most)
    final = math.ceil(2 * repeats / 0.6)  # at most 0.4 of it pick the winner (`engine.finale`)
    need = final + 4 * max(1, f.cases)  # two looks at each case by each of the two programs
    if not repeats or need > most:
        do = f"reduce the noise or add cases: {most:,} evaluations more would not tell such a gain"
        return do, f.check_command
    share = math.floor(100 * final / need) / 100
    command = f.fork_command(f"--carry 1 --budget evaluations=+{need},final={share:g}")
    return f"about {need:,} evaluations more would tell it", command


def _noise_of_gain(best: RunResult) -> tuple[float, list[int]]:
    """Deviation of one evaluation in the comparison of two programs, and evaluations of each.

    From the margin of the gain where cases or failures add to the noise of the run's repeats.
    """
    scores = [each for each in (best.challenger or best, best.initial) if each is not None]
    counts = [max(1, each.count) for each in scores]
    if best.noise.sd and not best.cases and not best.failures:
        return best.noise.sd, counts
    return (best.gain_margin or 0.0) / Z / math.sqrt(sum(1 / each for each in counts)), counts


def _costly_failure(f: Facts, best: RunResult) -> str:
    """The score of a failure if that makes most of the margin; "" otherwise."""
    floor, counts = f.objective.floor, [best.count, best.initial.count if best.initial else 0]
    if floor is None or not best.failed.get("candidate") or min(counts) < 1:
        return ""
    noise = best.noise.sd * math.sqrt(sum(1.0 / count for count in counts))
    is_most = (best.gain_margin or 0.0) > 2 * _QUANTILE * noise
    return number_text(f.objective.score(floor)) if noise and is_most else ""


def _idle_budget(f: Facts) -> Iterator[Finding]:
    last = f.points[-1].candidate if f.points else ""
    since = next((p.evaluations for p in f.points if p.candidate == last), f.evaluations)
    searched = f.evaluations * (1.0 - (f.budget.final or 0.0))  # the others were kept to measure
    idle = round(searched) - since
    is_long = searched >= 2 * STALL and idle >= max(STALL, _STALLED * searched)
    if is_long and not f.is_met and not f.objective.metrics:
        if f.state == "running":
            do, command = "an idea of yours for the models", f"culmen runs tell {f.run} --hint TEXT"
            if f.is_offline:
                do, command = "end it, and keep the best", f"culmen runs stop {f.run}"
        elif f.is_offline:
            do, command = _USE_MODEL, f.fork_command("--model NAME", more=True)
        else:
            do = "another method from the same results (culmen strategies)"
            command = f.fork_command("--strategy NAME", more=True)
        what = f"stalled since evaluation {since:,} of {f.evaluations:,}"
        yield Finding("stalled", what, do, command, idle / f.evaluations, leads=False)


def _unknown_costs(f: Facts) -> Iterator[Finding]:
    usage, uncertain = f.usage, f.usage.uncertain
    if usage.unpriced and f.budget.dollars is not None and not uncertain.dollars:
        what = (
            f"{count_text(usage.unpriced, 'call')} had no known price, "
            "so dollars limited nothing there"
        )
        do = "give the model a price in a models file, or: pip install -U 'culmen[prices]'"
        yield Finding("unpriced", what, do, leads=False)
    known = usage.input_tokens + usage.output_tokens
    yield from _counted_bytes(f)
    if errors := f.server_errors:
        whole = f.usage.dollars + uncertain.dollars
        tokens = known + uncertain.tokens
        each = errors / max(1, usage.calls)
        dollars = dollars_text(whole * each) if whole else ""
        cost = join_nonempty([dollars, f"{math.ceil(tokens * each):,} tokens" if tokens else ""])
        like = f", about {cost} at the mean of this run's calls" if cost else ""
        what = (
            f"{count_text(errors, 'request')} ended in an error of the provider (5xx), which no "
            f"budget counts: {'it' if errors == 1 else 'they'} may have been billed{like}"
        )
        do = "if the provider bills errors, set bills_errors = true for it in a models file"
        yield Finding("server_errors", what, do, "culmen docs models", leads=False)


def _counted_bytes(f: Facts) -> Iterator[Finding]:
    """Amounts that budgets count beyond the bill, since a server reports too little."""
    usage, counted = f.usage, f.usage.uncertain
    if not f.faults.get(BY_BYTES):
        return
    is_silent = usage.input_tokens + usage.output_tokens == 0 and usage.unpriced == usage.calls
    if is_silent and f.faults.get(BY_CUT):
        what = (
            "the server reports no tokens: budgets count as many for a byte as replies that were "
            "cut off had, for prompts a fifth more"
        )
    elif is_silent:
        if f.budget.dollars is not None:
            most = dollars_text(0.75 * counted.dollars)
        elif f.budget.tokens is not None:
            most = f"{0.75 * counted.tokens:,.0f} tokens"
        else:
            return
        what = (
            "the server reports no tokens: budgets count one for each byte; if its tokens have "
            f"four, about {most} of that was never billed"
        )
    elif f.budget.dollars is not None and not usage.unpriced:
        what = (
            "the server reports totals of tokens alone: dollars count the dearest split of them, "
            "more than was billed"
        )
    else:
        return
    do = "let it report usage, or set token_bytes of the model in a models file"
    yield Finding("unreported", what, do, "culmen docs models", leads=False)


PLACES: dict[str, Callable[[Facts], Iterator[Told]]] = {
    "headline": _headlines,
    "detail": _details,
    "basis": _basis,
    "trust": _trust,
    "certificate": _certificate,
    "signs": _signs,
    "noise": _noise,
}
"""Sentences by place: of details all are said that hold, of the others the first."""

PROBLEMS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _nothing_to_go_on,
    _evaluator_failures,
    _paying_failures,
    _unanswered,
    _lost_evaluations,
    _vain_answers,
    _failing_candidates,
    _hangs_by_chance,
    _score_problems,
    _thin_data,
    _unsure_gain,
    _idle_budget,
    _unknown_costs,
)
"""Problems, the most serious first."""
