"""One search as a person sees it: what it may cost, how it goes, how it ended, what to type next."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.cli import preflight, runs
from culmen.cli.screen import Answer, Screen
from culmen.cli.strategy import strategy_name
from culmen.core.errors import UserError
from culmen.core.evaluation import MEANINGS
from culmen.observe.figures import count, dollars, duration, joined, number, plus_minus
from culmen.run import fork
from culmen.store import views
from culmen.store.views import BestCandidate, RunStatus

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.observe.trackers import Tracking
    from culmen.observe.watch import Display, Watch
    from culmen.study import Study

INTERRUPTED, FINDINGS = 130, 1


def trackers(wanted: Sequence[str] | None) -> Sequence[Tracking]:
    """The observers behind `--track`; raises `UserError` for one that there is not."""
    if not wanted:
        return ()
    from culmen.observe import trackers as known

    return known.trackers(wanted)


def search(
    screen: Screen,
    make: Callable[[Watch], Study],
    quiet: bool,
    notes: Sequence[str] = (),
    tracks: Sequence[Tracking] = (),
) -> Answer:
    """Run the study that `make` makes to its end or an interrupt, showing and tracking how it goes."""
    from culmen.observe.watch import Watch

    logging.getLogger("asyncio").setLevel(logging.ERROR)  # its warnings are about its own book-keeping
    watch = Watch(display(screen, quiet))
    study = make(watch)
    if not screen.as_json and not quiet:
        announce(screen, study, notes)
    try:
        with watch.of(study.path), contextlib.ExitStack() as stack:
            for each in tracks:
                stack.enter_context(each.of(study.path, watch.told))
            study.run()
    except UserError as error:
        run = runs.shown(study.path)
        error.fix = re.sub(r"(culmen \w+) RUN\b", rf"\g<1> {run}", error.fix) or f"culmen resume {run}"
        raise
    except KeyboardInterrupt:  # before the search had begun, or while it was taken down
        pass
    now = views.status(study.path)
    data = {**document(now, study.path), "at_most": preflight.data(study.meta)}
    return Answer(data, lambda screen: end(screen, now, study.path), code(now))


def beforehand(task: Task) -> list[str]:
    """What happens before the first evaluation that counts, where a slow evaluator would keep people waiting."""
    if task.evaluator.form != "legacy" or task.evaluator.proxy == "never" or not task.seeds:
        return []
    return ["the seed is scored with and without a proxy first, to see how far scores can be trusted"]


def over(screen: Screen, path: Path) -> Answer | None:
    """The answer to who resumes a run that has nothing left to do: how it ended; None if it has."""
    now = views.status(path)
    if now.state != "finished":
        return None
    if not screen.as_json:
        screen.note("this run is finished: there is nothing left to do in it")
    data = {**document(now, path), "at_most": preflight.data(views.meta(path))}
    return Answer(data, lambda screen: end(screen, now, path), code(now))


def unchangeable(path: Path, budget: str) -> UserError:
    """The answer to who would resume with another budget."""
    wanted = budget if "=+" in budget else budget.replace("=", "=+")
    return UserError(
        "a run keeps the budget it was made with: to resume is to replay it",
        where=f"--budget {budget}",
        fix=f"culmen fork {runs.shown(path)} --budget {wanted}",
    )


def code(now: RunStatus) -> int:
    """Exit code for how a run ended."""
    if now.state == "finished":
        return FINDINGS if now.reason == "integrity" else 0
    return INTERRUPTED


def announce(screen: Screen, study: Study, notes: Sequence[str]) -> None:
    """What is about to happen, to standard error."""
    screen.pairs(*preflight.lines(study.meta), ("run", runs.place(study.path)), err=True)
    for note in notes:
        screen.note(note)


def display(screen: Screen, quiet: bool) -> Display:
    from culmen.observe.displays import Plain, Silent, Terminal

    if quiet or screen.as_json:
        return Silent(None if screen.as_json else sys.stderr)
    return Terminal(screen.err) if screen.live else Plain()


def document(now: RunStatus, path: Path) -> dict[str, Any]:
    """The status, with what can be done next. The key `error` is kept for answers that are errors."""
    plain = msgspec.to_builtins(now)
    message = plain.pop("error", "")
    strategy = strategy_name(now.strategy)
    return {
        **plain,
        "strategy": strategy,
        "message": message,
        "next": [command for command, _ in next_steps(now, path)],
    }


def end(screen: Screen, now: RunStatus, path: Path) -> None:
    """How the run ended, for people."""
    screen.line()
    screen.heading(now.state, ended(now))
    screen.pairs(
        ("best", best_line(now.best)),
        ("", "" if now.best is None else judged(now.best)),
        ("trust", trusted(now.best)),
        ("", now.scoring.why),
        ("certified", vouched(now.best)),
        ("findings", suspected(now)),
        ("used", used(now)),
        ("isolation", now.isolation),
        ("run", runs.place(path)),
    )
    screen.next_steps(*next_steps(now, path))


_REASONS = {
    "evaluations": "the budget of evaluations is spent",
    "calls": "the budget of calls is spent",
    "tokens": "the budget of tokens is spent",
    "dollars": "the budget of dollars is spent",
    "seconds": "the budget of seconds is spent",
    "budget": "the budget is spent",
    "user": "a person stopped it",
    "integrity": "a candidate showed a grave sign of gaming (--integrity stop)",
    "threshold": "the threshold is reached",
    "target": "the score to stop at is reached (--stop-at)",
    "plateau": "too many agents in a row without a gain",
    "agents": "all agents have had their turn",
    "unavailable": "no agent could be started",
    "strategy_done": "the strategy is done",
    "strategy_waits_for_nothing": "the strategy asks for nothing more",
}


def ended(now: RunStatus) -> str:
    """Why it ended, in words."""
    if now.state == "finished":
        return _REASONS.get(now.reason) or now.reason.replace("_", " ")
    return str(now.error) or "nothing is lost"


def best_line(best: BestCandidate | None) -> str:
    """`2.51234 ± 0.0012  0a1b2c3d4e5f`."""
    return "nothing has scored" if best is None else f"{number(best.score)}{plus_minus(best.se)}  {best.id}"


def judged(best: BestCandidate) -> str:
    """What the score was made from."""
    looks = count(best.count, "evaluation")
    if not best.confirmed:
        return f"mean of {looks} of the search, not confirmed by a fresh one"
    return f"mean of {looks} made after it was chosen"


def trusted(best: BestCandidate | None) -> str:
    """`verified: ...`, the level of the score and what it means; "" while nothing has scored."""
    return "" if best is None else f"{best.trust}: {MEANINGS[best.trust]}"


def vouched(best: BestCandidate | None) -> str:
    """What the task's exact verifier says, in all digits; "" if it has none or was not asked yet."""
    if best is None or best.strict is None:
        return ""
    if best.certified is None:
        return "no: the exact verifier does not accept it (show it for the reason)"
    passed = "yes, exactly and as given" if best.strict else "not as given; repaired, strictly feasible"
    return f"{passed}: {best.certified!r}"


def suspected(now: RunStatus) -> str:
    """How many candidates showed a grave sign, and what was best before the first did; "" if none."""
    if not now.findings:
        return ""
    before = now.best_before_first_finding
    rest = (
        "nothing had scored before" if before is None else f"best before the first: {number(before.value)}  {before.id}"
    )
    return f"{count(now.findings, 'candidate')} with a grave sign ({now.integrity}); {rest}"


def used(now: RunStatus) -> str:
    """Evaluations, calls, money and time."""
    usage = now.usage
    calls = tokens = money = ""
    if usage.calls:
        calls = count(usage.calls, "call")
        tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        money = dollars(usage.dollars) + (
            f" and {count(usage.unpriced, 'call')} of unknown price" * bool(usage.unpriced)
        )
    return joined([count(now.evaluations, "evaluation"), calls, tokens, money, duration(now.elapsed_seconds)])


def next_steps(now: RunStatus, path: Path) -> list[tuple[str, str]]:
    """Commands worth typing now."""
    run = runs.shown(path)
    steps = [] if now.state in ("finished", "running") else [(f"culmen resume {run}", "go on")]
    if now.findings:
        steps.append((f"culmen audit {run}", "what looks like gaming"))
    if now.reason == "integrity":
        steps.append((f"culmen fork {run} --integrity reject", "go on without such candidates"))
    if now.best is not None:
        steps += [(f"culmen best {run}", "print the best"), (f"culmen diff {run} seed best", "what changed")]
    if now.state == "finished" and (more := fork.again(now.budget, now.reason)):
        steps.append((f"culmen fork {run} --budget {more}", "go on with more"))
    return steps or [(f"culmen log {run}", "what happened")]
