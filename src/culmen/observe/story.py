"""Story of a run: the few steps that made the gain, and what was tried in vain."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.result import RunResult
from culmen.core.task import Objective
from culmen.observe.edits import describe_edit
from culmen.observe.figures import (
    count_text,
    difference_text,
    dollars_text,
    duration_text,
    join_nonempty,
    margin_decimals,
    number_text,
    plus_minus,
    score_with_margin,
)
from culmen.observe.summary import result_line
from culmen.store import views
from culmen.store.views import Ancestor, RunStatus, TriedCandidate

DollarsAt = Callable[[Sequence[int]], list[float]]
"""A function that returns the dollars spent up to each of these events."""

FEWEST, MOST = 3, 7
"""Number of steps told, if the way has as many."""

TINY = 0.02
"""Share of the whole gain below which a change belongs to its neighbour's step."""

_GROUPS = 6  # of what was tried in vain
_SENTENCE = 140  # characters
_REPEATED = 3  # candidates of an idea, on average, if ideas are what groups are made by


class StoryStep(msgspec.Struct, frozen=True):
    """One step that contributed to the gain.

    `id` is the candidate of the step's main change, `base` the candidate that the step began with
    and `end` the one it ended with: the same as `id` unless smaller changes followed. `merged`
    counts the smaller changes. `sentence` is the model's own remark if `remark`, else made from
    the change. `gain` is in the task's own direction, with half the width `gain_margin` of its 95 %
    interval (0: exact, None: not known); `score` and `margin` are those of `end`. `share` is the
    step's part of the whole gain, `way` of the way from the start to the target or the best known
    value (None: the task has none). `evaluations`, `dollars` and `seconds` were spent between the
    previous step's first score and this one's; `at_` are those spent since the beginning.
    """

    number: int
    id: str
    base: str
    end: str
    merged: int
    sentence: str
    remark: bool
    operator: str
    model: str
    gain: float
    gain_margin: float | None
    score: float
    margin: float | None
    share: float
    way: float | None
    evaluations: int
    dollars: float
    seconds: float
    at_evaluations: int
    at_dollars: float
    at_seconds: float
    seq: int

    @property
    def is_within_noise(self) -> bool:
        """True if the step alone is no larger than its margin."""
        return bool(self.gain_margin) and abs(self.gain) <= (self.gain_margin or 0.0)


class VainGroup(msgspec.Struct, frozen=True):
    """Candidates of one kind that are not on the way to the best.

    `best` is the highest expected score among them, of the candidate `id` (None: none scored), and
    `behind` its distance to the reported candidate, above zero if it is worse. `sentence` is what
    that candidate tried; for failures, their main cause.
    """

    name: str
    count: int
    best: float | None = None
    margin: float | None = None
    behind: float | None = None
    id: str = ""
    sentence: str = ""


class Story(msgspec.Struct, frozen=True):
    """The way of a run to its result, and the candidates beside it.

    `result` is the line on the result as everywhere, `why` the reason why there are no steps (""
    with steps), `notes` what one should know of the steps. `start` and `end` are the ids at the
    ends of the way, `gain` their difference by all evidence, with half its 95 % interval; the
    steps' gains add up to it. `goal` is the target or the best known value, called `goal_name`.
    `direction` is the task's.
    """

    result: str
    why: str = ""
    notes: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    start_score: float | None = None
    start_margin: float | None = None
    end_score: float | None = None
    end_margin: float | None = None
    gain: float | None = None
    gain_margin: float | None = None
    goal: float | None = None
    goal_name: str = ""
    direction: str = "max"
    steps: tuple[StoryStep, ...] = ()
    vain: tuple[VainGroup, ...] = ()


def run_story(
    run: Path | str,
    now: RunStatus | None = None,
    dollars_at: DollarsAt | None = None,
) -> Story:
    """The story of a run as journaled so far.

    `dollars_at` returns the dollars spent up to events; by default they are read from the journal.
    """
    folder = Path(run)
    now = now or views.run_status(folder)
    result, objective = now.best, views.run_meta(folder).task.objective
    front = views.pareto_front(folder) if objective.metrics else None
    line = result_line(now, objective, front)
    if result is None:
        return Story(
            line,
            "nothing has scored, so there is no way to tell of",
            direction=objective.direction,
            vain=tuple(_failure_group(folder)),
        )
    way = views.ascent_to(folder, result.id)
    story = _story_of_way(folder, way, objective, dollars_at)
    return msgspec.structs.replace(
        story,
        result=line,
        why=_why_no_steps(result, way, story),
        notes=_notes_on(now, objective, story),
        steps=() if result.kept_initial else story.steps,
        vain=_vain_groups(folder, way, result, objective),
    )


def _why_no_steps(result: RunResult, way: Sequence[Ancestor], story: Story) -> str:
    if result.kept_initial or (way and way[-1].operator == "seed"):
        return "nothing better than the initial program was found"
    if story.steps:
        return ""
    if len(way) < 2:
        return "the best candidate has no ancestor that scored, so there is no gain to divide"
    return "no change on the way to the best candidate raised the expected score"


def _notes_on(now: RunStatus, objective: Objective, story: Story) -> tuple[str, ...]:
    notes: list[str] = []
    if now.state == "running":
        notes.append("the run goes on: these are the steps so far")
    if objective.metrics:
        notes.append(
            "several objectives: the way to the default choice, in the score that strategies see"
        )
    if story.steps and all(step.gain_margin is None for step in story.steps):
        notes.append("nothing was evaluated twice, so the gains have no margin")
    return tuple(notes)


# The way: links between consecutive ancestors, merged into steps.


def choose_steps(gains: Sequence[float], margins: Sequence[float | None]) -> list[tuple[int, int]]:
    """Steps as (index of the main link, index of the last link), in order.

    Each begins behind the previous one's end, so that every link belongs to one step. Main links
    are those beyond noise and not tiny; with fewer than `FEWEST`, the next largest as well. Steps
    that lose altogether are merged, and then the smallest ones until `MOST` are left. Empty if all
    links together gain nothing.
    """
    total = sum(gains)
    if total <= 0:
        return []
    large = [n for n, gain in enumerate(gains) if gain > 0 and gain >= TINY * total]
    by_gain = sorted(large, key=lambda n: (-gains[n], n))
    sure = [n for n in by_gain if gains[n] > (margins[n] or 0.0)]
    others = [n for n in by_gain if n not in sure]
    mains = sorted([*sure, *others[: max(0, FEWEST - len(sure))]]) or [gains.index(max(gains))]
    steps = [(main, main) for main in mains]
    steps[-1] = steps[-1][0], len(gains) - 1
    while len(steps) > 1:
        worths = _step_gains(gains, steps)
        losing = next((n for n, worth in enumerate(worths) if worth < TINY * total), None)
        if losing is None and len(steps) <= MOST:
            break
        steps = _merge_step(gains, steps, worths.index(min(worths)) if losing is None else losing)
    return steps


def _step_gains(gains: Sequence[float], steps: Sequence[tuple[int, int]]) -> list[float]:
    """Gain of each step over the one before it."""
    begins = [0, *(end + 1 for _, end in steps)]
    return [sum(gains[begin : end + 1]) for begin, (_, end) in zip(begins, steps)]


def _merge_step(
    gains: Sequence[float], steps: list[tuple[int, int]], place: int
) -> list[tuple[int, int]]:
    """The steps with one merged into the smaller of its neighbours."""
    worths = [math.inf, *_step_gains(gains, steps), math.inf]
    first = place - 1 if worths[place] < worths[place + 2] else place
    one, other = steps[first], steps[first + 1]
    main = max(one[0], other[0], key=lambda n: gains[n])
    return [*steps[:first], (main, other[1]), *steps[first + 2 :]]


def _story_of_way(
    folder: Path,
    way: Sequence[Ancestor],
    objective: Objective,
    dollars_at: DollarsAt | None,
) -> Story:
    """The story without its result, vain groups and notes: the steps to the best."""
    if not way:
        return Story("", direction=objective.direction)
    links = [later.gain_over(earlier) for earlier, later in pairwise(way)]
    gain, margin = way[-1].gain_over(way[0])
    known = (("target", objective.target), ("best known", objective.known))
    name, goal = next((pair for pair in known if pair[1] is not None), ("", None))
    chosen = choose_steps([gain for gain, _ in links], [margin for _, margin in links])
    spent = _dollars_on_way(folder, way, dollars_at) if chosen else {}
    begin, before, steps = 0, way[0], list[StoryStep]()
    for main, end in chosen:
        ends = way[begin], way[main + 1], way[end + 1]
        costs = spent[before.seq], spent[way[main + 1].seq]
        step = _story_step(len(steps) + 1, ends, before, costs, gain, end - begin, objective)
        step = msgspec.structs.replace(step, way=_share_of_way(step, way[0], objective, goal))
        sentence, is_remark = candidate_sentence(folder, way[main + 1].id, way[main].id)
        steps.append(msgspec.structs.replace(step, sentence=sentence, remark=is_remark))
        begin, before = end + 1, max(before, way[main + 1], key=lambda each: each.seq)
    return Story(
        "",
        start=way[0].id,
        end=way[-1].id,
        start_score=objective.score(way[0].reward),
        start_margin=way[0].margin,
        end_score=objective.score(way[-1].reward),
        end_margin=way[-1].margin,
        gain=objective.score(gain),
        gain_margin=margin,
        goal=goal,
        goal_name=name,
        direction=objective.direction,
        steps=tuple(steps),
    )


def _dollars_on_way(
    folder: Path, way: Sequence[Ancestor], dollars_at: DollarsAt | None
) -> dict[int, float]:
    """Dollars spent up to the first score of each ancestor, by its event."""
    seqs = [each.seq for each in way]
    dollars = views.dollars_at(folder, seqs) if dollars_at is None else dollars_at(seqs)
    if dollars is None:
        spent_at = views.spending_by_event(folder, max(seqs))
        dollars = [spent_at(seq).dollars for seq in seqs]
    return dict(zip(seqs, dollars))


def _story_step(
    number: int,
    ends: tuple[Ancestor, Ancestor, Ancestor],
    before: Ancestor,
    dollars: tuple[float, float],
    total: float,
    merged: int,
    objective: Objective,
) -> StoryStep:
    """A step from its base, main and last candidate, still without its sentence."""
    base, main, end = ends
    gain, margin = end.gain_over(base)
    return StoryStep(
        number=number,
        id=main.id,
        base=base.id,
        end=end.id,
        merged=merged,
        sentence="",
        remark=False,
        operator=main.operator,
        model="" if main.operator.startswith(main.model) else main.model,
        gain=objective.score(gain),
        gain_margin=margin,
        score=objective.score(end.reward),
        margin=end.margin,
        share=gain / total,
        way=None,
        evaluations=max(0, main.evaluations - before.evaluations),
        dollars=max(0.0, dollars[1] - dollars[0]),
        seconds=max(0.0, main.elapsed - before.elapsed),
        at_evaluations=main.evaluations,
        at_dollars=dollars[1],
        at_seconds=main.elapsed,
        seq=main.seq,
    )


def _share_of_way(
    step: StoryStep, start: Ancestor, objective: Objective, goal: float | None
) -> float | None:
    """Share of the way from the start to the goal; None without one beyond the start."""
    if goal is None:
        return None
    length = objective.reward(goal) - start.reward
    return objective.reward(step.gain) / length if length > 0 else None


# Sentences.

_BREAK = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(`])|\n\s*\n|\n(?=\s*[-*#\d])")
_MARKUP = re.compile(r"[*_`#]{1,6}(?=\S)|(?<=\S)[*_`]{1,3}|^\s*(?:[-*>]|\d+[.)])\s+", re.M)
_LABEL = re.compile(
    r"^\W*(hypothesis|idea|approach|change|summary|rationale|plan|experiment)\s*\d*\s*[:–-]\s*",
    re.I,
)
_EMPTY_TALK = re.compile(
    r"^(sure|certainly|of course|okay|ok|great|here(?:'s| is| are)|below is|the following|let me"
    r"|i'll|i will now)\b",
    re.I,
)


def first_sentence(text: str, limit: int = _SENTENCE) -> str:
    """The first sentence of a remark that says something, without markup, cut at `limit`.

    "" if there is none.
    """
    prose = text.split("```")[0]
    for piece in _BREAK.split(prose):
        plain = " ".join(_LABEL.sub("", _MARKUP.sub("", piece)).split()).strip(" :")
        if any(c.isalpha() for c in plain) and not _EMPTY_TALK.match(plain):
            return plain if len(plain) <= limit else plain[: limit - 1].rstrip() + "…"
    return ""


def candidate_sentence(run: Path, name: str, base: str = "") -> tuple[str, bool]:
    """The idea or change of a candidate in a sentence, and True if it is its author's remark.

    Otherwise it describes the change from `base` ("": its first parent).
    """
    detail = views.candidate_detail(run, name, observations=0, children=0)
    origin = detail.candidate.origin
    said = first_sentence(origin.note) or (
        first_sentence(detail.hypothesis) if detail.among == 1 else ""
    )
    if said:
        return said, True
    base = base or next(iter(detail.candidate.parents), "")
    if not base:
        return "a program of its own, without a parent", False
    try:
        before = views.candidate_detail(run, base, observations=0, children=0).parts
    except UserError:
        return "a program whose parent is not in the journal", False
    language = views.run_meta(run).task.surface.language
    sentence = describe_edit(before, detail.parts, language) or "the same texts"
    return (sentence if len(sentence) <= _SENTENCE else sentence[: _SENTENCE - 1] + "…"), False


# What was tried in vain.


def _vain_groups(
    folder: Path, way: Sequence[Ancestor], result: RunResult, objective: Objective
) -> tuple[VainGroup, ...]:
    """Candidates off the way and off the front, by idea or by operator; failures come last."""
    on_way = {each.id for each in (*way, *result.front)}
    tried = [each for each in views.tried_candidates(folder) if each.id not in on_way]
    failed = _failure_group(folder)
    groups: dict[str, list[TriedCandidate]] = {}
    by_idea = _has_repeated_ideas(tried)
    for each in tried:
        groups.setdefault((by_idea and each.note) or _origin_name(each), []).append(each)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    room = _GROUPS - len(failed)
    if len(ordered) > room:
        rest = [each for _, members in ordered[room - 1 :] for each in members]
        many = len(ordered) - room + 1
        ordered = [*ordered[: room - 1], (f"{many} other ways", rest)]
    leader = way[-1].reward if way else objective.reward(result.score)
    told = [_vain_group(folder, name, each, leader, objective) for name, each in ordered]
    return (*told, *failed)


def _has_repeated_ideas(tried: Sequence[TriedCandidate]) -> bool:
    """True if most candidates carry a note, and the notes repeat."""
    notes = [each.note for each in tried if each.note]
    return len(notes) > len(tried) / 2 and len(notes) >= _REPEATED * len(set(notes))


def _origin_name(each: TriedCandidate) -> str:
    model = "" if each.operator.startswith(each.model) else each.model
    return join_nonempty([each.operator.replace("_", " ") or "unknown origin", model])


def _vain_group(
    folder: Path, name: str, members: list[TriedCandidate], leader: float, objective: Objective
) -> VainGroup:
    best = max(members, key=lambda each: each.reward)
    return VainGroup(
        name,
        len(members),
        objective.score(best.reward),
        best.margin,
        leader - best.reward,
        best.id,
        candidate_sentence(folder, best.id)[0],
    )


def _failure_group(folder: Path) -> list[VainGroup]:
    """Candidates that never scored, with the most frequent cause; [] if there is none."""
    causes = views.failure_causes(folder)
    if not causes.fruitless:
        return []
    by_reason = Counter[str]()
    for kind, many in causes.kinds.items():
        by_reason[kind.partition("\n")[0]] += many
    reason = max(by_reason, key=lambda name: by_reason[name], default="")
    words = next((kind for kind in causes.kinds if kind.partition("\n")[0] == reason), "")
    said = first_sentence(words.partition("\n")[2])
    cause = join_nonempty(["mainly " + reason.replace("_", " ") if reason else "", said], ": ")
    return [VainGroup("failed", causes.fruitless, sentence=cause)]


# Texts of numbers, for every surface.


def way_line(story: Story) -> str:
    """`3 steps from 3f2a0c1b (0.20 ± 0.02) to 65ab26ef (0.59 ± 0.02): +0.39 ± 0.03 in all`."""
    ends = (
        f"{name[:8]} ({score_with_margin(score, margin)})"
        for name, score, margin in (
            (story.start, story.start_score, story.start_margin),
            (story.end, story.end_score, story.end_margin),
        )
    )
    line = f"{count_text(len(story.steps), 'step')} from {' to '.join(ends)}"
    if story.gain is None:
        return line
    gain = difference_text(story.gain, story.gain_margin) + plus_minus(story.gain_margin)
    return f"{line}: {gain} in all, by every evaluation of the run"


def step_facts(story: Story, step: StoryStep) -> list[str]:
    """Share, origin and cost of a step, for a line below its sentence."""
    smaller = f"with {count_text(step.merged, 'smaller change')}" if step.merged else ""
    noise = "within noise on its own" if step.is_within_noise else ""
    facts = (share_text(step), way_text(story, step), noise, smaller, origin_text(step))
    return [*filter(None, facts), step.id[:8], f"after {cost_text(step)}"]


def gain_text(step: StoryStep) -> str:
    """`+0.031 ± 0.012`."""
    return difference_text(step.gain, step.gain_margin) + plus_minus(step.gain_margin)


def share_text(step: StoryStep) -> str:
    """`49 % of the gain`."""
    return f"{step.share:.0%}".replace("%", " %") + " of the gain"


def way_text(story: Story, step: StoryStep) -> str:
    """`31 % of the way to the target`; "" without a goal."""
    if step.way is None:
        return ""
    return f"{step.way:.0%}".replace("%", " %") + f" of the way to the {story.goal_name}"


def cost_text(step: StoryStep) -> str:
    """`after 34 evaluations, $0.12, 3 min 20 s`: spent since the step before."""
    return join_nonempty(
        [
            count_text(step.evaluations, "evaluation"),
            dollars_text(step.dollars) if step.dollars else "",
            duration_text(step.seconds),
        ]
    )


def origin_text(step: StoryStep) -> str:
    """`rewrite, small-model`."""
    return join_nonempty([step.operator.replace("_", " "), step.model])


def vain_text(group: VainGroup) -> str:
    """`41 candidates, best 0.80 ± 0.02, 0.03 behind`."""
    many = count_text(group.count, "candidate")
    if group.best is None:
        return many
    return join_nonempty(
        [
            many,
            f"best {score_with_margin(group.best, group.margin)}",
            _behind_text(group.behind or 0.0, group.margin),
        ]
    )


def _behind_text(behind: float, margin: float | None) -> str:
    places = margin_decimals(margin) if margin and math.isfinite(margin) else None
    size = number_text(abs(float(f"{behind:.3g}")), places)
    if not float(size):
        return "level"
    return f"{size} {'behind' if behind > 0 else 'ahead by the estimate'}"
