"""The advisor's requests: decisions (PACEvolve++, 3.2), results, and upkeep of ideas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Annotated, Protocol, cast

from culmen.core.evaluation import Observation, Rollout
from culmen.core.foreign import Unreadable, boundary
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.core.replies.forms import find_object
from culmen.core.wording import clip_middle
from culmen.strategies.pacevolve.implementing import ExperimentOutcome
from culmen.strategies.pacevolve.memory import (
    Failure,
    FailureMemory,
    IdeaRepository,
    first_sentences,
)
from culmen.strategies.settings import About, check

MENU = {  # the offline proposer's operators, by name
    "numbers": "change numbers a little, as large a step as has paid of late",
    "lines": "move, copy or remove single lines",
    "crossover": "take over parts of another good program",
    "statements": "exchange, repeat or remove whole statements",
    "operators": "exchange arithmetic operators and comparisons",
    "names": "exchange a variable or attribute for another, or combine the two",
    "bounds": "move the limits of loops and ranges",
    "refine": "improve a computed value by a loop of small random changes",
    "effort": "spend more iterations on what is already there",
    "cma": "tune all numbers together by an evolution strategy",
}

_BETTER = {"max": "higher", "min": "lower"}
STEPS = ("plan", "generate", "classify", "select", "result", "condense", "prune")


@dataclass(frozen=True)
class AdvisorReply:
    """A reply: its text, a fault if there is one, and the number of a trainable sample."""

    text: str
    fault: str = ""
    sample: int | None = None


class Voice(Protocol):
    """Answers one of the `STEPS`."""

    async def answer_step(self, lab: Lab, step: str, **slots: object) -> AdvisorReply: ...


class ModelVoice:
    """The model of the role `advisor`.

    A run without models draws from the menu instead, all entries alike.
    """

    def __init__(self) -> None:
        self._silent = False  # found out by asking once

    async def answer_step(self, lab: Lab, step: str, **slots: object) -> AdvisorReply:
        """One request."""
        if not self._silent:
            reply = await lab.write(f"advisor.{step}", **slots)
            self._silent = reply.model == "offline"
            if not self._silent:
                return AdvisorReply(reply.text, reply.fault)
        return AdvisorReply(from_menu(step, slots, lab.rng))


def from_menu(step: str, slots: JsonObject, rng: Random) -> str:
    """An advisor's reply drawn from a menu without preferences, in JSON.

    Steps that need words return "", which leaves them to their fallbacks. The same kind of edit is
    another experiment each time it is drawn, so choices carry a number.
    """
    if step == "generate":
        names = rng.sample(list(MENU), min(int(slots["count"]), len(MENU)))
        return json.dumps({"hypotheses": [{"hypothesis": menu_entry(name)} for name in names]})
    if step == "plan":
        numbers = {idea["description"]: idea["number"] for idea in slots["ideas"]}
        names = [menu_entry(rng.choice(list(MENU))) for _ in range(int(slots["count"]))]
        plan = [
            {"idea": numbers.get(name), "description": name, "experiment": name} for name in names
        ]
        return json.dumps({"experiments": [_with_draw_number(one, rng) for one in plan]})
    if step == "classify":
        known = {idea["description"]: idea["number"] for idea in slots["ideas"]}
        number = known.get(slots["hypothesis"])
        return json.dumps({"exists": number is not None, "idea": number})
    if step == "select":
        option = rng.choice(slots["options"])
        return json.dumps(
            _with_draw_number({"idea": option["idea"], "experiment": option["hypothesis"]}, rng)
        )
    return ""


def _with_draw_number(choice: JsonObject, rng: Random) -> JsonObject:
    return {**choice, "experiment": f"{choice['experiment']} (draw {rng.randrange(10**6)})"}


def menu_entry(name: str) -> str:
    """A line of the menu; its first word is the name."""
    return f"{name}: {MENU[name]}"


@dataclass(frozen=True)
class Decision:
    """An experiment to run, with the repository of ideas after the decision.

    `experiment` is "" if there is none, and `fault` then names the reason: advisor_format, or
    repeat if every choice had failed before. `ideas` is the repository with its new ideas,
    `samples` the trainable replies that the decision is made of, `planned` further experiments with
    the same parent, each with the number of its idea.
    """

    ideas: IdeaRepository
    idea: int = 0
    experiment: str = ""
    samples: tuple[int, ...] = ()
    hypotheses: tuple[str, ...] = ()
    fault: str = ""
    planned: tuple[tuple[int, str], ...] = ()


@dataclass
class _Draft:
    ideas: IdeaRepository
    samples: list[int] = field(default_factory=list[int])

    async def ask(self, lab: Lab, voice: Voice, step: str, attempt: int, **slots: object) -> str:
        """The text of a reply; its sample is kept."""
        slots |= {"reminder": retry_reminder(attempt)}
        reply = await voice.answer_step(lab, step, **slots)
        self.samples += [] if reply.sample is None else [reply.sample]
        return reply.text


@dataclass(frozen=True)
class DecisionSettings:
    """Settings of all ways to ask the advisor for a decision."""

    tries: Annotated[int, About("attempts at a step before the decision fails", least=1)] = 3
    program_chars: Annotated[int, About("characters of the parent shown", least=200)] = 24_000
    feedback_chars: Annotated[
        int, About("characters of the parent's feedback shown; 0: none", least=0)
    ] = 2000
    failures: Annotated[int, About("latest failures shown", least=0)] = 6

    def __post_init__(self) -> None:
        check(self)

    def common_slots(self, lab: Lab, parent: Rollout | None, failures: FailureMemory) -> JsonObject:
        """Slots common to all steps: the task and the state of the search."""
        objective = lab.task.objective
        reward = parent.reward if parent else None
        return {
            "goal": lab.task.goal,
            "direction": f"{_BETTER[objective.direction]} scores are better",
            "score": None if reward is None else objective.score(reward),
            "program": parent.candidate.text[: self.program_chars] if parent else "",
            **self.evaluation_slots(parent.observations if parent else ()),
            "failures": [
                {
                    "idea": f.idea,
                    "experiment": f.experiment,
                    "why": f"{f.kind}: {f.reason}".rstrip(": "),
                }
                for f in failures.latest_failures(self.failures)
            ],
        }

    def evaluation_slots(self, seen: Sequence[Observation]) -> JsonObject:
        """The slots `metrics` and `feedback` of a parent's observations (Section 2.1).

        Metrics are means; the feedback is that of the lowest score, with its middle left out if it
        is longer than `feedback_chars`.
        """
        lowest = min(
            (one for one in seen if one.feedback.strip()),
            key=lambda one: -math.inf if one.score is None else one.score,
            default=None,
        )
        feedback = lowest.feedback.strip() if lowest and self.feedback_chars else ""
        return {
            "metrics": mean_metrics(seen),
            "feedback": clip_middle(feedback, self.feedback_chars),
        }


@dataclass(frozen=True)
class Advising(DecisionSettings):
    """Three steps, each repeated with a reminder if the reply cannot be read."""

    hypotheses: Annotated[int, About("hypotheses per decision", least=1)] = 3

    @property
    def cost(self) -> str:
        """Cost of decisions, in words."""
        return f"an advisor's decision for every experiment, {self.hypotheses + 2} calls"

    async def decide(
        self,
        lab: Lab,
        voice: Voice,
        parent: Rollout | None,
        ideas: IdeaRepository,
        failures: FailureMemory,
    ) -> Decision:
        """Generate, classify, select.

        An experiment that failed before word by word is refused, and the request repeated.
        """
        draft = _Draft(ideas)
        shown = self.common_slots(lab, parent, failures)
        hypotheses = await self._generate_hypotheses(lab, voice, draft, shown)
        if not hypotheses:
            return Decision(ideas, samples=tuple(draft.samples), fault=UNREADABLE)
        state = {name: shown[name] for name in ("score", "metrics", "feedback")}
        options = [
            await self._classify_hypothesis(lab, voice, draft, text, state) for text in hypotheses
        ]
        idea, experiment, fault = await self._select_experiment(
            lab, voice, draft, shown, options, failures
        )
        return Decision(
            draft.ideas, idea, experiment, tuple(draft.samples), tuple(hypotheses), fault
        )

    async def _generate_hypotheses(
        self, lab: Lab, voice: Voice, draft: _Draft, shown: JsonObject
    ) -> list[str]:
        for attempt in range(self.tries):
            slots = {**shown, "ideas": repository_data(draft.ideas), "count": self.hypotheses}
            reply = await draft.ask(lab, voice, "generate", attempt, **slots)
            if found := read_hypotheses(reply)[: self.hypotheses]:
                return found
        return []

    async def _classify_hypothesis(
        self, lab: Lab, voice: Voice, draft: _Draft, hypothesis: str, state: JsonObject
    ) -> JsonObject:
        """Put a hypothesis under a known idea, or add it as a new one.

        It also counts as a new idea if none of `tries` replies can be read.
        """
        for attempt in range(self.tries):
            slots = {
                **state,
                "ideas": repository_data(draft.ideas),
                "hypothesis": hypothesis,
                "sentences": draft.ideas.sentences,
            }
            answer = read_object(await draft.ask(lab, voice, "classify", attempt, **slots))
            number = whole_number(answer.get("idea"))
            description = plain_text(answer.get("description"))
            exists = answer.get("exists")
            if exists is True and number is not None and draft.ideas.find_idea(number):
                draft.ideas = draft.ideas.with_description(number, description)
                return {"idea": number, "hypothesis": hypothesis}
            if exists is False:
                break
        else:
            description = ""
        number, draft.ideas = draft.ideas.next, draft.ideas.with_idea(description or hypothesis)
        return {"idea": number, "hypothesis": hypothesis}

    async def _select_experiment(
        self,
        lab: Lab,
        voice: Voice,
        draft: _Draft,
        shown: JsonObject,
        options: list[JsonObject],
        failures: FailureMemory,
    ) -> tuple[int, str, str]:
        refused = ""
        for attempt in range(self.tries):
            slots = {
                **shown,
                "ideas": repository_data(draft.ideas),
                "options": options,
                "refused": refused,
            }
            misread = 0 if refused else attempt
            answer = read_object(await draft.ask(lab, voice, "select", misread, **slots))
            number = whole_number(answer.get("idea"))
            experiment = plain_text(answer.get("experiment"))
            if number is None or not experiment or draft.ideas.find_idea(number) is None:
                continue
            if not failures.blocks_experiment(experiment):
                return number, experiment, ""
            refused = experiment
            name, why = draft.ideas.description_of(number), "chosen again after it had failed"
            failures.add(Failure(name, experiment, "repeat", why))
        return 0, "", "repeat" if refused else UNREADABLE


def mean_metrics(observations: Sequence[Observation]) -> dict[str, float]:
    """Every finite metric's mean over the observations that have it, in order of appearance."""
    values: dict[str, list[float]] = {}
    for one in observations:
        for name, value in one.metrics.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: fmean(found) for name, found in values.items()}


UNREADABLE = "advisor_format"


def repository_data(ideas: IdeaRepository) -> list[JsonObject]:
    """A repository as plain data for prompts and notes."""
    return [
        {
            "number": i.number,
            "description": i.description,
            "tried": i.tries,
            "results": list(i.results),
        }
        for i in ideas.ideas
    ]


def read_hypotheses(text: str) -> list[str]:
    """Distinct hypotheses of a reply.

    Formats: `{"hypotheses": [{"hypothesis": ...}, ...]}`, or lines `Hypothesis: ...`.
    """
    texts: list[str] = []
    for item in list_or_empty(read_object(text).get("hypotheses")):
        value = cast(JsonObject, item).get("hypothesis") if isinstance(item, dict) else item
        texts += [value] if isinstance(value, str) else []
    texts = texts or re.findall(
        r"^\W*hypothesis\W*\d*\W*:[\s*]*(.+)$", text, re.IGNORECASE | re.MULTILINE
    )
    return list(dict.fromkeys(filter(None, (first_sentences(one, 3) for one in texts))))


ANSWER_KEYS = {
    *("hypotheses", "experiments", "experiment", "idea", "exists", "description"),
    *("result", "lesson", "drop"),
}
"""The keys of answers to an advisor's steps; an object without any of them is no answer."""


def read_object(text: str) -> JsonObject:
    """The JSON object of a reply, the last of several; {} if there is none."""
    try:
        return find_answer(text)
    except Unreadable:
        return {}


@boundary()
def find_answer(text: str) -> JsonObject:
    """The last object of a text that is an answer; {} if there is none."""
    return find_object(text, lambda found: bool(ANSWER_KEYS & found.keys()))


def list_or_empty(value: object) -> list[object]:
    """The value if it is a list, else []."""
    return cast(list[object], value) if isinstance(value, list) else []


def whole_number(value: object) -> int | None:
    """A whole number of at most nine digits, also one written as text; None for anything else."""
    if isinstance(value, str):
        return int(value.strip().lstrip("#")) if _NUMBER.fullmatch(value) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < 10**9 else None


_NUMBER = re.compile(r"\s*#*[0-9]{1,9}\s*")


def plain_text(value: object) -> str:
    """A text or number of a reply as text without space around it, "" for anything else."""
    return str(value).strip() if value and isinstance(value, str | int | float) else ""


def retry_reminder(attempt: int) -> str:
    return "The last reply could not be read. Answer with the JSON object alone." if attempt else ""


@dataclass(frozen=True)
class Upkeep:
    """Upkeep of ideas by rules (`tries` of 0), or by requests to the advisor.

    If no reply is usable, the rule does the work, so that the bounds always hold.
    """

    cap: Annotated[int, About("ideas an island keeps", least=1)] = 5
    condense: Annotated[
        int, About("experiments under one idea after which its history is condensed", least=2)
    ] = 20
    sentences: Annotated[
        int, About("sentences of an idea's description and of a result", least=1)
    ] = 2
    tries: Annotated[int, About("requests before the rule does it; 0: none", least=0)] = 0
    feedback_chars: Annotated[
        int, About("characters of the evaluator's feedback shown for a result", least=0)
    ] = 2000

    def __post_init__(self) -> None:
        check(self)

    async def result_line(
        self,
        lab: Lab,
        voice: Voice,
        experiment: str,
        outcome: ExperimentOutcome,
        before: float | None,
    ) -> str:
        """One line on the result of an experiment: the score first, then its lesson."""
        line = score_line(lab, outcome, before)
        feedback = (
            outcome.rollout.observations[0].feedback[: self.feedback_chars]
            if outcome.rollout
            else outcome.reason
        )
        slots = {"experiment": experiment, "outcome": line, "feedback": feedback}
        answer = await self._ask_for_field(lab, voice, "result", "lesson", slots)
        return f"{line}: {plain_text(answer.get('lesson')) or experiment}"

    async def tidy_ideas(
        self,
        lab: Lab,
        voice: Voice,
        ideas: IdeaRepository,
        number: int,
        failures: FailureMemory,
        planned: Collection[int] = (),
    ) -> tuple[IdeaRepository, list[int]]:
        """The repository within its bounds, and the ideas dropped.

        Ideas under which experiments are planned are never dropped.
        """
        idea = ideas.find_idea(number)
        if (
            idea is not None
            and idea.tries
            and idea.tries % self.condense == 0
            and len(idea.results) > 1
        ):
            slots = {
                "idea": repository_data(
                    ideas.without_ideas({i.number for i in ideas.ideas} - {number})
                ),
                "sentences": self.sentences,
            }
            answer = await self._ask_for_field(lab, voice, "condense", "result", slots)
            result = (
                plain_text(answer.get("result"))
                or f"{idea.tries} experiments; the latest: {idea.results[-1]}"
            )
            ideas = ideas.with_condensed_history(
                number, plain_text(answer.get("description")), result
            )
        free = ideas.without_ideas(planned)
        excess = min(len(ideas.ideas) - self.cap, len(free.ideas))
        if excess <= 0:
            return ideas, []
        answer = await self._ask_for_field(
            lab, voice, "prune", "drop", {"ideas": repository_data(free), "count": excess}
        )
        dropped = _ideas_to_drop(answer, free, excess)
        for one in dropped:
            if (
                gone := ideas.find_idea(one)
            ) and gone.tries:  # nothing failed under one that was never tried
                failures.add(
                    Failure(gone.description, "", "pruned", f"after {gone.tries} experiments")
                )
        return ideas.without_ideas(dropped), dropped

    async def _ask_for_field(
        self, lab: Lab, voice: Voice, step: str, field: str, slots: JsonObject
    ) -> JsonObject:
        """The reply as an object that has this field, else {}.

        A request with an empty reply is not repeated.
        """
        for attempt in range(self.tries):
            reply = await voice.answer_step(lab, step, **slots, reminder=retry_reminder(attempt))
            answer = read_object(reply.text)
            if answer.get(field) or not reply.text:
                return answer
        return {}


def _ideas_to_drop(answer: JsonObject, ideas: IdeaRepository, excess: int) -> list[int]:
    """Numbers of the `excess` ideas to drop: first those that the answer names.

    The rest are those never tried, then those tried most often; of equals the oldest first.
    """
    named = [
        n
        for n in map(whole_number, list_or_empty(answer.get("drop")))
        if n is not None and ideas.find_idea(n)
    ]
    others = sorted(
        (i for i in ideas.ideas if i.number not in named),
        key=lambda i: (i.tries > 0, -i.tries, i.number),
    )
    return (list(dict.fromkeys(named)) + [i.number for i in others])[:excess]


def score_line(lab: Lab, outcome: ExperimentOutcome, before: float | None) -> str:
    """`score 2.51 (better than 2.48)`, or the failure."""
    rollout, objective = outcome.rollout, lab.task.objective
    if rollout is None or rollout.reward is None:
        return f"failed ({outcome.fault})"
    score, now = f"score {objective.score(rollout.reward):.6g}", rollout.reward
    if before is None:
        return score
    words = "equal to" if now == before else "better than" if now > before else "worse than"
    return f"{score} ({words} {objective.score(before):.6g})"


# Several experiments decided in one request, carried out one after the other: they share the cost


@dataclass(frozen=True)
class Planning(DecisionSettings):
    """Decisions of `experiments` experiments with one parent in one request.

    Each experiment is under an idea known or new, and the reply names ideas to give up. The
    decision is the first experiment; the others are its `planned`.
    """

    experiments: Annotated[int, About("experiments decided in one request", least=1)] = 8

    @property
    def cost(self) -> str:
        """Cost of decisions, in words."""
        return f"an advisor's plan for every {self.experiments} experiments, one call"

    async def decide(
        self,
        lab: Lab,
        voice: Voice,
        parent: Rollout | None,
        ideas: IdeaRepository,
        failures: FailureMemory,
    ) -> Decision:
        """A plan without the experiments that failed before word by word.

        The advisor is asked again, up to `tries` times, if none is left.
        """
        shown, fault = self.common_slots(lab, parent, failures), UNREADABLE
        for attempt in range(self.tries):
            slots = {
                **shown,
                "ideas": repository_data(ideas),
                "count": self.experiments,
                "sentences": ideas.sentences,
            }
            reply = await voice.answer_step(
                lab, "plan", **slots, reminder=retry_reminder(attempt if fault == UNREADABLE else 0)
            )
            answer = read_object(reply.text)
            listed = list_or_empty(answer.get("experiments"))
            experiments = [cast(JsonObject, one) for one in listed if one and isinstance(one, dict)]
            experiments = experiments[: self.experiments]
            after, plan = _file_experiments(
                experiments, ideas.without_ideas(_given_up(answer, experiments))
            )
            fresh = tuple(
                (idea, text) for idea, text in plan if not failures.blocks_experiment(text)
            )
            if fresh:
                return Decision(
                    after, *fresh[0], hypotheses=tuple(text for _, text in fresh), planned=fresh[1:]
                )
            fault = "repeat" if plan else UNREADABLE
        return Decision(ideas, fault=fault)


def _given_up(answer: JsonObject, experiments: list[JsonObject]) -> set[int]:
    """Ideas that the reply gives up and plans no experiment under."""
    used = {whole_number(one.get("idea")) for one in experiments}
    return {
        number
        for number in map(whole_number, list_or_empty(answer.get("drop")))
        if number is not None and number not in used
    }


def _file_experiments(
    experiments: list[JsonObject], ideas: IdeaRepository
) -> tuple[IdeaRepository, list[tuple[int, str]]]:
    """The repository with a plan's new ideas, and its experiments with their idea's number."""
    plan: dict[str, int] = {}
    fresh: dict[str, int] = {}
    for one in experiments:
        text, about = plain_text(one.get("experiment")), plain_text(one.get("description"))
        number = whole_number(one.get("idea"))
        if not text:
            continue
        if number is None or ideas.find_idea(number) is None:
            about = first_sentences(about or text, ideas.sentences)
            number = fresh.get(about)
            if number is None:
                number = fresh[about] = ideas.next
                ideas = ideas.with_idea(about)
        plan.setdefault(text, number)
    return ideas, [(number, text) for text, number in plan.items()]
