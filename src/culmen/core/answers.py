"""Answers in which evaluators report their own failure: their number is no score.

An evaluator that catches every error returns a number all the same: 0 for a program that raised,
and 0 for a judge that did not run. `read_refusal` finds the words that report it, `settle_answer`
turns such an answer into a failure if its number is the worst one known. Every form of evaluator is
read by these rules:

- A *whole* answer failed by a `status` with a word of failure, a `validity` of 0 or -1, or a text
  called `error`, `exception` or `traceback`: among its values, its artifacts, or one level below.
- Other texts count if they report a judge, a package or a program as *absent*, or ask for one to be
  started or installed; those called `stderr` also if they hold an error. A `state`, an `outcome`, a
  `result` or a `verdict` that does so marks the whole answer.
- Errors of several parts of an answer are those of cases, and `errors` are a list of them: they
  explain a score and take nothing from it. So does the error of one case of a data set, unless it
  reports something absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import (
    DIFFERENCE,
    EVALUATOR_LOG,
    LOG,
    OUTPUT,
    REFUSED,
    TRAJECTORY,
    Observation,
    Refusal,
    Status,
)
from culmen.core.foreign import lazy_pattern
from culmen.core.task import Objective

_ERRORS = (
    *("error", "error_message", "exception", "traceback", "failure", "failure_reason"),
    *("failure_stage", "err"),
)
_STATES = ("state", "outcome", "result", "verdict")
_VALIDITY = ("validity", "valid", "is_valid", "can_run", "runs_successfully")
_STDERR = ("stderr", "std_err")
_UNREAD = (LOG, EVALUATOR_LOG, DIFFERENCE, OUTPUT, TRAJECTORY, "certificate", "conversation")
_NOTHING = lazy_pattern(r"\W*(?:none|null|nan|false|no|no errors?|n/?a|ok|0|0\.0|)\W*", re.I)
_SUCCESS = lazy_pattern(
    r"\W*(?:success|ok\b|pass|done|complete|valid|solved|optimal|accept|feasib)", re.I
)
_FAILED_STATUS = lazy_pattern(
    r"err|fail|invalid|infeasib|missing|crash|abort|reject|refus|exception|time_?out|timed.?out"
    r"|unavail|unreach|unsupported|unknown_judge|skipp|killed|panic|broken|oom|denied|forbidden"
    r"|\bno\b|\bnot\b|\bwithout\b|\boffline\b|\bdown\b|disabled|inconclusive"
    r"|\bun(?:scored|graded|evaluated)\b|\bset ?up\b"
    r"|\b(?:needs?|require[ds]?)\b(?! (?:\w+ )?(?:improve|improving|work\b|tuning|optimi))",
    re.I,
)
_FAILED_TEXT = lazy_pattern(
    r"Traceback \(most recent call last\)|\b\w*(?:Error|Exception)\b\s*:|\b(?:fatal )?error\s*:"
    r"|\bfatal\s*:|Segmentation fault|panicked at",
)
_CANNOT = r"(?:could not|cannot|can not|ca not|failed to|unable to)"  # "ca not": can't, as read
_GONE = (
    r"(?:missing|absent|unavailable|unreachable|offline|down|(?:(?:is|was|were|did|does|has) )?not "
    r"(?:be )?(?:installed|available|found|reachable|running|present|started|configured|up|ready"
    rf"|respond(?:ing)?|answer|start)|{_CANNOT} be (?:found|reached|started|loaded|imported))"
)
_HOST = r"(?:server|service|process|container|backend|daemon)"
_JUDGE = (
    rf"(?:(?:judge|grader|simulator|scorer|verifier|referee)(?:[ _-]{_HOST})?"
    rf"|(?:judging|grading|scoring|evaluat(?:ion|or))[ _-]{_HOST})"
)
_ADDRESS = r"\w+_(?:url|host|endpoint|api_key|token)"
_TOOL = (
    r"(?:compiler|toolchain|solver|docker|cuda|gpus?|package|library|dependenc(?:y|ies)|binary"
    r"|executable|libraries|packages)"
)
# said by any text of an answer; the two below only where a mark says that the answer failed
_NO_JUDGE = (
    rf"\b{_JUDGE}\b(?: (?:is|was))? {_GONE}|\b(?:missing|no)[ _]{_JUDGE}\b"
    rf"|\b(?:connect to|reach|contact|refused by) (?:the |a )?{_JUDGE}\b|\beconnrefused\b"
    rf"|\b(?:start|launch|bring up) (?:the |a |an |your )?(?:\w+ )?{_JUDGE}\b"
    rf"|\b(?:start|launch|run)\b[^.\n]{{0,40}}\b{_JUDGE}\b[^.\n]{{0,40}}\b(?:first|before)\b"
    rf"|\bset {_ADDRESS}\b|\b{_ADDRESS} (?:(?:is|was) )?(?:not set|unset|missing|empty)\b"
    r"|max retries exceeded|could not resolve host|name or service not known"
    r"|temporary failure in name resolution"
)
_NO_PACKAGE = (
    r"No module named|\bnot installed\b|\bcommand not found\b|\bexecutable file not found"
    r"|: \w[\w+.-]*: not found|No such file or directory: ['\"][\w+-]+['\"]"
    rf"|\b{_TOOL}\b(?: ['\"`]?[\w+.-]+['\"`]?)?(?: (?:is|are|was|were))? {_GONE}"
    r"|\b(?:pip3?|uv|conda|npm|cargo|apt|apt-get|brew) (?:pip |-\w+ )*(?:install|add)\b"
    rf"|\b{_CANNOT} be imported\b|\brequires? [^.\n]{{0,40}}\bon (?:the |your )?\$?PATH\b"
    r"|\bmissing (?:dependency|dependencies|packages?)\b|\bno (?:cuda|gpu|compiler)\b"
)
_NO_SERVICE = (
    r"connection (?:was )?(?:refused|reset|aborted|timed out)|\bno route to host"
    rf"|{_CANNOT} (?:connect|reach)|status code 50[234]"
    rf"|\b(?:needs?|requires?) (?:\w+ )?{_JUDGE}\b|\b{_JUDGE} required\b"
    rf"|\b(?:server|service|daemon|endpoint|api|host|database)\b[^.\n]{{0,80}} {_GONE}"
    r"|\b(?:missing|no|without)[ _](?:server|service|daemon|endpoint|simulator)\b"
)
_NO_OTHER = (
    r"\bImportError\b|\bcannot import name\b|\bnot found in PATH\b|\bexternal[ _]missing"
    rf"|\b(?:missing|no|without)[ _](?:\w+[ _])?{_TOOL}\b"
    rf"|\b(?:module|licen[cs]e|api[ _]key|credentials|driver|environment|weights)\b {_GONE}"
    r"|\bmissing[ _](?:module|licen[cs]e|api[ _]key|credentials|environment|weights)\b"
)
_SHORT_NOT = lazy_pattern(r"n['\u2019]t\b")
_MODULE = lazy_pattern(r"No module named ['\"]?([\w]+)")


def is_mark(name: str) -> bool:
    """True for names of texts by which a whole answer may say that it failed."""
    key = _last_name(name)
    return key in (*_ERRORS, "status") or key.endswith("_status")


def read_refusal(
    metrics: Mapping[str, float], texts: Mapping[str, str], feedback: str = ""
) -> Refusal | None:
    """The words in which an answer reports its own failure; None if it does not.

    `texts` are those of `jail.plain.answer_texts`, and the artifacts; `feedback` has no name.
    """
    marks = dict(_marks(metrics, texts))
    others = {**{name: text for name, text in texts.items() if name not in marks}, "": feedback}
    readable = {name: text for name, text in others.items() if name not in _UNREAD}
    said = [
        text
        for name, text in readable.items()
        if _absence(text, bool(marks))
        or (_last_name(name) in _STDERR and _FAILED_TEXT.search(text))
    ]
    if not marks and not said:
        return None
    whole = "\n".join((*marks.values(), *said))
    absent = _absence(whole.replace("_", " "), True) or _absence(whole, True)
    if not said:
        said = [text for name, text in readable.items() if "feedback" in name or "message" in name]
    named = [f"{name}: {_telling_line(text)}" for name, text in marks.items()]
    words = "; ".join(dict.fromkeys((*named, *map(_telling_line, said[:1]))))
    return Refusal(words[:600], whole=bool(marks), absent=absent)


def _marks(metrics: Mapping[str, float], texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and texts by which the whole answer failed, the most telling first."""
    errors = [
        (name, text)
        for name, text in texts.items()
        if _last_name(name) in _ERRORS and not _NOTHING.fullmatch(text)
    ]
    own = [each for each in errors if "." not in each[0]]
    below = [each for each in errors if "." in each[0]]
    yield from own
    if len(below) == 1 and not re.search(r"\d", below[0][0]):
        yield from below
    yield from ((name, text) for name, text in texts.items() if _is_failure(name, text))
    for name, value in metrics.items():
        if name in _VALIDITY and value in (0, -1):  # as SkyDiscover reads them
            yield name, f"{value:g}"


def _is_failure(name: str, text: str) -> bool:
    """A text by whose name and words the whole answer failed."""
    key, words = _last_name(name), text.replace("_", " ")
    if key == "status" or key.endswith("_status"):
        return bool(_FAILED_STATUS.search(words)) and not _SUCCESS.match(words)
    if key in _STATES or key.endswith("_state"):
        return bool(_absence(words, True))
    return key in _VALIDITY and text == "False"


def _last_name(name: str) -> str:
    return name.rpartition(".")[2].strip().lower()


def _absence(text: str, is_marked: bool) -> str:
    """`service` or `package` if a text reports that one is absent, else ""."""
    if not text:  # as most: the patterns are compiled by the first one that is not
        return ""
    text = _SHORT_NOT.sub(" not", text)

    def says(*patterns: str) -> bool:
        return any(re.search(each, text, re.I) for each in patterns[: 1 + is_marked])

    if says(_NO_JUDGE, _NO_SERVICE):
        return "service"
    return "package" if says(_NO_PACKAGE, _NO_OTHER) else ""


def _telling_line(text: str) -> str:
    """The last line of a traceback, the first of another text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[-1] if any(line.startswith("Traceback (") for line in lines) else lines[0]


def is_no_score(
    seen: Observation,
    objective: Objective,
    lowest: float | None = None,
    failing: float | None = None,
) -> bool:
    """True if an answer reports its own failure and its number is the worst known.

    `lowest` is the lowest reward of answers that do not say so (None: none yet), `failing` that of
    a program that is known to fail. A number above 0 that is maximised is credit for a part,
    unless a failing program gets it or no lower one is allowed; an exact 0 is the usual number of
    a whole answer that failed, even if it is a good one.
    """
    refusal, score = seen.refusal, seen.score
    if refusal is None or score is None or refusal.raised:
        return False
    if seen.case and not (refusal.whole and refusal.absent):
        return False
    reward, floor = objective.reward(score), objective.floor
    if any(level is not None and reward <= level for level in (floor, failing)):
        return True
    is_credit = objective.direction == "max" and score > 0
    is_worst = (lowest is None or reward <= lowest) and not is_credit
    return is_worst or (refusal.whole and score == 0)


def settle_answer(
    candidate: Candidate,
    seen: Observation,
    objective: Objective,
    lowest: float | None = None,
    failing: float | None = None,
) -> Observation:
    """The observation, as a failure if it `is_no_score`.

    The evaluator's words are the last line of the feedback. An absent service or package is not the
    candidate's fault, except a package that its own text names.
    """
    refusal = seen.refusal
    if refusal is None or not is_no_score(seen, objective, lowest, failing):
        return seen
    module = _MODULE.search(refusal.words)
    is_named = module is not None and any(
        re.search(rf"\bimport\b.*\b{module[1]}\b|\bfrom {module[1]}\b", text)
        for text in candidate.parts.values()
    )
    culprit = {"service": "provider", "package": "scorer"}.get(refusal.absent, "candidate")
    return msgspec.structs.replace(
        seen,
        status=Status.INVALID,
        score=None,
        reason=REFUSED,
        culprit="candidate" if is_named else culprit,
        metrics={**seen.metrics, "claimed_score": float(seen.score or 0.0)},
        feedback="\n".join([*_other_lines(seen.feedback, refusal.words), refusal.words]),
    )


def refusal_remedy(refused: Observation) -> str:
    """The fix, in words, for an answer that reports its own failure."""
    remedies = {
        "provider": "start what the evaluator asks for: no program can score before",
        "scorer": "install what the evaluator says is missing: no program can score before",
    }
    usual = "correct the initial program, or the evaluator if the program is right"
    return remedies.get(refused.culprit, usual)


def refusal_words(refused: Observation) -> str:
    """The evaluator's own words for an answer that reports its own failure, in one line."""
    return "; ".join(line.strip() for line in refused.feedback.splitlines() if line.strip())[:600]


def _other_lines(feedback: str, words: str) -> list[str]:
    """Lines of a feedback that the words do not hold already."""
    lines = [line.rstrip() for line in feedback.strip().splitlines()]
    return [line for line in lines if line.strip() not in words]
