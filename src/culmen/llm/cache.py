"""Replies on disk: a request asked before, with the same seed, costs nothing."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from culmen.llm.call import Call, Choice


class ReplyCache:
    """A folder of replies, one small file a sample, keyed by model, request, seed and the sample's number.

    Only whole replies are kept. A file that cannot be read is a miss; several processes may share the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def get(self, model: str, call: Call, sample: int) -> Choice | None:
        """The sample's reply, None if it is not there."""
        try:
            return msgspec.json.decode(self._path(model, call, sample).read_bytes(), type=Choice)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, model: str, call: Call, sample: int, choice: Choice) -> None:
        """Keep a reply; a full disk only means that it is not kept."""
        path = self._path(model, call, sample)
        draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(choice))
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _path(self, model: str, call: Call, sample: int) -> Path:
        name = hashlib.sha256(f"{model}\0{call.digest()}\0{call.seed}\0{sample}".encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"
