"""What a candidate may be, checked before anything of it runs."""

from __future__ import annotations

from pathlib import PurePosixPath

from culmen.core.candidate import Candidate
from culmen.core.task import Task
from culmen.evaluate.taskfiles import markers


def surface_fault(task: Task, candidate: Candidate) -> str:
    """Why the candidate is to be rejected unseen: "" if it is not, else one of

    part_missing · unknown_part · bad_part_name · not_text · too_long · frozen_part_changed · immutable_text_changed

    Frozen parts and immutable text are compared with every seed: it is enough to agree with one of them.
    """
    parts = candidate.parts
    return _shape_fault(task, parts) or _text_fault(task, parts) or _change_fault(task, parts)


def safe_name(name: str) -> bool:
    """Whether a part's name is a plain relative path that stays inside the candidate's folder."""
    path = PurePosixPath(name)
    plain = bool(name) and "\\" not in name and name.isprintable() and len(name.encode("utf-8", "replace")) <= 200
    return plain and not path.is_absolute() and ".." not in path.parts and str(path) == name and name != "."


def is_text(text: str) -> bool:
    """Whether a text can be stored and written to a file: UTF-8 without NUL."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _shape_fault(task: Task, parts: dict[str, str]) -> str:
    if not parts:
        return "part_missing"
    if not all(safe_name(name) for name in parts):
        return "bad_part_name"
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
    if any(parts[name] != seed[name] for name in frozen if name in seed):
        return "frozen_part_changed"
    if task.surface.markers != "enforced":
        return ""
    marked = [name for name in seed if name not in frozen and markers.has_blocks(seed[name])]
    if any(markers.respects(seed[name], parts[name]) for name in marked):
        return "immutable_text_changed"
    return ""
