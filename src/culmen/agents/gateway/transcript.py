"""One JSON row for each exchange, in one file an agent: bounded, and without keys."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from culmen.agents.gateway.account import Limits
from culmen.agents.gateway.reading import Clip

_LARGE = 200  # characters of JSON from which a value that was written before is only referred to
_DEEPEST = 40


class Transcript:
    """`write` appends a row.

    Long values that stand in an earlier row (agents send the whole conversation each time) are replaced by
    {"as_in_row": n}. Texts longer than `limits.text` are cut, their length said. A disk that is full only means that
    rows are missing: the agent goes on.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self._limits, self._failed = path, limits, False
        self._seen: dict[bytes, int] = {}
        old = path.read_bytes() if path.is_file() else b""  # of an interrupted run; never longer than the limit
        self._rows, self._bytes = len(old.splitlines()), len(old)
        self._torn = b"\n" if old and not old.endswith(b"\n") else b""

    def write(
        self, facts: dict[str, Any], request: dict[str, Any], listed: str, reply: Any, scrub: Callable[[str], str]
    ) -> bool:
        """Append a row, if there is room; `listed` is the field of `request` whose items are looked at one by one."""
        facts = self._plain(facts, scrub, 0)
        row = {"row": self._rows, **facts}
        if self._bytes < self._limits.transcript:
            short = {name: self._value(value, name == listed, scrub) for name, value in request.items()}
            row |= {"request": short, "reply": self._plain(reply, scrub, 0)}
        line = json.dumps(row).encode() + b"\n"
        if len(line) > self._limits.row:
            line = json.dumps({"row": self._rows, **facts, "omitted": len(line)}).encode() + b"\n"
        if self._bytes + len(line) > 2 * self._limits.transcript:
            return False
        return self._append(self._torn + line)

    def _append(self, line: bytes) -> bool:
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            self._seen.clear()  # nothing may refer to a row that is not there
            if not self._failed:
                logging.getLogger("culmen.agents.gateway").warning("transcript not written: %s", error)
            self._failed = True
            return False
        self._bytes, self._rows, self._torn = self._bytes + len(line), self._rows + 1, b""
        return True

    def _value(self, value: Any, listed: bool, scrub: Callable[[str], str]) -> Any:
        if listed and isinstance(value, list):
            return [self._value(item, False, scrub) for item in value]
        text = json.dumps(value)
        if len(text) < _LARGE:
            return self._plain(value, scrub, 0)
        mark = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if mark in self._seen:
            return {"as_in_row": self._seen[mark]}
        self._seen[mark] = self._rows
        return self._plain(value, scrub, 0)

    def _plain(self, value: Any, scrub: Callable[[str], str], depth: int) -> Any:
        if isinstance(value, str | Clip):
            text = scrub(str(value))
            most, whole = self._limits.text, max(len(text), len(value))
            return text if whole <= most else f"{text[:most]}… [{whole} characters in all]"
        if depth > _DEEPEST:
            return "…"
        if isinstance(value, dict):
            return {scrub(name): self._plain(item, scrub, depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item, scrub, depth + 1) for item in value]
        return value
