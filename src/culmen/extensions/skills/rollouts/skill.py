"""Candidates that agents read or use: skills, sets of them, memory files, prompts, tools.

A folder's text files are the candidate's parts, by their paths. Agents find skills in the place
where their program looks for skills, tools through a server (`tools`), and every other text as
their program's own memory file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.candidate import frontmatter, skill_names
from culmen.core.errors import TaskError
from culmen.core.foreign import boundary
from culmen.core.inside import files_inside
from culmen.core.task import SKILL_FILE as MAIN
from culmen.extensions.skills.rollouts.toolset import ToolFault, has_tools, read_tools
from culmen.tasks.reading import read_text
from culmen.tasks.surface import (
    MOST_FILES,
    HeadFault,
    head_faults,
    is_skill_name,
    read_head,
    skill_name,
    skills_fault,
)

SKILLS = "/skills"  # where every agent finds the candidate, whatever its program
CHARACTERS_PER_TOKEN = 4  # of English text with the usual tokenizers, roughly
_SKIPPED = ("__pycache__", ".git", ".DS_Store")
_SKILL_FOLDERS = {
    "claude": ".claude/skills",
    "codex": ".agents/skills",
    "opencode": ".config/opencode/skills",
    "gemini": ".gemini/skills",
}
_MEMORY_FILES = {
    "claude": ".claude/CLAUDE.md",
    "codex": ".codex/AGENTS.md",
    "opencode": ".config/opencode/AGENTS.md",
    "gemini": ".gemini/GEMINI.md",
}


class Skill(msgspec.Struct, frozen=True):
    """A candidate's kind and name, and its initial parts.

    `is_skill` is False for a memory file or a prompt, which is one part; `is_set` is True for a
    set of skills, whose parts are NAME/SKILL.md and the like; `is_tools` for tools, which agents
    are served and do not read.
    """

    name: str
    parts: dict[str, str]
    is_skill: bool = True
    is_set: bool = False
    is_tools: bool = False

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults for which the reference library of Agent Skills refuses the candidate."""
        names = skill_names(self.parts) if self.is_set else [""] if self.is_skill else []
        files = {name: f"{name}/{MAIN}" if name else MAIN for name in names}
        return tuple(
            f"{file}: {fault}"
            for name, file in files.items()
            for fault in head_faults(self.parts.get(file, ""), name)
        )

    @property
    def place(self) -> str:
        """The folder in which an agent finds the candidate."""
        return SKILLS if self.is_set else f"{SKILLS}/{self.name}"


@boundary()
def read_skill(path: Path, is_tools: bool = False) -> Skill:
    """The skill of a folder with SKILL.md, the skills of its folders, or the text of one file.

    A folder with tools.json or tools.toml has tools, and so has one of Python files if `is_tools`.
    Raises `TaskError`.
    """
    if path.is_file() and is_tools:
        return _tools_of(path, {path.name: _readable_text(path)})
    if path.is_file():
        return Skill(path.stem.lower(), {path.name: _readable_text(path)}, is_skill=False)
    if not path.is_dir():
        raise TaskError(
            "there is no such skill", where=str(path), fix="name a folder with SKILL.md, or a file"
        )
    found = [file for file in files_inside(path, _SKIPPED) if file.name not in _SKIPPED]
    parts = {file.relative_to(path).as_posix(): _readable_text(file) for file in found[:MOST_FILES]}
    parts = _with_main_files(parts)
    if is_tools or (MAIN not in parts and has_tools(parts)):
        return _tools_of(path, parts)
    is_set = MAIN not in parts and any(f"{name}/{MAIN}" in parts for name in skill_names(parts))
    if MAIN not in parts and not is_set:
        raise TaskError(
            f"no {MAIN} in this folder",
            where=str(path),
            fix=f"write {MAIN}, or name one file such as AGENTS.md",
        )
    size = sum(len(text.encode()) for text in parts.values())
    if len(found) > MOST_FILES or size > 1 << 20:  # bytes
        raise TaskError(
            f"a skill may have {MOST_FILES} files and 1 MB, this has {len(found)} files",
            where=str(path),
            fix="leave out what agents do not read",
        )
    if is_set:
        _check_set(path, parts)
        return Skill(path.resolve().name.lower(), parts, is_set=True)
    return Skill(_skill_name(path, parts[MAIN]), parts)


def _with_main_files(parts: dict[str, str]) -> dict[str, str]:
    """The parts with skill.md, which readers take as well, under its usual name."""
    usual = {name: re.sub(r"(^|/)skill\.md$", rf"\1{MAIN}", name) for name in parts}
    return {name if usual[name] in parts else usual[name]: text for name, text in parts.items()}


def _tools_of(path: Path, parts: dict[str, str]) -> Skill:
    """The tools of a folder; raise `TaskError` if they cannot be served."""
    try:
        read_tools(parts)
    except ToolFault as fault:
        raise TaskError(
            str(fault), where=str(path), fix="culmen docs skills has the form of tools"
        ) from None
    return Skill(path.resolve().name.lower(), parts, is_skill=False, is_tools=True)


def _check_set(path: Path, parts: dict[str, str]) -> None:
    """Raise `TaskError` for the first folder that is not a valid skill."""
    for name in skill_names(parts):
        own = {part: text for part, text in parts.items() if part.startswith(f"{name}/")}
        if skills_fault(own, 1, (own,)) or not _is_described(own.get(f"{name}/{MAIN}", ""), name):
            raise TaskError(
                "a skill of a set needs frontmatter with its folder's name and a description",
                where=str(path / name / MAIN),
                fix=f"begin it with ---, name: {name}, description: when to use it, ---",
            )
    if loose := next((part for part in parts if "/" not in part), ""):
        raise TaskError(
            f"{loose} lies beside the skills", where=str(path), fix="move it into a skill, or away"
        )


def _readable_text(file: Path) -> str:
    text = read_text(file)
    if not text.strip():
        raise TaskError("the file is empty", where=str(file), fix="write a first version")
    return text


def _is_described(main: str, folder: str) -> bool:
    """True if a lenient reader finds the folder's name and a description."""
    named = lenient_value(main, "name")
    described = lenient_value(main, "description")
    return skill_name(named) == skill_name(folder) and is_skill_name(named) and bool(described)


def _skill_name(path: Path, main: str) -> str:
    """The name in the frontmatter, which is that of the folder where agents look for it."""
    name = skill_name(lenient_value(main, "name") or path.resolve().name.lower())
    if not is_skill_name(name):
        raise TaskError(
            f"'{name}' cannot be a skill's name",
            where=str(path / MAIN),
            fix="write name: in its frontmatter, in small letters, digits and single hyphens",
        )
    return name


def lenient_value(main: str, key: str) -> str:
    """The text of a key at the head of a SKILL.md, "" without.

    Of a head that a strict reader refuses, the rest of the key's line.
    """
    try:
        value = read_head(main).get(key, "")
        return value.strip() if isinstance(value, str) else ""
    except HeadFault:
        found = re.search(rf"^{key}:[ \t]*(.*)", frontmatter(main), re.MULTILINE)
        return " ".join(found[1].split()).strip("\"'") if found else ""


def token_count(parts: Mapping[str, str]) -> int:
    """Roughly the tokens of a candidate."""
    return -(-sum(map(len, parts.values())) // CHARACTERS_PER_TOKEN)


def program_of(agent: str) -> str:
    """The program whose habits an agent has (claude for `acp:claude`); "" if unknown."""
    name = agent.removeprefix("acp:").strip()
    return name if name in _SKILL_FOLDERS else ""


def places(skill: Skill, agent: str) -> tuple[tuple[str, str], ...]:
    """Paths of the candidate beside `SKILLS`: (path in it, path below HOME).

    "" is the candidate's folder.
    """
    program = program_of(agent)
    if skill.is_tools:
        return ()
    if skill.is_skill:
        folder = _SKILL_FOLDERS.get(program, ".agents/skills")
        if skill.is_set:
            return tuple((name, f"{folder}/{name}") for name in skill_names(skill.parts))
        return (("", f"{folder}/{skill.name}"),)
    return ((next(iter(skill.parts)), _MEMORY_FILES[program]),) if program else ()


def prompt_for(skill: Skill, agent: str, instruction: str) -> str:
    """The first message: the instruction, and for an unknown program where the candidate is."""
    if program_of(agent) or "{skill}" in agent or skill.is_tools:
        return instruction
    if skill.is_set:
        names = ", ".join(f"{SKILLS}/{name}/{MAIN}" for name in skill_names(skill.parts))
        return (
            f"Read those of {names} that fit before you begin, and work by them.\n\n{instruction}"
        )
    file = f"{skill.place}/{next(iter(skill.parts)) if not skill.is_skill else MAIN}"
    return f"Read {file} before you begin, and work by it.\n\n{instruction}"
