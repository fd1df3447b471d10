"""Pure functions from the events of an evaluation to its `EvaluationOutcome`."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import dataclass, field, replace

import msgspec

from culmen.core import pictures
from culmen.core.answers import read_refusal
from culmen.core.candidate import Candidate, is_text
from culmen.core.evaluation import EVALUATOR_LOG, PRINTED_MARK, Refusal, Status
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.core.task import (
    OWN_FORMS,
    WIDEST,
    Evaluator,
    Objective,
    combined_score,
    missing_metrics,
)
from culmen.jail import wire
from culmen.jail.culprit import culprit_of_trace
from culmen.jail.fork_server import ChildExit
from culmen.jail.scorer_pool import ScorerFailed, ScorerOverfull, ScorerStalled
from culmen.jail.wire import EvaluationTraces, storable_text

ARTIFACT_CHARS = 20_000  # of one artifact: some 300 lines of a log


@dataclass(frozen=True)
class EvaluationOutcome:
    """Status, reason, and the rest of an observation."""

    status: Status
    reason: str = ""
    score: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    feedback: str = ""
    artifacts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    certified: float | None = None
    strict: bool | None = None
    drew: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    refusal: Refusal | None = None

    def with_log(self, log: str) -> EvaluationOutcome:
        """This outcome with the candidate's printed output as an artifact.

        A failure also has the end of the output in its feedback.
        """
        if not log.strip():
            return self
        feedback = self.feedback
        if self.status is not Status.OK:
            feedback = "\n".join(filter(None, (feedback, PRINTED_MARK, log[-2000:])))
        return replace(
            self,
            feedback=feedback,
            artifacts={**self.artifacts, "log": storable_text(log, ARTIFACT_CHARS)},
        )


_RAISED = ("exception", "exit", "scorer_raised")
_ENDED = ("crash", "no_output")


def certain_culprit(verdict: EvaluationOutcome, evaluator: Evaluator, candidate: Candidate) -> str:
    """One of `core.evaluation.CULPRITS` if the failure identifies it, else "".

    In a process of its own, a candidate is responsible for every exception and for the end of the
    process. In a process shared with the evaluator, the traceback identifies the file that raised;
    the end of the process identifies no culprit.
    """
    if verdict.status is Status.OK:
        return ""
    shared = evaluator.form not in OWN_FORMS
    if verdict.reason == "scorer_raised" or (shared and verdict.reason in _RAISED):
        trace = verdict.feedback.partition(PRINTED_MARK)[0]
        return culprit_of_trace(trace, candidate.parts, os.path.dirname(evaluator.path))
    alone = verdict.status is Status.ERROR and not shared and verdict.reason in (*_RAISED, *_ENDED)
    return "candidate" if alone else ""


def lost_outcome(reason: str, feedback: str = "") -> EvaluationOutcome:
    """A failure of culmen or the machine."""
    return EvaluationOutcome(Status.LOST, reason, feedback=feedback)


def provider_away(feedback: str) -> EvaluationOutcome:
    """A service that the evaluator calls, such as a model, did not answer.

    Not the candidate's fault, nor the evaluator's.
    """
    return lost_outcome(
        "provider_away", f"a service that the evaluator uses did not answer\n{feedback}"
    )


def too_large(limit: int) -> EvaluationOutcome:
    """A message of the candidate above the size limit."""
    return EvaluationOutcome(
        Status.REJECTED, "output_limit", feedback=f"the output is larger than {limit} bytes"
    )


def of_end(end: ChildExit, cpu_limit: float) -> EvaluationOutcome:
    """Outcome of a child that ended without an answer."""
    if end.end == "timeout":
        return EvaluationOutcome(Status.TIMEOUT, "timeout", feedback="the time limit passed")
    if end.end == "memory":
        return EvaluationOutcome(
            Status.REJECTED,
            "memory_limit",
            feedback="the program and its children used too much memory",
        )
    if end.end == "files":
        return EvaluationOutcome(
            Status.REJECTED,
            "files_limit",
            feedback="the program's files are too many, or too large together",
        )
    if end.end in ("zygote_died", "jail_error"):
        return lost_outcome(end.end, end.text)
    if end.end == "killed":
        return EvaluationOutcome(
            Status.ERROR, "no_output", feedback="the program closed its channel without a result"
        )
    if end.code == -signal.SIGXCPU or (end.code == -signal.SIGKILL and end.cpu >= cpu_limit):
        return EvaluationOutcome(
            Status.TIMEOUT, "cpu_limit", feedback="the limit of processor time passed"
        )
    if end.code < 0:
        return EvaluationOutcome(
            Status.ERROR, "crash", feedback=f"the program was ended by signal {-end.code}"
        )
    return EvaluationOutcome(
        Status.ERROR,
        "no_output",
        feedback=f"the program exited with status {end.code} without a result",
    )


_EXCEPTIONS = {
    "MemoryError": (Status.REJECTED, "memory_limit"),
    "WireError": (Status.INVALID, "bad_output"),
    "SystemExit": (Status.ERROR, "exit"),
    "Invalid": (Status.INVALID, "invalid"),
    "ExitStatus": (Status.ERROR, "exit_status"),
    "BuildError": (Status.ERROR, "build"),
    "OutputLimit": (Status.REJECTED, "output_limit"),
}


def of_failed_scorer(error: ScorerFailed) -> EvaluationOutcome:
    """Outcome of an output that a scorer did not judge."""
    if isinstance(error, ScorerStalled | ScorerOverfull):
        reason = "scorer_stalled" if isinstance(error, ScorerStalled) else "memory_limit"
        return EvaluationOutcome(Status.REJECTED, reason, feedback=str(error))
    return lost_outcome("scorer_error", str(error))


def of_texts(candidate: Candidate) -> EvaluationOutcome | None:
    """Rejection of a text that no file can hold (lone surrogates or NUL), else None."""
    if all(map(is_text, candidate.parts.values())):
        return None
    return EvaluationOutcome(
        Status.REJECTED, "not_text", feedback="Not run: a part of the candidate is not text."
    )


@boundary()
def of_exception(payload: bytes) -> EvaluationOutcome:
    """Outcome of an exception frame: written inside the jail, so treated as text only."""
    try:
        report = json.loads(payload)
        kind, trace = str(report["type"]), str(report["trace"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return EvaluationOutcome(
            Status.REJECTED, "bad_frame", feedback="the program sent an invalid answer"
        )
    status, reason = _EXCEPTIONS.get(kind, (Status.ERROR, "exception"))
    if reason == "bad_output":
        last = trace.rpartition("WireError: ")[2]
        trace = f"the program must return numbers, texts, lists, dicts or arrays: {last}"
    return EvaluationOutcome(status, reason, feedback=storable_text(trace, 6000))


@boundary()
def of_answer(answer: JsonObject, objective: Objective) -> EvaluationOutcome:
    """Outcome of a scorer's answer, with the evaluator's printed output.

    Not for the answer `gone`: there the end of the child decides.
    """
    verdict = with_traces(_of_answer(answer, objective), answer)
    printed = storable_text(str(answer.get("printed", "")), ARTIFACT_CHARS)
    return (
        replace(verdict, artifacts={**verdict.artifacts, EVALUATOR_LOG: printed})
        if printed.strip()
        else verdict
    )


def with_traces(verdict: EvaluationOutcome, answer: object) -> EvaluationOutcome:
    """The outcome with the traces in an answer; none if it has none or others than names."""
    found = answer.get("traces") if isinstance(answer, dict) else None
    if not found:
        return verdict
    try:
        traces = EvaluationTraces.from_json(found)
    except (ValueError, TypeError):
        return verdict
    drew = dict.fromkeys((*verdict.drew, *traces.drew))
    return replace(verdict, drew=tuple(drew), left=(*verdict.left, *traces.left))


def with_raised(verdict: EvaluationOutcome, raised: object) -> EvaluationOutcome:
    """The outcome of a program that raised; if it was scored, that is noted."""
    if not raised or verdict.status is not Status.OK or verdict.refusal is not None:
        return verdict
    return replace(verdict, refusal=Refusal(storable_text(str(raised), 300), raised=True))


def _of_answer(answer: JsonObject, objective: Objective) -> EvaluationOutcome:
    feedback = storable_text(str(answer.get("feedback", "")), ARTIFACT_CHARS)
    kind = answer["kind"]
    if kind in ("raised", "busy"):
        return lost_outcome("machine_busy" if kind == "busy" else "scorer_error", feedback)
    if kind == "too_large":
        return EvaluationOutcome(Status.REJECTED, "output_limit", feedback=feedback)
    if kind == "away":
        return provider_away(feedback)
    if kind == "tripped":
        feedback = f"the evaluator raised an exception when it judged this candidate\n{feedback}"
        return EvaluationOutcome(Status.INVALID, "scorer_raised", feedback=feedback)
    if kind == "candidate":
        return EvaluationOutcome(Status.ERROR, "exception", feedback=feedback)
    if kind in ("invalid", "bad_output"):
        return EvaluationOutcome(
            Status.INVALID,
            kind,
            feedback=feedback,
            artifacts=_clean_artifacts(answer.get("artifacts", {})),
        )
    return with_raised(scored_outcome(answer, objective, feedback), answer.get("raised"))


@boundary()
def scored_outcome(
    answer: JsonObject, objective: Objective, feedback: str = ""
) -> EvaluationOutcome:
    """Outcome of a score: OK if it is a finite number inside the bounds.

    With several objectives, the score is computed from the metrics.
    """
    if objective.metrics:
        answer = _with_combined_score(answer, objective)
    score = answer["score"]
    if isinstance(score, _Lacking):
        feedback = "\n".join(filter(None, (str(score), feedback)))
        return EvaluationOutcome(
            Status.INVALID, "metric_missing", feedback=feedback, metrics=answer["metrics"]
        )
    extras = {
        "metrics": answer.get("metrics", {}),
        "artifacts": _clean_artifacts(answer.get("artifacts", {})),
    }
    fault = objective.score_fault(score)
    if fault:
        note = _invalid_score_feedback(score, fault, objective)
        return EvaluationOutcome(
            Status.INVALID, fault, feedback="\n".join(filter(None, (note, feedback))), **extras
        )
    said = {str(name): str(text) for name, text in answer.get("texts", {}).items()}
    refusal = read_refusal(extras["metrics"], extras["artifacts"] | said, feedback)
    if refusal is not None:
        words = storable_text(refusal.words, ARTIFACT_CHARS)
        refusal = msgspec.structs.replace(refusal, words=words)
    return EvaluationOutcome(
        Status.OK, score=float(score), feedback=feedback, refusal=refusal, **extras
    )


class _Lacking(str):
    """The list of metrics that an evaluation lacks, in place of its score."""


def _with_combined_score(answer: JsonObject, objective: Objective) -> JsonObject:
    """The answer with the score of its metrics.

    The evaluator's own score becomes the metric `score`.
    """
    metrics = dict(answer.get("metrics", {}))
    if isinstance(answer["score"], int | float) and not isinstance(answer["score"], bool):
        metrics.setdefault("score", float(answer["score"]))
    missing = missing_metrics(metrics, objective.metrics, objective.constraints)
    if missing:
        message = (
            f"the evaluator returned no finite number for {', '.join(missing)}, which the task's "
            "objectives need"
        )
        return {**answer, "metrics": metrics, "score": _Lacking(message)}
    named = {goal.name for goal in objective.metrics} | {
        constraint.metric for constraint in objective.constraints
    }
    if "score" not in named:
        metrics.pop("score", None)
    return {
        **answer,
        "metrics": metrics,
        "score": combined_score(metrics, objective.metrics, objective.constraints),
    }


def _invalid_score_feedback(score: object, fault: str, objective: Objective) -> str:
    """Feedback on an invalid score: the fault and its remedy."""
    shown = score if isinstance(score, str) and score.startswith("<") else repr(score)
    message = f"the evaluator returned {shown} as the score"
    if fault == "score_not_a_number":
        return f"{message}, which is not a number: the evaluator must return a float"
    if fault != "score_out_of_bounds":
        return (
            f"{message}, which is not finite: the evaluator should return None for "
            "outputs that it does not accept"
        )
    low, high = ("open" if end is None else f"{end:.10g}" for end in objective.bounds)
    if objective.bounds == (None, None):
        return f"{message}, beyond ±{WIDEST:g}: the evaluator should scale it"
    return (
        f"{message}, outside the bounds of the task ({low} to {high}): correct the evaluator, or "
        "[objective] bounds"
    )


@boundary()
def with_certificate(
    verdict: EvaluationOutcome, answer: JsonObject, objective: Objective
) -> EvaluationOutcome:
    """The outcome with a verifier's answer.

    `strict` is set in every case, `certified` only if the verifier returned a value.
    """
    feedback = storable_text(str(answer.get("feedback", "")), ARTIFACT_CHARS)
    fault = (
        objective.score_fault(answer["score"]) if answer["kind"] == "certified" else answer["kind"]
    )
    if fault:
        note = "not verified: " + (feedback or fault.replace("_", " "))
        return replace(
            verdict, strict=False, feedback="\n".join(filter(None, (verdict.feedback, note)))
        )
    texts = {
        "certificate": storable_text(answer["exact"], ARTIFACT_CHARS),
        "repaired": storable_text(answer["repaired"], ARTIFACT_CHARS),
    }
    return replace(
        verdict,
        certified=float(answer["score"]),
        strict=answer["feasible"],
        feedback="\n".join(filter(None, (verdict.feedback, feedback))),
        artifacts={**verdict.artifacts, **{name: text for name, text in texts.items() if text}},
    )


def of_report(payload: bytes, objective: Objective) -> EvaluationOutcome:
    """Outcome of a legacy evaluator's report from inside the jail.

    Form and bounds are checked; the numbers are taken as reported.
    """
    try:
        report = wire.decode(payload)
        metrics = {
            str(k): float(v)
            for k, v in report["metrics"].items()
            if type(v) in (int, float) and math.isfinite(v)
        }
        artifacts = {str(k): str(v) for k, v in report["artifacts"].items()}
        answer = {"score": report["score"], "metrics": metrics, "artifacts": artifacts}
        answer["texts"] = dict(report.get("texts", {}))
        feedback = storable_text(str(report["feedback"]), ARTIFACT_CHARS)
    except (wire.WireError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return EvaluationOutcome(
            Status.REJECTED, "bad_frame", feedback="the evaluator's report is not readable"
        )
    if answer["score"] is None:
        none = (
            "the evaluator returned None as the score: it does not accept this candidate, or its "
            "return statement is missing"
        )
        feedback = "\n".join(filter(None, (none, feedback)))
        return EvaluationOutcome(
            Status.INVALID,
            "score_missing",
            feedback=feedback,
            artifacts=_clean_artifacts(artifacts),
        )
    return with_traces(scored_outcome(answer, objective, feedback), report)


def _clean_artifacts(artifacts: dict[str, str]) -> dict[str, str]:
    if not artifacts:
        return {}
    kept = list(pictures.check_pictures(artifacts).items())[:32]
    return {
        storable_text(name, 100): text
        if pictures.is_picture(text)
        else storable_text(text, ARTIFACT_CHARS)
        for name, text in kept
    }
