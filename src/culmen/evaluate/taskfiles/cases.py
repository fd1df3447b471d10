"""`cases.jsonl`: the data set, one JSON object a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import TaskError
from culmen.core.evaluation import Case
from culmen.evaluate.taskfiles.places import one_of, read_text, unknown_keys

SPLITS = ("train", "val", "test")


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases in the order of the file; a case without `id` is named by its place among the cases (1, 2, ...).

    Raises `TaskError` naming the line for anything that is not an object of id, input, info, split.
    """
    seen: dict[str, int] = {}
    cases: list[Case] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        case = _case(line, f"{path}:{number}", str(len(cases) + 1))
        if case.id in seen:
            what = f"the id '{case.id}' is already that of line {seen[case.id]}"
            raise TaskError(what, where=f"{path}:{number}", fix="give every case its own id, or leave all ids out")
        seen[case.id] = number
        cases.append(case)
    if not any(case.split == "train" for case in cases):
        what = "no case belongs to the split 'train'" if cases else "the data set is empty"
        raise TaskError(what, where=str(path), fix="a search needs training cases: leave 'split' out, or say \"train\"")
    return tuple(cases)


def _case(line: str, where: str, default_id: str) -> Case:
    try:
        raw: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise TaskError(f"not valid JSON: {error}", where=where, fix="one JSON object per line") from None
    if not isinstance(raw, dict):
        raise TaskError("a case must be a JSON object", where=where, fix='write {"input": ..., "info": ...}')
    unknown_keys(raw, Case.__struct_fields__, where)
    split, name = raw.get("split", "train"), raw.get("id", default_id)
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}", where=where, fix=one_of(str(split), SPLITS))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise TaskError(f"an id must be a text or a whole number, not {name!r}", where=where, fix='write "id": "name"')
    return Case(str(name), raw.get("input"), raw.get("info"), split)
