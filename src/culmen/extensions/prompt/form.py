"""Tasks whose candidate is a prompt over labelled cases; a model answers.

The prompt's placeholders are filled with the case's columns; columns that it does not name follow
it. One evaluation is one question to the model of the role `answer`, and one to `judge` if a model
judges. Nothing of a candidate is run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from culmen.core.asking import Asker, AskingFailed, current_asker
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import OUTPUT, Case, Observation, Scoring, Status
from culmen.core.json import JsonObject
from culmen.core.options import TaskDefaults
from culmen.core.ports import Backend
from culmen.core.replies.thoughts import without_thoughts
from culmen.core.task import Evaluator, Objective, Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.prompt.cases import (
    LabelledCases,
    fill_placeholders,
    placeholders_of,
    text_of,
)
from culmen.extensions.prompt.metrics import (
    AnswerScore,
    Metric,
    judge_question,
    read_verdict,
    score_answer,
)
from culmen.jail.wire import storable_text
from culmen.tasks import reading

if TYPE_CHECKING:
    from culmen.jail.forms import FormHost, FormRunner

FORM, ANSWER, JUDGE = "prompt", "answer", "judge"
WORKERS = 8  # questions at once: they wait for a provider, not for a core
_FEEDBACK = 4_000  # characters of a feedback


def build_task(
    name: str, part: str, prompt: str, cases: LabelledCases, metric: Metric, goal: str = ""
) -> Task:
    """The task of improving a prompt, whose part is called `part`, over labelled cases."""
    roles = [ANSWER, JUDGE] if metric.name == "judge" else [ANSWER]
    evaluator = Evaluator(
        form=FORM,
        entry="",
        packages=(),
        tolerances=False,
        options={
            "roles": roles,
            "label": cases.label,
            "inputs": list(cases.inputs),
            "metric": msgspec.to_builtins(metric),
        },
    )
    digest = reading.evaluator_digest({"metric": msgspec.json.encode(evaluator.options).decode()})
    task = Task(
        name=name,
        goal=goal.strip() or _goal_text(prompt, cases, metric),
        seeds=({part: prompt},),
        evaluator=msgspec.structs.replace(evaluator, digest=digest),
        cases=cases.cases,
        objective=Objective(bounds=(0.0, 1.0)),
        # characters of a candidate
        surface=Surface(language="text", markers="off", max_chars=50_000),
        system="You write prompts for language models.",
        defaults=TaskDefaults(workers=WORKERS),
        notes=cases.notes,
    )
    return reading.with_digest(task)


def with_budget(task: Task, budget: Budget) -> Task:
    """The task with the budget that its runs use unless another one is given."""
    defaults = msgspec.structs.replace(task.defaults, budget=budget)
    return msgspec.structs.replace(task, defaults=defaults)


def metric_of(task: Task) -> Metric:
    """The metric of a task of this form."""
    return msgspec.convert(task.evaluator.options["metric"], Metric)


def _goal_text(prompt: str, cases: LabelledCases, metric: Metric) -> str:
    named = [f"{{{name}}}" for name in placeholders_of(prompt) if name in cases.inputs]
    if named:
        use = (
            f"In the prompt {', '.join(named)} stand for the case's values and are filled in for "
            "each case; a value whose placeholder is missing is appended."
        )
    else:
        use = (
            f"The prompt is the system message; the case's {', '.join(cases.inputs)} follow as "
            "the user's message."
        )
    labels = ""
    if metric.classes:
        shown = ", ".join(metric.classes[:40])  # labels named in the goal
        labels = f" The labels are: {shown}."
    return (
        "Improve the prompt with which a language model answers cases like those shown. "
        f"{use} The answer is compared with the case's label ({cases.label}): "
        f"{metric.description}.{labels} The prompt should state what distinguishes the answers in "
        "general terms, for cases that it has not seen, and the form that an answer must have."
    )


def case_messages(prompt: str, values: Mapping[str, object]) -> list[dict[str, str]]:
    """The messages to the model: the filled prompt, and the values that it does not name."""
    filled, missing = fill_placeholders(prompt, values)
    rest = inputs_text({name: values[name] for name in missing})
    if len(missing) < len(values):
        return [{"role": "user", "content": f"{filled}\n\n{rest}" if missing else filled}]
    return [{"role": "system", "content": prompt}, {"role": "user", "content": rest}]


def inputs_text(values: Mapping[str, object]) -> str:
    """A single value alone, several as lines with their names."""
    if len(values) == 1:
        return text_of(next(iter(values.values())))
    return "\n".join(f"{name}: {text_of(value)}" for name, value in values.items())


class QuestionRefused(Exception):
    """The provider refuses a question for good; `kind` is a word."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


async def ask_model(
    asker: Asker, number: int, role: str, messages: Sequence[Mapping[str, str]]
) -> str:
    """The reply of a role's model, without its thoughts.

    Raises `QuestionRefused`, and as `core.asking.Asker.ask` does.
    """
    question = {"number": number, "role": role, "messages": list(messages), "options": {}}
    reply = await asker.ask(question)
    if "error" in reply:
        raise QuestionRefused(str(reply["error"]["kind"]), str(reply["error"]["message"]))
    return without_thoughts(reply["choices"][0]["message"].get("content") or "").strip()


async def judge_answer(
    asker: Asker, number: int, case: Case, answer: str, label: str
) -> bool | None:
    """The judge's verdict on an answer to a case; None if its reply has none."""
    question = judge_question(inputs_text(case.input), answer, label)
    return read_verdict(await ask_model(asker, number, JUDGE, question))


class PromptBackend(Backend):
    """Evaluates a prompt on a case by a question to the model of the role `answer`."""

    attempts = 2
    scoring = Scoring("verified")

    def __init__(self, task: Task, workers: int, require: str | None = None) -> None:
        self.task, self.workers, self._metric = task, workers or WORKERS, metric_of(task)

    async def start(self) -> str:
        """The isolation in force: none is needed, for nothing of a candidate is run."""
        return "not needed"

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, *, certify: bool = False
    ) -> Observation:
        """The score of one answer. Raises as `core.asking.Asker` does, except `AskingFailed`."""
        assert case is not None
        began, asker = time.monotonic(), current_asker()
        prompt = next(iter(candidate.parts.values()))
        outcome = Observation(
            candidate=candidate.id,
            status=Status.OK,
            case=case.id,
            seed=seed,
            evaluator=self.task.evaluator.digest,
            trust=self.scoring.trust,
        )
        try:
            if not prompt.strip():
                raise QuestionRefused("empty", "the prompt is empty")
            answer = await ask_model(asker, 1, ANSWER, case_messages(prompt, case.input))
            score = await self._score_answer(asker, case, answer)
            found = _judged(outcome, case, answer, score)
        except QuestionRefused as error:
            found = _failed(outcome, Status.INVALID, error.kind, str(error))
        except AskingFailed as error:
            found = _failed(outcome, Status.LOST, error.reason, str(error))
        return msgspec.structs.replace(found, seconds=time.monotonic() - began)

    async def _score_answer(self, asker: Asker, case: Case, answer: str) -> AnswerScore:
        label = str(case.info)
        if self._metric.name != "judge":
            return score_answer(self._metric, answer, label)
        if not answer:
            return AnswerScore(0.0)
        verdict = await judge_answer(asker, 2, case, answer, label)
        if verdict is None:
            raise AskingFailed("scorer_error", "the judge's reply is neither right nor wrong")
        return AnswerScore(float(verdict))

    async def close(self) -> None:
        """Nothing to close."""


def _judged(outcome: Observation, case: Case, answer: str, score: AnswerScore) -> Observation:
    shown = answer or "(empty)"
    if score.value >= 1.0:
        feedback = f"Right. The answer was: {shown}"
    else:
        feedback = f"The label is: {case.info}\nThe answer was: {shown}"
    return msgspec.structs.replace(
        outcome,
        score=score.value,
        feedback=storable_text(feedback, _FEEDBACK),
        artifacts={OUTPUT: storable_text(answer, 8_000)},  # characters of an answer that are kept
    )


def _failed(outcome: Observation, status: Status, reason: str, message: str) -> Observation:
    return msgspec.structs.replace(
        outcome, status=status, reason=reason, feedback=storable_text(message, _FEEDBACK)
    )


@dataclass(frozen=True)
class PromptForm:
    """See `jail.forms.EvaluatorForm`: a model answers, and no evaluator runs in a jail."""

    jail_functions: ClassVar[Mapping[str, str]] = {}
    evaluator_requests: ClassVar[tuple[str, ...]] = ()
    jail_modules: ClassVar[tuple[str, ...]] = ()
    jail_sources: ClassVar[tuple[str, ...]] = ()
    backend: ClassVar[str] = "culmen.extensions.prompt.form:PromptBackend"

    def contract_of(self, module: reading.Module) -> str | None:
        """None: no Python file is an evaluator of this form."""
        return None

    def check_module(self, module: reading.Module, path: Path) -> None:
        """Raise `TaskError`."""
        raise _no_folder_error(path)

    def task_from_files(
        self, program: Path | None, evaluator: Path, config: Path | None, goal: str
    ) -> Task:
        """Raise `TaskError`: a label's column is needed beside the files."""
        raise _no_folder_error(evaluator)

    def with_agent(self, task: Task, agent: str) -> Task:
        """Raise `TaskError`: a model answers, not an agent."""
        raise TaskError(
            "a prompt is answered by a model, not by an agent",
            where=f"--agent {agent}",
            fix="leave it out, or see culmen docs skills",
        )

    def new_runner(self, host: FormHost) -> FormRunner:
        """Never called: the form brings a backend."""
        raise NotImplementedError(FORM)


PROMPT = PromptForm()


def _no_folder_error(path: Path) -> TaskError:
    return TaskError(
        "the form prompt has no evaluator in Python",
        where=str(path),
        fix="culmen prompt PROMPT CASES.csv --label COLUMN --model MODEL",
    )


# -- the judge


class JudgeAgreement(msgspec.Struct, frozen=True):
    """Verdicts of the judge on answers known to be right or wrong.

    Labels given as answers are right, those of other cases wrong. `missed` are cases whose right
    answer was refused, `fooled` cases in which a wrong one was accepted, `unclear` those without a
    verdict. `usage` is what they cost.
    """

    asked: int
    agreed: int
    missed: tuple[str, ...] = ()
    fooled: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def share(self) -> float:
        """Share of the verdicts that agree with the labels."""
        return self.agreed / self.asked if self.asked else 0.0


async def measure_agreement(asker: Asker, cases: Sequence[Case]) -> JudgeAgreement:
    """Ask the judge about the labels of these cases, each beside that of another case."""
    questions: list[tuple[Case, str, bool]] = []
    for index, case in enumerate(cases):
        others = (str(each.info) for each in (*cases[index + 1 :], *cases[:index]))
        wrong = next((label for label in others if label != str(case.info)), None)
        questions.append((case, str(case.info), True))
        questions += [] if wrong is None else [(case, wrong, False)]
    verdicts = await asyncio.gather(
        *(
            judge_answer(asker, number, case, answer, str(case.info))
            for number, (case, answer, _) in enumerate(questions, 1)
        )
    )
    odd = [
        (case.id, verdict)
        for (case, _, is_right), verdict in zip(questions, verdicts, strict=True)
        if verdict is not is_right
    ]
    missed, fooled, unclear = (
        tuple(name for name, verdict in odd if verdict is kind) for kind in (False, True, None)
    )
    return JudgeAgreement(len(questions), len(questions) - len(odd), missed, fooled, unclear)


def with_agreement(task: Task, agreement: JudgeAgreement) -> Task:
    """The task with the judge's agreement, for the result; its digest stays."""
    options: JsonObject = {
        **task.evaluator.options,
        "agreement": cast("JsonObject", msgspec.to_builtins(agreement)),
    }
    evaluator = msgspec.structs.replace(task.evaluator, options=options)
    return msgspec.structs.replace(task, evaluator=evaluator)
