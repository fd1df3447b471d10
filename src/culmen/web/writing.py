"""What a person may send to a run from the dashboard: the same three messages as `culmen stop` and `culmen tell`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.store import inbox


def write(run: Path, what: str, message: Any) -> dict[str, Any]:
    """Leave a message for the run; returns its id and whether a process is there to take it.

    stop: `{"pause": bool}` · hint: `{"text": "..."}` · candidate: `{"parts": {name: text}}`. Raises `UserError`.
    """
    if not isinstance(message, Mapping):
        raise UserError("the message is no JSON object")
    if what == "stop":
        sent = inbox.send_stop(run, pause=message.get("pause") is True)
    elif what == "hint":
        sent = inbox.send_hint(run, str(message.get("text", "")))
    elif what == "candidate":
        sent = inbox.send_candidate(run, _parts(message.get("parts")))
    else:
        raise UserError(f"there is no action '{what}'", fix="stop, hint or candidate")
    return {"id": sent.message.id, "taken": sent.live}


def _parts(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
        raise UserError("the candidate is no object of texts")
    return {str(name): text for name, text in given.items()}
