"""Digests of what is asked: what a journal, a fork and a seed know a request by."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from culmen.core.event import EmbedRequest, EvaluateRequest, Request
from culmen.core.task import fingerprint


def encode(value: Any) -> bytes:
    """Plain data and structs as JSON bytes, the same on every run, also of texts that are no valid Unicode."""
    try:
        return msgspec.json.encode(value, order="sorted" if isinstance(value, dict) else None)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), sort_keys=True).encode()


def mark(request: Request) -> str:
    """Digest of a request: 16 hex digits. Candidates count by content."""
    if isinstance(request, EvaluateRequest):
        case = request.case.id if request.case else ""
        certify = ("certify",) if request.certify else ()
        return fingerprint("evaluate", request.candidate.digest, case, str(request.seed), *certify)[:16]
    if isinstance(request, EmbedRequest):
        return fingerprint("embed", *(candidate.digest for candidate in request.candidates))[:16]
    return fingerprint(encode(request))[:16]


def number(digest: str) -> int:
    """31 bits of a digest: what a seed is."""
    return int(digest[:8], 16) & 0x7FFFFFFF
