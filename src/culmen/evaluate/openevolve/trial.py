"""Whether an evaluator of the form legacy works with the candidate in another process: its seed is scored both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Status
from culmen.core.trust import Scoring
from culmen.evaluate.outcome import Verdict

_SEEDS = 3  # seeds tried at most, until one scores
_REPEATS = 3  # looks at evaluators whose score changes
_EXACT, _NOISY, _SPREADS = 1e-9, 1e-2, 4.0

Proxied = Callable[[Candidate, int], Awaitable[tuple[Verdict, dict[str, Any]]]]
Plain = Callable[[Candidate, int], Awaitable[Verdict]]


async def settle(seeds: Sequence[Candidate], accept: Sequence[str], proxied: Proxied, plain: Plain) -> Scoring:
    """`proxied` if that gives the seed the same score as the shared process does, else `self-reported` and why.

    `accept` is what the task says may cross; what the seed's evaluation needs is added. `proxied` evaluates with
    everything allowed and tells what crossed.
    """
    crossed = list(accept)
    for seed in seeds[:_SEEDS]:
        verdict, account = await proxied(seed, 0)
        crossed += [name for name in account.get("used", ()) if name not in crossed]
        why = _objection(account)
        if not why and verdict.status is Status.OK:
            why = await _difference(seed, verdict, proxied, plain)
            return _scoring(why, crossed)
        if (await plain(seed, 0)).status is Status.OK:
            return _scoring(
                why or f"its seed scores in the same process and not behind a proxy: {_said(verdict)}", crossed
            )
    return Scoring("proxied", accept=tuple(crossed))


def _scoring(why: str, crossed: list[str]) -> Scoring:
    return Scoring("self-reported", why) if why else Scoring("proxied", accept=tuple(crossed))


def _objection(account: dict[str, Any]) -> str:
    """Why this evaluator cannot do with a proxy, whatever it scored; "" if nothing speaks against it."""
    if account.get("reads"):
        return "the evaluator reads the program's text"
    if account and not account.get("imports"):
        return "the evaluator does not import the program"
    return str(next(iter(account.get("unsupported", ())), ""))


async def _difference(seed: Candidate, first: Verdict, proxied: Proxied, plain: Plain) -> str:
    """How the two ways differ, "" if they do not; scores that change anyhow are compared as such."""
    there, here = [first], [await plain(seed, 0)]
    if here[0].status is not Status.OK:
        return ""  # then the proxy does no harm
    for number in range(1, _REPEATS):
        if alike(there, here):
            return ""
        there.append((await proxied(seed, number))[0])
        here.append(await plain(seed, number))
    if alike(there, here):
        return ""
    return f"its seed scores {_score(there[0])} behind a proxy and {_score(here[0])} in the same process"


def alike(there: Sequence[Verdict], here: Sequence[Verdict]) -> bool:
    """Whether both ways give the same kind of result, with scores no further apart than those of one way are."""
    if not all(v.status is Status.OK for v in (*there, *here)):
        return False
    if _shape(there[0]) != _shape(here[0]):
        return False
    scores, own = [v.score or 0.0 for v in there], [v.score or 0.0 for v in here]
    low, high = min(own), max(own)
    size = max(map(abs, (*scores, *own)))
    slack = _EXACT * size if low == high else _NOISY * size + _SPREADS * (high - low)
    return low - slack <= min(scores) and max(scores) <= high + slack


def _shape(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.metrics.keys(), bool(verdict.feedback), verdict.artifacts.keys()


def _score(verdict: Verdict) -> str:
    return f"{verdict.score:.6g}" if verdict.score is not None else _said(verdict)


def _said(verdict: Verdict) -> str:
    last = [line.strip() for line in verdict.feedback.splitlines() if line.strip()]
    return " ".join([verdict.reason or verdict.status.value, *(last[-1:] and [f"({last[-1][:200]})"])])
