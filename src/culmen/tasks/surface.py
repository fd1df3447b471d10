"""Checks of a candidate's text before it runs; EVOLVE-BLOCK markers enclose editable text.

`core.markers` reads the markers. Texts are compared, not their meaning in the language (a block
that ends inside an open string may change the meaning of the text after it). Put all requirements
into the scorer.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from culmen.core.candidate import Candidate, frontmatter, is_text, skill_names
from culmen.core.foreign import boundary
from culmen.core.markers import MarkerError, has_blocks, split_blocks
from culmen.core.task import SKILL_FILE, Task
from culmen.tasks.toolset import tools_fault


@boundary()
def surface_fault(task: Task, candidate: Candidate) -> str:
    """Reason to reject the candidate without running it, "" if there is none.

    part_missing · unknown_part · bad_part_name · not_text · too_long · frozen_part_changed ·
    immutable_text_changed · of skills also bad_skill, of a set too_many_skills · of tools also
    bad_tools, with the mistake behind a colon

    Frozen parts and immutable text are compared with every initial program; agreement with one of
    them is enough.
    """
    parts = candidate.parts
    fault = _shape_fault(task, parts) or _text_fault(task, parts) or _change_fault(task, parts)
    if not fault and SKILL_FILE in parts and not _loads(parts, task.seeds, "", SKILL_FILE):
        fault = "bad_skill"
    if fault or not task.surface.tools:
        return fault
    faults = [tools_fault(parts, seed, task.surface.tools) for seed in task.seeds]
    return "" if "" in faults else next(iter(faults), "")


@lru_cache(maxsize=256)
def safe_name(name: str) -> bool:
    """True if a part's name is a plain relative path that stays inside the candidate's folder."""
    path = PurePosixPath(name)
    plain = (
        bool(name)
        and "\\" not in name
        and name.isprintable()
        and len(name.encode("utf-8", "replace")) <= 200
    )
    return (
        plain
        and not path.is_absolute()
        and ".." not in path.parts
        and str(path) == name
        and name != "."
    )


def _shape_fault(task: Task, parts: dict[str, str]) -> str:
    if not parts:
        return "part_missing"
    if not all(safe_name(name) for name in parts):
        return "bad_part_name"
    if task.surface.skills:
        return skills_fault(parts, task.surface.skills, task.seeds)
    if not task.seeds:
        return ""
    expected = task.seeds[0].keys()
    if expected - parts.keys():
        return "part_missing"
    return "unknown_part" if parts.keys() - expected else ""


def _text_fault(task: Task, parts: dict[str, str]) -> str:
    if sum(map(len, parts.values())) > task.surface.max_chars:
        return "too_long"
    return "" if all(map(is_text, parts.values())) else "not_text"


def _change_fault(task: Task, parts: dict[str, str]) -> str:
    faults = [_fault_against(task, seed, parts) for seed in task.seeds]
    return "" if not faults or "" in faults else faults[0]


def _fault_against(task: Task, seed: dict[str, str], parts: dict[str, str]) -> str:
    frozen = task.surface.frozen
    if any(parts.get(name) != seed[name] for name in frozen if name in seed):
        return "frozen_part_changed"
    if task.surface.skills:  # a dropped skill is no change of its head
        seed = {name: text for name, text in seed.items() if name in parts}
    if task.surface.frontmatter == "frozen":
        heads = ((frontmatter(text), frontmatter(parts[name])) for name, text in seed.items())
        if any(old != now for old, now in heads):
            return "immutable_text_changed"
    if task.surface.markers != "enforced":
        return ""
    marked = [name for name in seed if name not in frozen and has_blocks(seed[name])]
    if any(immutable_change(seed[name], parts[name]) for name in marked):
        return "immutable_text_changed"
    return ""


MOST_FILES = 64  # of a skill or a set of skills


def skills_fault(parts: Mapping[str, str], most: int, seeds: Sequence[Mapping[str, str]]) -> str:
    """Reason why parts are not a set of at most `most` skills, "" if they are.

    unknown_part · too_many_skills · bad_skill: the reference library would refuse a skill that it
    does not refuse in `seeds`
    """
    folders = {str(folder) for name in parts for folder in PurePosixPath(name).parents}
    if len(parts) > MOST_FILES or folders & parts.keys() or not all("/" in name for name in parts):
        return "unknown_part"
    names = skill_names(parts)
    if len(names) > most:
        return "too_many_skills"
    heads = {name: f"{name}/{SKILL_FILE}" for name in names}
    return "" if all(_loads(parts, seeds, *each) for each in heads.items()) else "bad_skill"


def _loads(
    parts: Mapping[str, str], seeds: Sequence[Mapping[str, str]], folder: str, file: str
) -> bool:
    """True if a skill has no fault but those that it has in a seed."""
    faults = set(head_faults(parts.get(file, ""), folder))
    known = [set(head_faults(seed[file], folder)) for seed in seeds if file in seed]
    return not faults or any(faults <= each for each in known)


def immutable_change(seed: str, new: str) -> str:
    """The first difference between `seed` and `new` outside the blocks, as a sentence, or "".

    Line ends (CRLF or LF) and white space at the very end of the text do not count.
    """
    try:
        before, after = _immutable_regions(seed), _immutable_regions(new)
    except MarkerError as error:
        return str(error)
    if len(before) != len(after):
        return f"{len(after) - 1} editable blocks instead of {len(before) - 1}"
    for number, (old, now) in enumerate(zip(before, after), 1):
        if old != now:
            return (
                f"the text outside the blocks was changed (part {number} of {len(before)}): "
                f"{_first_difference(old, now)}"
            )
    return ""


def _immutable_regions(text: str) -> list[str]:
    return [
        r.text for r in split_blocks(text.replace("\r\n", "\n").rstrip() + "\n") if not r.editable
    ]


def _first_difference(old: str, now: str) -> str:
    """The first differing line, for the message."""
    for was, became in zip(old.split("\n"), now.split("\n")):
        if was != became:
            return f"{was[:80]!r} became {became[:80]!r}"
    return "lines were added or removed"


# The head of a SKILL.md (front matter), as the reference library of Agent Skills reads it.

_FIELDS = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
_LONGEST_NAME, _LONGEST_DESCRIPTION, _LONGEST_COMPATIBILITY = 64, 1024, 500  # characters


class HeadFault(Exception):
    """A head that cannot be read, with the cause as a sentence."""


def read_head(text: str) -> dict[str, object]:
    """The fields of a SKILL.md; raise `HeadFault` if a strict reader would refuse it.

    The reference library cuts the text at its first three ---, wherever they are; other readers cut
    it at lines ---. A head that differs between the two is refused.
    """
    pieces = text.split("---", 2)
    if pieces[0] or len(pieces) < 3:
        raise HeadFault("it does not begin with lines between --- and ---")
    head = frontmatter(text).strip()
    if head.removeprefix("---").removesuffix("---").strip() != pieces[1].strip():
        raise HeadFault("it has --- within a line of its front matter")
    return _strict_table(pieces[1])


def _strict_table(text: str) -> dict[str, object]:
    import yaml

    try:
        tokens = list(yaml.scan(text, Loader=yaml.BaseLoader))
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        refused = (
            yaml.FlowMappingStartToken,
            yaml.FlowSequenceStartToken,
            yaml.AnchorToken,
            yaml.AliasToken,
            yaml.TagToken,
        )
        if any(isinstance(token, refused) for token in tokens):
            raise HeadFault("only block style without anchors and tags is read")
        value = _node_value(node, 0)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise HeadFault(f"it is no strict YAML: {problem}") from None
    if not isinstance(value, dict):
        raise HeadFault("its front matter is no table")
    return value


def _node_value(node: object, depth: int) -> object:
    """Texts, lists and tables of a composed document."""
    import yaml

    if depth > 16:  # levels of a head's tables
        raise HeadFault("it is nested too deeply")
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_node_value(each, depth + 1) for each in node.value]
    table: dict[str, object] = {}
    if not isinstance(node, yaml.MappingNode):
        raise HeadFault("its front matter is empty")
    for key, value in node.value:
        name = _node_value(key, depth + 1)
        if not isinstance(name, str) or name in table or name == "<<":
            raise HeadFault(f"the key {name!r} is there twice, or is no key")
        table[name] = _node_value(value, depth + 1)
    return table


def head_faults(text: str, folder: str = "") -> tuple[str, ...]:
    """Faults for which the reference library refuses a SKILL.md, as sentences.

    `folder` is the name of its folder, which the skill must have; "" is any.
    """
    try:
        fields = read_head(text)
    except HeadFault as fault:
        return (str(fault),)
    return tuple(_field_faults(fields, folder))


def _field_faults(fields: Mapping[str, object], folder: str) -> Iterator[str]:
    if unknown := sorted(fields.keys() - set(_FIELDS)):
        yield f"it has fields that are none of the specification: {', '.join(unknown)}"
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not is_skill_name(name):
        yield "its name is none of small letters, digits and single hyphens"
    elif folder and skill_name(name) != skill_name(folder):
        yield f"its name is not that of its folder, {folder}"
    if not isinstance(description, str) or not description.strip():
        yield "it has no description"
    elif len(description) > _LONGEST_DESCRIPTION:
        yield f"its description is longer than {_LONGEST_DESCRIPTION} characters"
    fits = fields.get("compatibility", "")
    if not isinstance(fits, str) or len(fits) > _LONGEST_COMPATIBILITY:
        yield f"compatibility is no text of at most {_LONGEST_COMPATIBILITY} characters"


def skill_name(name: str) -> str:
    """A skill's name in the form in which names are compared (NFKC)."""
    return unicodedata.normalize("NFKC", name.strip())


def is_skill_name(name: str) -> bool:
    """True for a name that a skill may have: small letters, digits and single hyphens."""
    name = skill_name(name)
    return (
        0 < len(name) <= _LONGEST_NAME
        and name == name.lower()
        and not name.startswith("-")
        and not name.endswith("-")
        and "--" not in name
        and all(each.isalnum() or each == "-" for each in name)
    )
