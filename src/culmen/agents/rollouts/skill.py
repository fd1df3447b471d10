"""Candidates that agents read: a skill's folder, AGENTS.md or CLAUDE.md, a system prompt.

A folder's text files are the candidate's parts, by their paths. Agents find a skill in the place
where their program looks for skills, and every other text as their program's own memory file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from culmen.core.errors import TaskError
from culmen.evaluate.taskfiles.reading import read_text
from culmen.evaluate.taskfiles.surface import frontmatter

MAIN = "SKILL.md"
SKILLS = "/skills"  # where every agent finds the candidate, whatever its program
CHARACTERS_PER_TOKEN = 4  # of English text with the usual tokenizers, roughly
_FILES, _BYTES = 64, 1 << 20
_SKIPPED = ("__pycache__", ".git", ".DS_Store")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
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

    `is_skill` is False for a memory file or a prompt, which is one part.
    """

    name: str
    parts: dict[str, str]
    is_skill: bool = True


def read_skill(path: Path) -> Skill:
    """The skill of a folder with SKILL.md, or the text of one file; raise `TaskError`."""
    if path.is_file():
        return Skill(path.stem.lower(), {path.name: _readable_text(path)}, is_skill=False)
    if not path.is_dir():
        raise TaskError(
            "there is no such skill", where=str(path), fix="name a folder with SKILL.md, or a file"
        )
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not set(file.relative_to(path).parts) & set(_SKIPPED)
    ]
    parts = {file.relative_to(path).as_posix(): _readable_text(file) for file in found[:_FILES]}
    if MAIN not in parts:
        raise TaskError(
            f"no {MAIN} in this folder",
            where=str(path),
            fix=f"write {MAIN}, or name one file such as AGENTS.md",
        )
    size = sum(len(text.encode()) for text in parts.values())
    if len(found) > _FILES or size > _BYTES:
        raise TaskError(
            f"a skill may have {_FILES} files and 1 MB, this has {len(found)} files",
            where=str(path),
            fix="leave out what agents do not read",
        )
    return Skill(_skill_name(path, parts[MAIN]), parts)


def _readable_text(file: Path) -> str:
    text = read_text(file)
    if not text.strip():
        raise TaskError("the file is empty", where=str(file), fix="write a first version")
    return text


def _skill_name(path: Path, main: str) -> str:
    """The name in the frontmatter, which is that of the folder where agents look for it."""
    found = re.search(r"^name:\s*[\"']?([^\"'\s]+)", frontmatter(main), re.MULTILINE)
    name = found[1] if found else path.resolve().name.lower()
    if not _NAME.fullmatch(name) or len(name) > 64:
        raise TaskError(
            f"'{name}' cannot be a skill's name",
            where=str(path / MAIN),
            fix="write name: in its frontmatter, in small letters, digits and single hyphens",
        )
    return name


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
    if not program:
        return (("", f".agents/skills/{skill.name}"),) if skill.is_skill else ()
    if skill.is_skill:
        return (("", f"{_SKILL_FOLDERS[program]}/{skill.name}"),)
    return ((next(iter(skill.parts)), _MEMORY_FILES[program]),)


def prompt_for(skill: Skill, agent: str, instruction: str) -> str:
    """The first message: the instruction, and for an unknown program where the candidate is."""
    if program_of(agent) or "{skill}" in agent:
        return instruction
    file = f"{SKILLS}/{skill.name}/{next(iter(skill.parts)) if not skill.is_skill else MAIN}"
    return f"Read {file} before you begin, and work by it.\n\n{instruction}"
