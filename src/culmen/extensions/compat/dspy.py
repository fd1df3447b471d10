"""Instructions and demonstrations of a DSPy program as parts of a candidate.

The optimizer has the interface of DSPy's own:

    import culmen
    optimizer = culmen.dspy.Optimizer(metric, model="gpt-5-mini", budget=200)
    better = optimizer.compile(program, trainset=train, valset=val)
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from culmen.core.errors import NothingScored, UserError, missing_extra
from culmen.core.json import JsonObject
from culmen.core.usage import Budget, Usage
from culmen.evaluate import Invalid
from culmen.extensions.compat.example_cases import (
    Asked,
    cases_of,
    metrics_and_lines,
    plain_number,
    shortened_text,
)

if TYPE_CHECKING:
    from culmen.run.study import Study

Result = TypeVar("Result")

_DEMOS = ".demos"  # suffix of the name of a part with demonstrations


class DspyOptimizer:
    """Optimizer of the instructions of a program's predictors.

    `metric(example, prediction, trace=None)` returns a number, or a `dspy.Prediction(score=,
    feedback=, objective_scores=)`, whose objectives are metrics. It receives two arguments, and
    None for a third to fifth without a default. `demos` > 0 also optimises the demonstrations,
    which begin with the program's own, filled up to that many with training examples. The other
    keywords are those of `culmen.optimize`; `study` is the finished search. Raises `UserError` for
    a metric that takes none of these numbers of arguments.
    """

    def __init__(
        self, metric: Callable[..., object], *, demos: int = 0, **keywords: object
    ) -> None:
        _import_dspy()
        metric_arity(metric)
        self.metric, self.demos, self.keywords = metric, demos, keywords
        self.study: Study | None = None

    def compile(
        self, student: Any, *, trainset: Iterable[Any], valset: Iterable[object] | None = None
    ) -> Any:
        """A copy of the program with the best texts.

        Raises `UserError` for a program without predictors, `NothingScored` if no version was
        scored.
        """
        from culmen.run.study import optimize

        train = list(trainset)
        parts = _program_parts(student, train[: self.demos])
        if not parts:
            raise UserError(
                "the program has no predictors",
                where="student",
                fix="give a dspy.Module with predictors",
            )
        cases, examples = cases_of(train, valset)
        asked = _Program(self.metric, examples, student)
        arguments: JsonObject = {"name": type(student).__name__, **self.keywords}
        self.study = optimize(parts, asked, cases=cases, **arguments)
        best_version = self.study.best
        if best_version is None:
            raise NothingScored(
                "no version was scored",
                where=str(self.study.path),
                fix=f"culmen show {self.study.path} --log",
            )
        best = with_parts(student, best_version.parts)
        best._compiled = True
        return best


Optimizer = DspyOptimizer


def with_parts(student: Any, parts: Mapping[str, str]) -> Any:
    """A copy of the program with these instructions and demonstrations.

    Raises `Invalid` for demonstrations that it cannot have.
    """
    program = student.deepcopy()
    for name, predictor in program.named_predictors():
        if name in parts:
            predictor.signature = predictor.signature.with_instructions(parts[name])
        if name + _DEMOS in parts:
            predictor.demos = _parse_demos(parts[name + _DEMOS])
    return program


@contextlib.contextmanager
def metered(
    model: str, budget: Budget | None = None, models_file: str | None = None, **settings: object
) -> Iterator[Any]:
    """A `dspy.LM` whose calls go through culmen's gateway.

    They are counted in `lm.spent()` and refused beyond `budget`. `model` is a name as for
    `--model`; `settings` are those of `dspy.LM`.
    """
    from culmen.extensions.agents.gateway.metering import Metering
    from culmen.models.roles import ModelBook

    dspy, spec, loop = _import_dspy(), ModelBook(models_file).model(model), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(work: Coroutine[object, object, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def make_gateway(folder: str) -> Metering:
        return Metering({"*": spec}, folder)

    async def spent(gateway: Metering, token: str) -> Usage:
        await gateway.settled(token)
        return gateway.usage(token)

    try:
        with tempfile.TemporaryDirectory() as folder:
            gateway = wait(make_gateway(folder))
            wait(gateway.__aenter__())
            token = gateway.open(agent=0, budget=budget or Budget())
            lm = dspy.LM(
                f"openai/{spec.model}", api_base=f"{gateway.url}/v1", api_key=token, **settings
            )
            lm.spent = lambda: wait(spent(gateway, token))
            try:
                yield lm
            finally:
                wait(gateway.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _import_dspy() -> Any:
    try:
        import dspy  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise missing_extra("culmen.dspy", "dspy", "dspy") from None
    return dspy


def _program_parts(student: Any, demos: Sequence[Mapping[str, object]]) -> dict[str, str]:
    from dspy.adapters.utils import serialize_for_json  # pyright: ignore

    parts: dict[str, str] = {}
    for name, predictor in student.named_predictors():
        parts[name] = predictor.signature.instructions
        if demos:
            fields = [*predictor.signature.input_fields, *predictor.signature.output_fields]
            own = predictor.demos
            rows = [
                {field: serialize_for_json(demo[field]) for field in fields if field in demo}
                for demo in (*own, *demos[len(own) :])
            ]
            parts[name + _DEMOS] = json.dumps(
                [row for row in rows if row], indent=1, ensure_ascii=False
            )
    return parts


def _parse_demos(text: str) -> list[object]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise Invalid(f"demonstrations are a JSON list of objects: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Invalid("demonstrations are a JSON list of objects")
    return [_import_dspy().Example(**row) for row in rows]


class _Program(Asked[Mapping[str, str]]):
    """Evaluator that runs the program on an example and calls the metric.

    The feedback lists every predictor's inputs and outputs.
    """

    differences = (
        "DSPy: scores are means; dspy.Evaluate shows percent",
        "DSPy: an example whose program or metric raises is a failed evaluation; there it counts 0",
        "DSPy: a metric that returns None, a dict or a text gives no score",
        "DSPy: the metric gets no trace and no predictor's name; one that asks for them gets None",
        "DSPy: the code of a dspy.Flex is not optimised",
    )

    def __init__(
        self, metric: Callable[..., object], examples: Mapping[str, object], student: Any
    ) -> None:
        super().__init__(metric, examples)
        self.student = student

    def judge_example(
        self, candidate: Mapping[str, str], has_example: bool, example: Any
    ) -> tuple[object, JsonObject]:
        dspy, program = _import_dspy(), with_parts(self.student, candidate)
        with dspy.context(trace=[]):
            prediction = program(**example.inputs())
            trace: list[tuple[object, Mapping[str, object], Mapping[str, object]]] = list(
                dspy.settings.trace or ()
            )
        result = self.fn(example, prediction, *[None] * (metric_arity(self.fn) - 2))
        score, objectives = score_and_objectives(result)
        metrics, lines = metrics_and_lines(objectives)
        feedback = getattr(result, "feedback", None)
        names = {id(predictor): name for name, predictor in program.named_predictors()}
        steps = [
            f"{names.get(id(predictor), 'a predictor')}: {inputs} -> {dict(outputs)}"
            for predictor, inputs, outputs in trace
        ]
        told = "" if feedback is None else str(feedback)
        texts = [told, *lines, f"wanted: {dict(example.labels())}", *steps]
        return plain_number(score), {
            **metrics,
            "feedback": shortened_text("\n".join(filter(None, texts))),
        }


def score_and_objectives(result: Any) -> tuple[object, Mapping[str, object]]:
    """The score of a metric's answer, and the objective scores of a prediction."""
    if not isinstance(result, _import_dspy().Prediction):
        return getattr(result, "score", result), {}
    return result.score, dict(result.get("objective_scores") or {})


def metric_arity(metric: Callable[..., object]) -> int:
    """Number of positional arguments for the metric: DSPy's 2 if they are enough, else 3 or 5.

    Raises `UserError` for a metric that takes none of these.
    """
    try:
        signature = inspect.signature(metric)
    except ValueError:  # of a function written in C
        return 2
    for number in (2, 3, 5):
        with contextlib.suppress(TypeError):
            signature.bind(*[None] * number)
            return number
    raise UserError(
        f"the metric cannot be called: it is {signature}",
        where="metric",
        fix="write metric(example, prediction, trace=None)",
    )
