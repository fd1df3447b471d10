"""Texts for agents: task, first message, leaderboard; their templates lie in `templates/`."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from culmen.core import wording
from culmen.core.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from culmen.extensions.agents.team.history import History

BOARD = 20  # candidates on the leaderboard
PERSON = "person"  # author of candidates handed in by a person, and prefix of their tickets
SEARCH = "search"  # the same for candidates of another search in the same run

_UNITS = {
    "experiments": "experiments",
    "seconds": "seconds",
    "tokens": "tokens",
    "dollars": "dollars",
    "calls": "model calls",
}
_CLIENT = """\
Candidates are evaluated by culmen, never by you. Ask for it in this folder:

    python run_experiments.py FILE... --note "what you try and why" --parents ID,ID

Files named together are evaluated side by side. A JSON row comes back for each. `--best`, \
`--history --top 5`,
`--history --filter "score>2.5"`, `--history --diff ID ID` and `--history --show ID` ask about \
everything measured so
far; `--report TEXT` tells culmen something, `--finish TEXT` ends your work. `--help` says more."""


class Wording(NamedTuple):
    """Lines of TASK.md on the threshold (`goal`) and on the end of the work (`end`).

    `goal` has the slots kind, better and score; `end` is what stands before the request to write
    reflections, with the slot reached ("" without a threshold).
    """

    goal: str
    reached: str
    end: str


WORDINGS = {
    "stop_when_reached": Wording(
        "Stop as soon as a candidate has a {kind} of {better} {score}.",
        "the score above is reached, when ",
        "End your work when {reached}your limits are used, or when you have no idea left that is "
        "worth an experiment: nobody expects you to go on at all costs.",
    ),
    "go_on_until_reached": Wording(
        "Your task is a candidate with a {kind} of {better} {score}.",
        " until the score above is reached",
        "Keep going{reached}. Do not end your work before, whatever you have tried: you must find "
        "a better candidate.",
    ),
}
"""Wordings of TASK.md by name: ours, and that of the paper, which its authors suspect of causing
the gaming. All else is the same."""


def agent_tag(agent: int) -> str:
    """An agent's name in paths: a00, a01, ..."""
    return f"a{agent:02d}"


def task_text(
    task: Task,
    agent: int,
    agents: int,
    parallel: int,
    limits: Mapping[str, float],
    threshold: float | None,
    how: str = "",
    wording_name: str = "stop_when_reached",
) -> str:
    """TASK.md for one of `agents`, of which `parallel` work at once.

    `how` explains how to request experiments; "" for the client in the work tree. `wording_name`
    is one of `WORDINGS`.
    """
    return fill_template(
        "task",
        goal=task.goal.strip() or "Find the best candidate.",
        direction=wording.describe_direction(replace(task.objective, target=None)),
        threshold=_threshold_text(threshold, task, WORDINGS[wording_name]),
        tag=agent_tag(agent),
        number=str(agent + 1),
        agents=str(agents),
        company=_company_text(agents, parallel),
        contract="" if task.seeds else wording.describe_interface(task),
        rules="\n".join(
            wording.rules_section(task, next(iter(task.initial_candidates()), None)).splitlines()[
                2:
            ]
        ),
        first=_initial_program_text(task),
        experiments=how or _CLIENT,
        limits=_limits_text(limits),
        certified=_verifier_text(task),
        evaluator=_evaluator_text(task),
        stop=_stop_text(threshold, WORDINGS[wording_name]),
    )


def leaderboard_text(history: History) -> str:
    """The `BOARD` best candidates as a table, by certified score if the task has a verifier."""
    lines = ["# Leaderboard", ""]
    lines.append(
        f"{len(history.rows)} experiments so far. "
        + ("Certified scores count." if history.exact else "")
    )
    lines += [
        "",
        "| | candidate | certified | score | agent | file | note |",
        "|---|---|---|---|---|---|---|",
    ]
    for rank, row in enumerate(history.top_rows(BOARD), 1):
        certified = "" if row.certified is None else repr(row.certified)
        score = "" if row.score is None else repr(row.score)
        author = agent_tag(row.agent) if row.agent >= 0 else row.ticket.partition("-")[0]
        cells = (
            str(rank),
            row.candidate,
            certified,
            score,
            author,
            row.path,
            _table_cell(row.note),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def fill_template(name: str, **slots: str) -> str:
    """A template with its slots filled; a line that holds only an empty slot is removed."""
    text = _read_template(name)
    for slot, value in slots.items():
        if not value.strip():
            text = re.sub(rf"^\${slot}\n+", "", text, flags=re.MULTILINE)
    return Template(text).substitute(slots)


@cache
def _read_template(name: str) -> str:
    return (
        resources.files("culmen.extensions.agents.team")
        .joinpath("templates", f"{name}.md")
        .read_text(encoding="utf-8")
    )


def _company_text(agents: int, parallel: int) -> str:
    if agents == 1:
        return "No other agent works on this."
    if parallel > 1:
        return (
            f"Up to {parallel} agents work at once, each in a copy of its own that is merged when "
            "it ends."
        )
    return "The others work before you and after you."


def _threshold_text(threshold: float | None, task: Task, words: Wording) -> str:
    if threshold is None:
        return ""
    kind = "certified score" if task.evaluator.verifier else "score"
    better = "at least" if task.objective.direction == "max" else "at most"
    return words.goal.format(kind=kind, better=better, score=wording.format_number(threshold))


def _verifier_text(task: Task) -> str:
    if not task.evaluator.verifier:
        return ""
    return (
        "An exact verifier with zero tolerance checks what would lead, and repairs what is "
        "slightly wrong before it "
        "counts. Only this certified score counts for the leaderboard and for stopping.\n"
    )


def _evaluator_text(task: Task) -> str:
    """The part of the evaluator that the task lets agents read."""
    if not task.evaluator.shown:
        return ""
    return (
        "# The evaluator\n\nThis is what may be known of "
        f"it:\n\n```python\n{task.evaluator.shown.strip()}\n```\n"
    )


def _initial_program_text(task: Task) -> str:
    if task.seeds:
        names = ", ".join(f"`{name}`" for name in task.seeds[0])
        form = ""
        if task.surface.skills:
            form = f"A candidate is a folder of skills; the first has {names}."
        elif len(task.seeds[0]) > 1:
            form = (
                f"A candidate is a folder with the parts {names}; parts you leave out are taken "
                "as they were at first."
            )
        return (
            f"{form}\nThe programs that the search began with are in the history as agent -1."
        ).strip()
    return f"There is no first program: write one. {wording.required_definitions(task)}".strip()


def _limits_text(limits: Mapping[str, float]) -> str:
    named = [f"{value:,.10g} {_UNITS[name]}" for name, value in limits.items() if name in _UNITS]
    return (
        f"You may use at most {', '.join(named)}. What you leave is there for the agents after you."
        if named
        else ""
    )


def _stop_text(threshold: float | None, words: Wording) -> str:
    end = words.end.format(reached="" if threshold is None else words.reached)
    return (
        f"{end} Before you end, add to `reflections.md` what you tried, what helped "
        "and what did not, and what you would try next."
    )


def _table_cell(text: str) -> str:
    return wording.clip_middle(" ".join(text.replace("|", "/").split()), 80).replace("\n", " ")
