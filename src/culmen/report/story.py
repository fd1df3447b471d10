"""Story of a run: the few steps that made the gain, and what was tried in vain."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from culmen.core.candidate import CARRIED, INITIAL
from culmen.core.errors import UserError
from culmen.core.result import RunResult
from culmen.core.task import Objective
from culmen.report.edits import describe_edit
from culmen.report.facts import Facts, result_facts
from culmen.report.figures import (
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
from culmen.report.sentences import run_verdict
from culmen.store import views
from culmen.store.sidecar import load_kept, save_kept
from culmen.store.views import Ancestor, RunStatus, TriedCandidate

DollarsAt = Callable[[Sequence[int]], list[float]]
"""A function that returns the dollars spent up to each of these events."""

FEWEST, MOST = 3, 7
"""Number of steps told, if the way has as many."""

TINY = 0.02
"""Share of the whole gain below which a change belongs to its neighbour's step."""

_KEPT = "story"  # name of the kept reading
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

    id: str
    base: str
    end: str
    operator: str
    model: str
    gain: float
    gain_margin: float | None
    score: float
    margin: float | None
    at_evaluations: int
    at_seconds: float
    seq: int
    island: int | None = None
    at_dollars: float = 0.0
    number: int = 0
    merged: int = 0
    sentence: str = ""
    remark: bool = False
    share: float = 0.0
    way: float | None = None
    evaluations: int = 0
    dollars: float = 0.0
    seconds: float = 0.0

    @property
    def is_within_noise(self) -> bool:
        """True if the step alone is no larger than its margin."""
        return bool(self.gain_margin) and abs(self.gain) <= (self.gain_margin or 0.0)


class VainGroup(msgspec.Struct, frozen=True):
    """Candidates of one kind that are not on the way to the best.

    `best` is the highest expected score among them, of the candidate `id` (None: none scored), and
    `behind` its distance to the reported score, above zero if it is worse, with half the width
    `behind_margin` of its 95 % interval (None: not known). `sentence` is what
    that candidate tried; for failures, their main cause.
    """

    name: str
    count: int
    best: float | None = None
    margin: float | None = None
    behind: float | None = None
    behind_margin: float | None = None
    id: str = ""
    sentence: str = ""


class Story(msgspec.Struct, frozen=True):
    """The way of a run to its result, and the candidates beside it.

    `result` is the line on the result as everywhere, `why` the reason why there are no steps (""
    with steps), `notes` what one should know of the steps. `start` and `end` are the ids at the
    ends of the way, `gain` the run's gain as its result has it, with half its 95 % interval; the
    steps' gains add up to it. If the way begins elsewhere than at the initial program of the result
    (`is_own`), it is the difference of the ends by every evaluation. `goal` is the target or the
    best known value, called `goal_name`.
    `direction` and `bounds` of the score are the task's.
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
    is_own: bool = False
    goal: float | None = None
    goal_name: str = ""
    direction: str = "max"
    bounds: tuple[float | None, float | None] = (None, None)
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
    facts = result_facts(folder, now)
    line = run_verdict(facts).sentence
    if result is None:
        return Story(
            line,
            "nothing has scored, so there is no way to tell of",
            direction=objective.direction,
            vain=tuple(_failure_group(folder)),
        )
    way, story = _kept_way(folder, result) or _read_way(folder, facts, objective, dollars_at)
    return msgspec.structs.replace(
        story,
        result=line,
        why=_why_no_steps(result, way, story),
        notes=_notes_on(now, objective, story, way),
        steps=() if result.kept_initial else story.steps,
    )


_Way = tuple[list[Ancestor], Story]


def _read_way(
    folder: Path, facts: Facts, objective: Objective, dollars_at: DollarsAt | None
) -> _Way:
    """The way to the result and its story, by the value model of the whole run."""
    assert facts.result is not None
    way = views.ascent_to(folder, facts.result.id)
    story = _story_of_way(folder, way, _whole_gain(facts, way), objective, dollars_at)
    vain = _vain_groups(folder, way, facts.result, objective)
    return way, msgspec.structs.replace(story, vain=vain)


def keep_way(run: Path) -> None:
    """Keep what the story of a run at rest takes from the value model."""
    seq, meta, facts = views.last_seq(run), views.run_meta(run), result_facts(run)
    if facts.result is not None:
        kept = facts.result, _read_way(run, facts, meta.task.objective, None)
        save_kept(run, meta.id, _KEPT, seq, kept)


def _kept_way(run: Path, result: RunResult) -> _Way | None:
    """The kept way; None if the journal has gone on since, or has another result."""
    kept = load_kept(run, views.run_meta(run).id, _KEPT)
    if kept is None or kept.seq != views.last_seq(run):
        return None
    of, way = cast("tuple[RunResult, _Way]", kept.state)
    return way if of == result else None


def _why_no_steps(result: RunResult, way: Sequence[Ancestor], story: Story) -> str:
    if result.kept_initial or (way and way[-1].operator == INITIAL):
        return "nothing better than the initial program was found"
    if way and way[-1].operator == CARRIED:
        return (
            "the best candidate was carried from another run or a pool: its way is not known here"
        )
    if story.steps:
        return ""
    if len(way) < 2:
        return "the best candidate has no ancestor that scored, so there is no gain to divide"
    if story.gain_margin and abs(story.gain or 0.0) <= story.gain_margin:
        what = "the gain over the carried candidate" if way[0].operator == CARRIED else "the gain"
        return f"{what} is within noise, so no step can be said to have made it"
    return "no change on the way to the best candidate raised the expected score"


def _notes_on(
    now: RunStatus, objective: Objective, story: Story, way: Sequence[Ancestor]
) -> tuple[str, ...]:
    notes: list[str] = []
    if story.steps and way[0].operator == CARRIED:
        notes.append(
            "the way begins at a carried candidate: its steps are no gain over the initial"
        )
    if now.state == "running":
        notes.append("the run goes on: these are the steps so far")
    if objective.metrics:
        notes.append(
            "several objectives: the way to the default choice, in the score that strategies see"
        )
    if story.steps and all(step.gain_margin is None for step in story.steps):
        is_on_one_draw = now.best is not None and now.best.noise.one_draw
        why = "all evaluations are on one draw" if is_on_one_draw else "nothing was evaluated twice"
        notes.append(f"{why}, so the gains have no margin")
    return tuple(notes)


class _WholeGain(NamedTuple):
    """The gain that the steps divide, in reward, with its margin (0: exact, None: not known).

    `start` and `end` are the scores at its ends, each with a margin. `is_own` as in `Story`.
    """

    gain: float
    margin: float | None
    start: tuple[float, float | None]
    end: tuple[float, float | None]
    is_own: bool = False

    @property
    def is_within_noise(self) -> bool:
        """True if the gain is no larger than its margin."""
        return self.gain <= (self.margin or 0.0)


def _whole_gain(facts: Facts, way: Sequence[Ancestor]) -> _WholeGain | None:
    """The gain that the steps divide; None without a way.

    It is the result's, if that is one over the way's beginning. Evaluations by which the search
    chose flatter what it chose; the result's gain is rid of that, so the steps divide it, in the
    proportions that all evaluations suggest.
    """
    best, objective = facts.result, facts.objective
    if best is None or not way:
        return None
    first = best.initial
    if first is None or first.id != way[0].id or objective.metrics:
        ends = [(objective.score(each.reward), each.margin) for each in (way[0], way[-1])]
        return _WholeGain(*way[-1].gain_over(way[0]), *ends, is_own=True)
    margin = best.gain_margin if best.confirmed else facts.gain_margin or None
    margin = None if best.kept_initial else margin  # that of another program
    if margin is None and best.noise.exact:
        margin = 0.0
    start, end = (first.score, first.margin), (best.score, best.margin)
    return _WholeGain(facts.gain, margin, start, end)


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
    whole: _WholeGain | None,
    objective: Objective,
    dollars_at: DollarsAt | None,
) -> Story:
    """The story without its result, vain groups and notes: the steps to the best."""
    if whole is None:
        return Story("", direction=objective.direction)
    name, goal = _goal_of(objective)
    steps = [] if whole.is_within_noise else _steps_of_way(folder, way, whole, objective)
    return Story(
        "",
        start=way[0].id,
        end=way[-1].id,
        start_score=whole.start[0],
        start_margin=whole.start[1],
        end_score=whole.end[0],
        end_margin=whole.end[1],
        gain=objective.score(whole.gain),
        gain_margin=whole.margin,
        is_own=whole.is_own,
        goal=goal,
        goal_name=name,
        direction=objective.direction,
        bounds=objective.bounds,
        steps=tuple(_with_costs(folder, way, steps, dollars_at)),
    )


def _goal_of(objective: Objective) -> tuple[str, float | None]:
    """Name and score of the task's goal; ("", None) if nothing is known."""
    known = (("target", objective.target), ("best known", objective.known))
    return next((pair for pair in known if pair[1] is not None), ("", None))


def _steps_of_way(
    folder: Path, way: Sequence[Ancestor], whole: _WholeGain, objective: Objective
) -> list[StoryStep]:
    """The steps with their gains and sentences, without costs."""
    links = [later.gain_over(earlier) for earlier, later in pairwise(way)]
    gains, margins = [gain for gain, _ in links], [margin for _, margin in links]
    chosen = choose_steps(gains, margins)
    shares = [gain / sum(gains) for gain in _step_gains(gains, chosen)]
    begin, reached, steps = 0, objective.reward(whole.start[0]), list[StoryStep]()
    for (main, end), share in zip(chosen, shares, strict=True):
        at, reached = way[main + 1], reached + share * whole.gain
        sentence, is_remark = candidate_sentence(folder, at.id, way[main].id)
        step = _story_step(way[begin], at, way[end + 1], whole, share, objective)
        step = msgspec.structs.replace(
            step,
            number=len(steps) + 1,
            merged=end - begin,
            sentence=sentence,
            remark=is_remark,
            score=objective.score(reached),
            way=_share_of_way(share * whole.gain, whole.start[0], objective),
        )
        steps.append(step)
        begin = end + 1
    return steps


def _with_costs(
    folder: Path, way: Sequence[Ancestor], steps: Sequence[StoryStep], dollars_at: DollarsAt | None
) -> Iterator[StoryStep]:
    """The steps with their costs between the first scores of their main candidates."""
    spent = _dollars_on_way(folder, way, dollars_at) if steps else {}
    by_id, before = {each.id: each for each in way}, way[0]
    for step in steps:
        at = by_id[step.id]
        yield msgspec.structs.replace(
            step,
            evaluations=max(0, at.evaluations - before.evaluations),
            dollars=max(0.0, spent[at.seq] - spent[before.seq]),
            seconds=max(0.0, at.elapsed - before.elapsed),
            at_dollars=spent[at.seq],
        )
        before = max(before, at, key=lambda each: each.seq)


def _share_of_way(gain: float, start: float, objective: Objective) -> float | None:
    """Part of the way from the start to the goal; None without a goal ahead."""
    goal = _goal_of(objective)[1]
    length = 0.0 if goal is None else objective.reward(goal) - objective.reward(start)
    return gain / length if length > 0 else None


def _dollars_on_way(
    folder: Path, way: Sequence[Ancestor], dollars_at: DollarsAt | None
) -> dict[int, float]:
    """Dollars spent up to the first score of each ancestor, by its event."""
    seqs = [each.seq for each in way]
    if dollars_at is not None:
        return dict(zip(seqs, dollars_at(seqs)))
    spent_at = views.spending_by_event(folder, max(seqs))
    return {seq: spent_at(seq).dollars for seq in seqs}


def _story_step(
    base: Ancestor,
    main: Ancestor,
    end: Ancestor,
    whole: _WholeGain,
    share: float,
    objective: Objective,
) -> StoryStep:
    """A step from its base, main and last candidate, and its share of the whole gain."""
    estimated, margin = end.gain_over(base)
    if margin is not None and estimated > 0:
        margin *= share * whole.gain / estimated
    return StoryStep(
        id=main.id,
        base=base.id,
        end=end.id,
        operator=main.operator,
        model="" if main.operator.startswith(main.model) else main.model,
        gain=objective.score(share * whole.gain),
        gain_margin=margin,
        score=objective.score(end.reward),
        margin=end.margin,
        at_evaluations=main.evaluations,
        at_seconds=main.elapsed,
        seq=main.seq,
        island=main.island,
        share=share,
    )


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


def first_sentence(text: str) -> str:
    """The first sentence of a remark that says something, without markup, cut at `_SENTENCE`.

    "" if there is none.
    """
    prose = text.split("```")[0]
    for piece in _BREAK.split(prose):
        plain = " ".join(_LABEL.sub("", _MARKUP.sub("", piece)).split()).strip(" :")
        if any(c.isalpha() for c in plain) and not _EMPTY_TALK.match(plain):
            return plain if len(plain) <= _SENTENCE else plain[: _SENTENCE - 1].rstrip() + "…"
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
    told = [_vain_group(folder, name, each, result, objective) for name, each in ordered]
    return (*told, *failed)


def _has_repeated_ideas(tried: Sequence[TriedCandidate]) -> bool:
    """True if most candidates carry a note, and the notes repeat."""
    notes = [each.note for each in tried if each.note]
    return len(notes) > len(tried) / 2 and len(notes) >= _REPEATED * len(set(notes))


def _origin_name(each: TriedCandidate) -> str:
    model = "" if each.operator.startswith(each.model) else each.model
    return join_nonempty([each.operator.replace("_", " ") or "unknown origin", model])


def _vain_group(
    folder: Path,
    name: str,
    members: list[TriedCandidate],
    result: RunResult,
    objective: Objective,
) -> VainGroup:
    best = max(members, key=lambda each: each.reward)
    margins = best.margin, result.margin
    known = None if None in margins else math.hypot(*(each or 0.0 for each in margins))
    return VainGroup(
        name,
        len(members),
        objective.score(best.reward),
        best.margin,
        objective.reward(result.score) - best.reward,
        known,
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
    first = score_with_margin(story.start_score, story.start_margin, story.bounds)
    last = score_with_margin(story.end_score, story.end_margin, story.bounds)
    start, end = f"{story.start[:8]} at {first}", f"{story.end[:8]} at {last}"
    line = f"{count_text(len(story.steps), 'step')} from {start} to {end}"
    if story.gain is None:
        return line
    gain = difference_text(story.gain, story.gain_margin) + plus_minus(story.gain_margin)
    return f"{line}: {gain} in all{', by every evaluation of the run' if story.is_own else ''}"


def step_facts(story: Story, step: StoryStep) -> list[str]:
    """Share, origin and cost of a step, for a line below its sentence."""
    island = "" if step.island is None else f"island {step.island}"
    facts = [
        f"{_percent(step.share)} of the gain",
        "" if step.way is None else f"{_percent(step.way)} of the way to the {story.goal_name}",
        "within noise on its own" if step.is_within_noise else "",
        f"with {count_text(step.merged, 'smaller change')}" if step.merged else "",
        join_nonempty([step.operator.replace("_", " "), step.model, island]),
    ]
    return [*filter(None, facts), step.id[:8], f"after {cost_text(step)}"]


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def gain_text(step: StoryStep) -> str:
    """`+0.031 ± 0.012`."""
    return difference_text(step.gain, step.gain_margin) + plus_minus(step.gain_margin)


def cost_text(step: StoryStep) -> str:
    """`34 evaluations, $0.12, 3 min 20 s`: spent since the step before."""
    dollars = dollars_text(step.dollars) if step.dollars else ""
    many = count_text(step.evaluations, "evaluation")
    return join_nonempty([many, dollars, duration_text(step.seconds)])


def vain_text(group: VainGroup) -> str:
    """`41 candidates, best 0.80 ± 0.02, 0.03 behind`."""
    many = count_text(group.count, "candidate")
    if group.best is None:
        return many
    margin, behind = group.margin, group.behind or 0.0
    places = margin_decimals(margin) if margin and math.isfinite(margin) else None
    size = number_text(abs(float(f"{behind:.3g}")), places)
    best = f"best {score_with_margin(group.best, margin)}"
    if not float(size):
        return join_nonempty([many, best, "level"])
    if group.behind_margin and abs(behind) <= group.behind_margin:
        return join_nonempty([many, best, "within noise of the reported score"])
    side = "behind" if behind > 0 else "ahead by the search's own estimate, which was not confirmed"
    return join_nonempty([many, best, f"{size} {side}"])
