"""The page docs/strategies/pacevolve_idea.md: one idea of PACEvolve, with a run's prompts.

The idea is followed from generation to lesson. `python -m tests.docs.idea --write` makes the page
anew; a test holds that it equals the output of a run today.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.store import views
from culmen.strategies.pacevolve.advisor import Advising, Upkeep
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.scripted import ScriptedModel
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "strategies" / "pacevolve_idea.md"
PROGRAM = '''def order(sizes):
    """In which order to pack boxes into bins of size 10, first bin that fits."""
    return list(sizes)
'''
BETTER = PROGRAM.replace("list(sizes)", "sorted(sizes, reverse=True)")
SIZES = (3, 3, 3, 2, 7, 7, 7, 8)
FIRST = "Boxes that are hard to place should come first: sort by size, the largest first."
HYPOTHESES = (
    FIRST,
    "Alternate large and small boxes, so that every bin gets one of each.",
    "Put the boxes first whose size appears most often.",
)
EXPERIMENT = "Return the sizes sorted in descending order, without changing anything else."
LESSON = (
    "Packing the largest boxes first filled the bins better; the rest of the order matters little."
)


def bins(candidate: str) -> tuple[float, str]:
    """Share of the space used, and in words how many bins it took."""
    space: dict[str, Any] = {}
    exec(candidate, space)
    open_bins: list[int] = []
    for size in space["order"](SIZES):
        fitting = next((place for place, used in enumerate(open_bins) if used + size <= 10), None)
        if fitting is None:
            open_bins.append(size)
        else:
            open_bins[fitting] += size
    return sum(SIZES) / (10 * len(open_bins)), f"{len(open_bins)} bins"


class Script:
    """An advisor and an implementer with fixed replies; every prompt is kept with its answer."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []  # step, prompt, reply

    def __call__(self, call: Any) -> str:
        step, reply = self._answer(call.prompt)
        self.said.append((step, call.prompt, reply))
        return reply

    def _answer(self, prompt: str) -> tuple[str, str]:
        if '{"hypotheses"' in prompt:
            return "generate", json.dumps(
                {"hypotheses": [{"hypothesis": text} for text in HYPOTHESES]}
            )
        if '"exists"' in prompt:
            asked = prompt.partition("# A new hypothesis")[2]
            return "classify", json.dumps(
                {"exists": False, "description": next(t for t in HYPOTHESES if t in asked)}
            )
        if '"lesson"' in prompt:
            return "result", json.dumps({"lesson": LESSON})
        if '"drop"' in prompt:
            return "prune", json.dumps({"drop": []})
        if '"experiment"' in prompt:
            return "select", json.dumps({"idea": 1, "experiment": EXPERIMENT})
        return "implement", f"```python\n{BETTER}```"


def life() -> tuple[list[tuple[str, str, str]], dict[str, Any]]:
    """Prompts and answers up to the second decision, and the note of the first experiment."""
    script = Script()
    nothing_cached = pytest.MonkeyPatch.context()
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder, nothing_cached as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        study = culmen.optimize(
            PROGRAM,
            evaluator=bins,
            strategy=Pacevolve(islands=1, advising=Advising(), upkeep=Upkeep(tries=3)),
            model=ScriptedModel(script),
            goal="Use as few bins as possible.",
            budget=culmen.Budget(evaluations=8),
            deterministic=True,
            random_seed=0,
            run_dir=Path(folder) / "run",
            progress=False,
        )
        note = views.note_events(study.path, "experiment")[0].entry.body
    second = [place for place, (step, _, _) in enumerate(script.said) if step == "generate"][1]
    return script.said[: second + 1], note


STEPS = {
    "generate": (
        "Generate",
        "The advisor is asked for hypotheses. It sees the goal, the rules and the program chosen as parent.",
    ),
    "classify": (
        "Classify",
        "Each hypothesis is put under an idea that is known, or becomes a new one. The first of three such requests; "
        "the other two differ in the hypothesis, and show the ideas that have come meanwhile.",
    ),
    "select": (
        "Select",
        "One experiment is chosen among them, in words that a programmer can follow.",
    ),
    "implement": (
        "Implement",
        "The stronger model writes it. It sees none of the ideas: only the program, its result and the experiment. The "
        "rest of its prompt is that of every proposer.",
    ),
    "result": (
        "Learn",
        "Once it is evaluated, the advisor says in one sentence what is to be learned.",
    ),
}


OWN = {"implement": ("# Latest result", "# What to try")}
"""Sections shown of a step's prompt, by how they begin; all of other steps'."""


def page() -> str:
    """The page, from a run made now."""
    said, note = life()
    first = {step: (prompt, reply) for step, prompt, reply in reversed(said[:-1])}
    parts = [
        HEAD.format(
            system=_block(_system(first["generate"][0])),
            writer=_block(_system(first["implement"][0])),
        )
    ]
    shown: set[str] = set()
    for number, (step, (title, sentence)) in enumerate(STEPS.items(), 1):
        prompt, reply = first[step]
        wanted = OWN.get(step, ("# ",))
        new = "\n\n".join(
            each
            for each in _sections(_user(prompt))
            if each.startswith(wanted) and each not in shown
        )
        shown.update(_sections(_user(prompt)))
        parts.append(
            f"## {number}. {title}\n\n{sentence}\n\n{_block(new)}\n\nThe reply:\n\n{_block(reply)}"
        )
    ideas = _user(said[-1][1]).partition("# Ideas")[2].partition("\n# ")[0]
    noted = {name: note[name] for name in ("idea", "experiment", "outcome", "better", "momentum")}
    parts.append(
        TAIL.format(
            note=_block(json.dumps(noted, indent=2)), ideas=_block(f"# Ideas{ideas}".strip())
        )
    )
    return "\n\n".join(parts) + "\n"


HEAD = """# The life of an idea

You see what [`pacevolve`](pacevolve.md) asks its models for one experiment, from the first hypothesis to the lesson
that later decisions read. The prompts are those that a run sent, without sections that one above has already; the
replies are those of a script. The task: in which order to put boxes into bins, so that few bins are needed. One island,
`advising=advising`, `upkeep=upkeep(tries=3)`: every step by itself, as in the paper.
[`pacevolve_plus_plus`](pacevolve_plus_plus.md) trains the model that answers the first three.

The advisor's requests begin with

{system}

and the implementer's with

{writer}"""

TAIL = """## 6. What stays

The strategy journals the experiment, and moves the momentum of its island:

{note}

The next decision reads the idea with what came of it:

{ideas}

Were the ideas more than the cap (`upkeep.cap`), the advisor would be asked which to drop. Had the program failed,
experiment and reason would stand in that prompt under the latest failures, on all islands."""


def _system(prompt: str) -> str:
    return prompt.partition("=== system ===\n")[2].partition("\n=== user ===")[0].strip()


def _user(prompt: str) -> str:
    return prompt.partition("=== user ===\n")[2].strip()


def _sections(text: str) -> list[str]:
    """The parts of a prompt, each with its heading of the first level."""
    return [
        section.strip() for section in re.split(r"^(?=# )", text, flags=re.M) if section.strip()
    ]


def _block(text: str) -> str:
    return f"````text\n{text.strip()}\n````"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
