"""Sentences on why an evaluation was made and what it brought, from `Explanation` alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from culmen.core.candidate import CARRIED, INITIAL
from culmen.core.json import JsonObject
from culmen.core.result import (
    ConsideredAction,
    DecisionFacts,
    Explanation,
    FinalistFacts,
)
from culmen.core.task import Task
from culmen.report import sentences
from culmen.report.figures import (
    count_text,
    dollars_text,
    duration_text,
    join_nonempty,
    number_text,
)
from culmen.store.views import RunStatus

REACH = 2.0  # standard deviations by which a finalist may be better than it seems
_BUDGET_NOUNS = {"evaluations": "evaluation", "calls": "call", "tokens": "token"}


def explanation_lines(explained: Explanation, task: Task, now: RunStatus) -> Iterator[str]:
    """Sentences in display order: what it was, why it was made, what it brought."""
    origin = explained.origin
    case = f" on case {explained.case}" if explained.case else ""
    nth = "its first one" if explained.nth == 1 else f"number {explained.nth} of this candidate"
    by = join_nonempty([str(origin["operator"]), str(origin["model"])], " by ")
    parents = ", ".join(each[:8] for each in origin["parents"][:3])
    made = join_nonempty([by, f"from {parents}" if parents else ""], " ")
    yield (
        f"Evaluation {explained.evaluation:,} of {explained.of:,}: candidate "
        f"{explained.candidate[:8]} ({made}){case}, {nth}."
    )
    if origin.get("inherited"):
        run = origin.get("fork_of") or "which is not named"
        yield f"Its result was taken over from the run that this one was forked from ({run})."
    if explained.decision is not None:
        yield from _decision_lines(explained.decision)
    elif explained.cause == "final":
        yield from _final_lines(explained, task, now)
    else:
        yield from _other_lines(explained, task)
    yield from _outcome_lines(explained, now)


def _outcome_lines(explained: Explanation, now: RunStatus) -> Iterator[str]:
    why = f": {explained.reason}" if explained.reason not in ("", explained.status) else ""
    if explained.status == "ok":
        yield f"It scored {number_text(explained.score)}."
    else:
        yield f"It gave no score ({explained.status}{why})."
    if explained.cause == "final" and now.state == "finished" and now.best is not None:
        yield f"What the run reports: {sentences.result_sentence(now.best)}."
    if explained.recomputed:
        yield (
            "This decision was derived again from the journal, and every decision before it is the "
            "one that the journal holds."
        )
    elif explained.why_not:
        yield f"The decision was not derived again: {explained.why_not}."


# -- decisions of the default strategy -------------------------------------------------------------


def _decision_lines(facts: DecisionFacts) -> Iterator[str]:
    yield _knowledge_line(facts)
    yield _reason_line(facts)
    if facts.chosen.k > 1:
        yield (
            f"The request was for {facts.chosen.k} children; each new one is evaluated once, and "
            f"this evaluation is of one of them."
        )


def _knowledge_line(facts: DecisionFacts) -> str:
    """Knowledge of the strategy at the decision."""
    repeats = count_text(facts.repeating, "repeat") if facts.repeating else ""
    children = f"{facts.expecting} child{'ren' * (facts.expecting > 1)}" if facts.expecting else ""
    under_way = join_nonempty([repeats, children], " and ")
    seen = f"It was decided after {count_text(facts.evaluations, 'evaluation')} of the search"
    seen += f", with {under_way} under way" if under_way else ""
    if facts.front:
        return f"{seen}. The front had {count_text(facts.front, 'member')}."
    if not facts.leader:
        return f"{seen}; nothing had scored."
    noise = "scores were taken as exact, since no repeat differed"
    if facts.one_draw:
        noise = "all evaluations are on one draw, so none is repeated"
    elif not facts.exact:
        many = count_text(facts.repeats, "repeat")
        noise = f"one evaluation had a noise of {number_text(_two_digits(facts.noise))} ({many})"
    leader = f"{facts.leader[:8]} led with {_with_sd(facts.leader_score, facts.leader_sd)}"
    return f"{seen}. {leader}; {noise}."


def _reason_line(facts: DecisionFacts) -> str:
    """Reason for the action, in a sentence or two."""
    chosen = f"Chosen: {action_text(facts.chosen)}"
    if facts.reason == "no_score":
        return f"{chosen}, because there was no score to compare actions by."
    if facts.reason == "measure" and facts.exact:
        return (
            f"{chosen}, whatever it gains: a new leader is evaluated once more while scores seem "
            "exact: two different values would show noise."
        )
    if facts.reason == "measure":
        return (
            f"{chosen}, whatever it gains: the noise was known from few repeats, and it decides "
            "how much a score is worth."
        )
    if facts.reason == "lineage":
        return (
            f"{chosen}, which belongs to another lineage. There was no record for "
            f"{count_text(facts.wait, 'evaluation')}; at the rate before, the chance of such a "
            f"wait is {facts.wait_chance:.2g}, so the search also goes on from candidates that "
            "were never tried as parents. Of that lineage this action has the largest gain for its "
            "share of the budget."
        )
    if facts.reason == "wait":
        return (
            f"{chosen}. A new candidate promised more for its share of the budget, but few calls "
            "are left, and those under way are to be learnt from first."
        )
    return f"{chosen}, {_comparison(facts)}."


def _comparison(facts: DecisionFacts) -> str:
    """Comparison of the chosen action with the best of the other kind."""
    largest = "the one with the largest expected gain for its share of the budget"
    if facts.considered > 1:
        largest = f"of {facts.considered} actions {largest}"
    other = next((each for each in facts.options if bool(each.k) != bool(facts.chosen.k)), None)
    if other is None:
        kind = "another evaluation of a known candidate" if facts.chosen.k else "a new candidate"
        words = "all are on one draw" if facts.one_draw else "scores are exact"
        exact = f" since {words}" if facts.exact and facts.chosen.k else ""
        return f"{largest}; {kind} promised nothing{exact}"
    if other.rate <= 0:
        return f"{largest}; to {action_text(other)} promised nothing"
    ratio = facts.chosen.rate / other.rate
    times = f"{ratio:.3g} times" if ratio < 1000 else "over 1,000 times"
    kind = "child" if other.k else "repeat"
    return f"{largest}: {times} as much as the best {kind} ({action_text(other)})"


def action_text(action: ConsideredAction) -> str:
    """`evaluate 1a2b3c4d again`, `ask for 2 children of 1a2b3c4d`."""
    if not action.k:
        return f"evaluate {action.of[:8]} again"
    many = "a child" if action.k == 1 else f"{action.k} children"
    return f"ask for {many} of {action.of[:8]}" if action.of else f"ask for {many} from nothing"


def believed_text(finalist: FinalistFacts) -> str:
    """Score that a finalist is believed to have, with its standard deviation."""
    return _with_sd(finalist.score, finalist.sd)


def action_row(action: ConsideredAction) -> JsonObject:
    """One row of the table of actions, in words.

    The rate is the gain for one hundredth of the budget, the share the largest of any budget left.
    """
    weight = "" if action.weight == 1 else f" × {action.weight:g}"
    share = f"{100 * action.share:.2g} % of {action.budget}" if action.budget else "no limit"
    return {
        "of": action.of,
        "chosen": action.chosen,
        "action": action_text(action),
        "expected": "" if action.expected is None else _with_sd(action.expected, action.sd),
        "gain": f"{number_text(_two_digits(action.gain))}{weight}",
        "rate": number_text(_two_digits(action.rate / 100)),
        "share": share,
        "cost": join_nonempty(_amount_text(*pair) for pair in action.cost.items()),
    }


def _amount_text(name: str, amount: float) -> str:
    """`1 call`, `2 evaluations`, `$0.012`, `3.1 s`."""
    if name == "dollars":
        return dollars_text(amount)
    if name == "seconds":
        return duration_text(amount)
    return count_text(round(amount), _BUDGET_NOUNS[name]) if name in _BUDGET_NOUNS else ""


def options_note(facts: DecisionFacts) -> str:
    """Meaning of the columns of the table of actions."""
    unit = "of the front's span" if facts.front else "of the best score"
    more = facts.considered - len(facts.options)
    first = (
        f"The first {len(facts.options)} of {facts.considered} actions" if more else "All actions"
    )
    return (
        f"{first} compared. gain: expected improvement {unit} (another evaluation counts half: "
        "gains of children add up); share: the largest part of any budget left that it takes; "
        "per 1 %: gain for a hundredth of the budget left."
    )


def _with_sd(value: float | None, sd: float | None) -> str:
    if value is None:
        return "no score"
    if not sd or not math.isfinite(sd):
        return number_text(value)
    decimals = max(0, min(10, 1 - math.floor(math.log10(sd))))
    return f"{value:.{decimals}f} ± {sd:.{decimals}f}"


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


# -- evaluations of the final choice ---------------------------------------------------------------


def _final_lines(explained: Explanation, task: Task, now: RunStatus) -> Iterator[str]:
    ended = sentences.finish_reason(now.reason)
    yield f"The search was over{f' ({ended})' if ended else ''}: this is one of the final choice."
    if now.reserve is not None:
        yield sentences.reserve_sentence(**msgspec.structs.asdict(now.reserve))
    shown = next((each for each in explained.finalists if each.id == explained.candidate), None)
    if task.objective.metrics:
        yield (
            "Every member of the front is evaluated again on the same cases, so that the front "
            "that is reported rests on fresh scores."
        )
        return
    if explained.purpose == "choice":
        yield from _choice_lines(explained, shown, task)
        return
    if shown is not None and shown.initial:
        yield (
            "It is the initial program, evaluated on the same cases as the winner: the gain that "
            "is reported is the difference of these fresh scores."
        )
    else:
        yield (
            "It confirms the winner of the choice. These evaluations took no part in the choice, "
            "so no lucky score of the search is in what is reported; the winner replaces the "
            "initial program only if it is better with a probability of 90 %."
        )
    yield from _finalist_lines(explained)
    first = explained.finalists[0] if explained.finalists else None
    if shown and first and not shown.initial and shown.id != first.id and not task.cases:
        yield (
            f"{first.id[:8]} failed when it was confirmed, or fell behind by its failures, so "
            f"{shown.id[:8]} was confirmed in its place."
        )


def _choice_lines(explained: Explanation, shown: FinalistFacts | None, task: Task) -> Iterator[str]:
    if task.cases:
        yield (
            "The finalists are evaluated on the same fresh cases, and after each round the worse "
            "half is dropped."
        )
    else:
        yield (
            "The leader and the rivals that could still be better are evaluated in turn, until the "
            "leader is clear or the evaluations kept for the choice are spent."
        )
    yield from _finalist_lines(explained)
    first = explained.finalists[0] if explained.finalists else None
    if shown is None or first is None or task.cases:
        return
    if shown.id == first.id:
        yield f"{shown.id[:8]} was evaluated because it led."
    elif _reaches(shown, first, task):
        yield (
            f"{shown.id[:8]} was evaluated because it could still be the best: two standard "
            "deviations above what it is believed to score is better than the leader."
        )
    else:
        yield f"{shown.id[:8]} was the next rival in line, to use evaluations side by side."


def _reaches(shown: FinalistFacts, first: FinalistFacts, task: Task) -> bool:
    reward = task.objective.reward
    return reward(shown.score) + REACH * shown.sd > reward(first.score)


def _finalist_lines(explained: Explanation) -> Iterator[str]:
    if explained.finalists:
        first = explained.finalists[0]
        yield (
            f"Before it, {first.id[:8]} was the first of the finalists, believed to score "
            f"{_with_sd(first.score, first.sd)}."
        )


# -- evaluations that no decision of the default strategy led to -----------------------------------


def _other_lines(explained: Explanation, task: Task) -> Iterator[str]:
    if explained.cause == "initial":
        yield "It is an initial program: the search begins with its score."
    elif explained.cause == CARRIED:
        yield "It was carried from another run or a pool: the search starts from it, too."
    elif explained.cause == "person":
        yield "A person sent this candidate to the search (culmen runs tell, or the dashboard)."
    elif explained.cause == "proposer":
        yield (
            "It is a variant that the proposer tried: without a language model it makes several "
            "for one request, evaluates them, and goes on from the best."
        )
    elif explained.cause == "engine":
        yield _engine_line(explained, task)
    else:
        yield from _strategy_lines(explained)


def _engine_line(explained: Explanation, task: Task) -> str:
    """Reason for an evaluation of a known candidate that no gains led to."""
    ok = explained.before.count("ok")
    if explained.origin["operator"] == INITIAL:
        if explained.evaluation <= 1 + len(task.starting_candidates()):
            return (
                "It is the initial program once more: two scores of one program show at once if "
                "scores repeat."
            )
        if not ok:
            return (
                "It is the initial program again: it has not scored yet, and nothing else is paid "
                "for before it has."
            )
        return (
            "It is the initial program again, to learn if failures are the evaluator's own: what "
            "fails now has scored before."
        )
    if not ok:
        return (
            f"All {count_text(len(explained.before), 'evaluation')} before failed. A failure that "
            "might not recur is repeated, so that bad luck, or a fault of the evaluator, does not "
            "count against the candidate."
        )
    return (
        f"It had scored in {ok} of {count_text(len(explained.before), 'evaluation')}. One that may "
        "be the best is evaluated up to three times where candidates fail at times, and again on "
        "all cases where it may have reached the score to stop at: nothing is believed on one "
        "success."
    )


def _strategy_lines(explained: Explanation) -> Iterator[str]:
    origin = explained.origin
    if explained.nth == 1:
        parents = ", ".join(str(each)[:8] for each in origin["parents"][:3])
        note = f": {origin['note']}" if origin["note"] else ""
        what = f"as a child of {parents}" if parents else "without a parent"
        yield (
            f"The strategy {explained.strategy} asked for it {what}; it came by the operator "
            f"{origin['operator']}{note}."
        )
    else:
        yield (
            f"The strategy {explained.strategy} evaluates candidates more than once, and the "
            f"search itself repeats failures that might not recur; this was number {explained.nth}."
        )
    if explained.notes:
        yield "What the strategy noted of it and of its parent before:"
        for note in explained.notes:
            yield f"- {note_text(note, [explained.candidate, *origin['parents']])}"
    else:
        yield "The strategy noted nothing about it."


def note_text(note: JsonObject, names: Sequence[str]) -> str:
    """One note in words: its plain fields, and of each list the entry of the first of `names`."""
    kind = str(note.get("note", "note")).replace("_", " ")
    fields = list[str]()
    for name, value in note.items():
        if name in ("note", "seq"):
            continue
        fields += _field_texts(name.replace("_", " "), value, names)
    return f"{kind} (event {note.get('seq')}): {', '.join(fields) or 'no further fields'}"


def _field_texts(name: str, value: object, names: Sequence[str]) -> list[str]:
    if isinstance(value, dict):
        return [
            text
            for key, each in value.items()
            if not isinstance(each, dict | list)
            for text in _field_texts(f"{name} {key}", each, names)
        ][:8]
    if isinstance(value, list):
        tables = [each for each in value if isinstance(each, dict)]
        own = [each for wanted in names for each in tables if wanted in each.values()]
        if own:
            return _field_texts(name, own[0], names)
        return [f"{count_text(len(value), 'entry')} of {name}"]
    if isinstance(value, float):
        return [f"{name} {number_text(value)}"]
    text = str(value)
    return [f"{name} {text if len(text) <= 80 else text[:77] + '...'}"]
