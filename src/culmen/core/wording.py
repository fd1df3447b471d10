"""Description of a task in words, the same in all texts for models and agents."""

from __future__ import annotations

import re

from culmen.core.candidate import Candidate
from culmen.core.foreign import parses
from culmen.core.markers import has_blocks
from culmen.core.task import SKILL_FILE, Objective, Surface, Task

_TEXTS = ("", "text", "markdown")  # languages of texts that are not programs
_BACKTICKS = re.compile(r"`{3,}")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")


def describe_direction(objective: Objective) -> str:
    """The score's direction, target and bounds."""
    if objective.metrics:
        return _describe_objectives(objective)
    lines = [
        "Each evaluation gives a score; "
        f"{'higher' if objective.direction == 'max' else 'lower'} is better."
    ]
    if objective.target is not None:
        lines.append(f"The target is {format_number(objective.target)}.")
    low, high = objective.bounds
    if low is not None or high is not None:
        lines.append(
            f"Scores lie between {format_number(low, '-∞')} and {format_number(high, '∞')}."
        )
    return " ".join(lines)


def _describe_objectives(objective: Objective) -> str:
    """Objectives and constraints."""
    named = ", ".join(
        f"{g.name} ({'higher' if g.direction == 'max' else 'lower'} is better)"
        for g in objective.metrics
    )
    lines = [f"Each evaluation measures these objectives: {named}."]
    if objective.constraints:
        lines.append(f"It must hold: {', '.join(map(str, objective.constraints))}.")
    lines.append(
        "Wanted are candidates that no other one beats in all of them. The score combines "
        "them; higher is better."
    )
    return " ".join(lines)


def rules_section(task: Task, parent: Candidate | None) -> str:
    """The editable text, and the requirements of the evaluator."""
    surface, lines = task.surface, list[str]()
    if surface_language(task) not in _TEXTS:
        lines.append(f"The language is {surface.language}.")
    if parent is not None and (interface := describe_interface(task)):
        lines.append(f"{interface} Keep to that interface." if _is_executed(task) else interface)
    if surface.skills:
        lines.append(_skills_rule(surface))
    if surface.tools and task.seeds:
        lines.append(_tools_rule(surface, list(task.seeds[0])))
    if surface.frozen:
        lines.append(f"These parts must not change: {', '.join(surface.frozen)}.")
    if (
        parent is not None
        and surface.markers != "off"
        and any(map(has_blocks, parent.parts.values()))
    ):
        must = "Only" if surface.markers == "enforced" else "Preferably only"
        lines.append(
            f"{must} text between the EVOLVE-BLOCK-START and EVOLVE-BLOCK-END lines may "
            "change; keep those lines."
        )
    if _is_executed(task):
        lines.append(
            f"One evaluation may take {format_number(task.limits.seconds)} s and "
            f"{task.limits.memory_mb} MB."
        )
    return "\n".join(["# Rules", "", *(f"- {line}" for line in lines)]) if lines else ""


def _skills_rule(surface: Surface) -> str:
    """The limits of a set of skills."""
    heads = " The frontmatter of the first skills stays." if surface.frontmatter == "frozen" else ""
    return (
        f"The candidate is a set of 1 to {surface.skills} skills, each a folder NAME with "
        f"NAME/{SKILL_FILE} and further files. Skills may be changed, added, dropped and merged; "
        f"one that does not help should go. A new skill's {SKILL_FILE} begins with frontmatter: "
        "name (equal to NAME: at most 64 small letters, digits and single hyphens) and description "
        f"(at most 1024 characters: when to use it).{heads}"
    )


def _tools_rule(surface: Surface, parts: list[str]) -> str:
    """The form of a set of tools, and what may change."""
    table = next((name for name in parts if name.startswith("tools.")), "")
    lines = ["The candidate is the set of tools that an agent is served over MCP."]
    if table:
        lines.append(
            f"{table} has a table for each tool, by its server's own name, with description, and "
            "if the first one has it inputSchema: JSON Schema of an object that keeps every "
            "argument that was required."
        )
    if any(name.endswith(".py") for name in parts):
        lines.append(
            "Each public function of a Python part is a tool: its docstring is the description"
            f"{' unless the table has one' if table else ''}, its annotations are the schema; "
            "helpers have names that begin with _."
        )
    lines.append(
        "Names of tools and arguments stay."
        if surface.tools == "frozen"
        else "A table's name renames its tool, its arguments = {shown = own} those of its "
        "inputSchema; tools without which the agent does better may go."
    )
    return " ".join(lines)


def is_text(task: Task) -> bool:
    """True if candidates are texts for people or models, not programs."""
    return surface_language(task) in _TEXTS


def surface_language(task: Task) -> str:
    """The language of the editable text.

    "" for a text that is not Python and that a function of the user judges.
    """
    named = task.surface.language
    if named != "python" or task.evaluator.form != "function" or not task.seeds:
        return named
    texts = [text for name, text in task.seeds[0].items() if name not in task.surface.frozen]
    return named if any(parses(text) for text in texts) else ""


def _is_executed(task: Task) -> bool:
    """True if part of a candidate is executed, as far as is known."""
    return task.evaluator.form not in ("call", "serve", "prompt") or bool(task.evaluator.entry)


def describe_interface(task: Task) -> str:
    """The evaluator's use of a candidate, in one or two sentences; "" if it is unknown."""
    evaluator = task.evaluator
    module = f"The part `{evaluator.module}`" if evaluator.module else "The candidate"
    if evaluator.form == "prompt":
        return "A model gets the candidate's text with each case; nothing of it is run."
    if not _is_executed(task):
        return "The evaluator reads the candidate's text; nothing of it is run."
    if evaluator.form == "call":
        arguments = "a case's input" if task.cases else "no arguments"
        return (
            f"{module} is loaded as a module and its function `{evaluator.entry}` is called with "
            f"{arguments}."
        )
    if evaluator.form == "serve":
        return (
            f"{module} is loaded as a module and its function `{evaluator.entry}` is called "
            "repeatedly by the scorer."
        )
    if evaluator.form == "command":
        return (
            "The candidate's parts are written to files, and this is run: "
            f"`{' '.join(evaluator.command)}`."
        )
    if evaluator.form == "legacy":
        used = ", ".join(f"`{name}`" for name in evaluator.options.get("uses", ()))
        return "The evaluator gets the path of the candidate's file" + (
            f" and uses its {used}." if used else "."
        )
    return ""


def required_definitions(task: Task) -> str:
    """The definitions required of an initial program, if the evaluator's text shows them.

    "" otherwise.
    """
    text = str(task.evaluator.options.get("stub", ""))
    return f"It must define this:\n\n{fence_text(text, task.surface.language)}" if text else ""


def format_number(value: float | None, otherwise: str = "none") -> str:
    """A number in at most ten digits."""
    return otherwise if value is None else f"{value:.10g}"


def clip_middle(text: str, limit: int) -> str:
    """The text, its middle replaced by a note if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return (
        f"{text[:head]}\n[… {len(text) - limit} characters left out "
        f"…]\n{text[len(text) - (limit - head) :]}"
    )


def fence_text(text: str, info: str = "") -> str:
    """A fenced block that the text cannot close."""
    marks = fence_marks(text)
    return f"{marks}{info}\n{text if text.endswith(chr(10)) or not text else text + chr(10)}{marks}"


def fence_marks(text: str) -> str:
    """The backticks of a fence that the text cannot close: three, or more."""
    return "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=2))


def fence_part(text: str, name: str, language: str) -> str:
    """A part in a fenced block that opens with its language, if it is a program, and its name."""
    return fence_text(text, part_info(name, language))


def part_info(name: str, language: str) -> str:
    """The first line of a part's fenced block, behind the fence."""
    return name if name.endswith((".txt", ".md")) else f"{language} {name}".strip()


def indent_text(text: str) -> str:
    """The text with each line indented by four spaces: a block of Markdown without a fence."""
    return "\n".join(
        f"    {line}" if line.strip() else "" for line in text.rstrip("\n").split("\n")
    )


def indent_fences(text: str) -> str:
    """The text with its fenced blocks indented instead."""
    lines, marks = list[str](), ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if not marks and fence:
            marks = fence[1]
        elif marks and fence and fence[1].startswith(marks) and not fence[2].strip():
            marks = ""
        else:
            lines.append(indent_text(line) if marks else line)
    return "\n".join(lines)
