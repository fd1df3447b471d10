"""How far the advisor is with its replies: a small file in the run's folder while they are drawn, for the eyes only.

Nothing depends on it; it is gone when the replies are there, and one that a killed process left is not shown.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

FILE = Path("policy", "sampling.json")
_PAUSE = 0.5  # seconds between two writings


class SamplingNote:
    """`with SamplingNote(run / "policy", 40) as note: ... note.tell(14, 3120)`."""

    def __init__(self, policy: Path, of: int) -> None:
        self._path, self._of = policy / FILE.name, of
        self._began, self._written = time.monotonic(), 0.0

    def __enter__(self) -> SamplingNote:
        self.tell(0, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def tell(self, done: int, tokens: int) -> None:
        """So many replies are finished, with so many tokens in all, those of unfinished ones included."""
        now = time.monotonic()
        if now - self._written < _PAUSE and self._written:
            return
        self._written = now
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps([done, self._of, tokens, tokens / max(now - self._began, 1e-9)]))
        partial.replace(self._path)


def sampling(run: Path) -> str:
    """`advisor: 14 of 40 replies, 3,120 tokens, 210/s`; "" where none are being drawn."""
    with suppress(OSError, ValueError):
        done, of, tokens, rate = json.loads((run / FILE).read_text())
        return f"advisor: {done} of {of} replies, {tokens:,} tokens, {rate:.0f}/s"
    return ""


def changed(run: Path) -> float:
    """When that was written last, as a file's time; 0 where nothing is drawn."""
    try:
        return (run / FILE).stat().st_mtime
    except OSError:
        return 0.0
