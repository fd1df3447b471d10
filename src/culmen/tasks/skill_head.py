"""The head of a SKILL.md (front matter), as the reference library of Agent Skills reads it.

Rules and limits are those of skills-ref 0.1.1 (agentskills.io/specification): strict YAML, that is
block style without anchors, tags and repeated keys, in which every value is a text.
`tests/differential/skills_ref` compares both.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from culmen.core.candidate import frontmatter

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
