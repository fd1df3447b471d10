"""Isolation levels, strongest first, and what each lacks compared with the one before."""

from __future__ import annotations

from culmen.core.errors import IsolationError

LEVELS = ("namespaces", "restricted", "limits", "none")

LOSSES = {
    "namespaces": "nothing of what the probes look at",
    "restricted": "no namespaces: no total limit on files, no multiprocessing locks, a shared process count",
    "limits": "files, network, processes and signals are open to candidates; only time, memory and counts hold",
    "none": "everything: candidates run as you do",
}

FIX = (
    "install bubblewrap (Debian and Ubuntu: apt install bubblewrap); Ubuntu 24.04 also needs an AppArmor profile that "
    "allows it user namespaces; in Docker add --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--cap-add SYS_ADMIN; or lower --require"
)


def rank(level: str) -> int:
    """0 for the strongest; an unknown name raises IsolationError."""
    if level not in LEVELS:
        raise IsolationError(f"there is no isolation level {level!r}", fix=f"use one of {', '.join(LEVELS)}")
    return LEVELS.index(level)


def separates(level: str) -> bool:
    """Whether a candidate at this level can neither see nor touch other processes and their files."""
    return rank(level) <= rank("restricted")


def require_level(level: str, require: str | None, why: dict[str, str]) -> None:
    """Raise IsolationError if `level` is below `require`; `why` says why the stronger ones failed."""
    if require is not None and rank(level) > rank(require):
        reasons = "; ".join(f"{name}: {text}" for name, text in why.items())
        raise IsolationError(f"isolation level {require} is required, {level} is in force", where=reasons, fix=FIX)
