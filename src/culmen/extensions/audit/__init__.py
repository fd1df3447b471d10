"""Audits of evaluators: weaknesses, found by trial before any token is spent.

    report = await audit(task, lambda task: LocalBackend(task, workers=2))

The attacks are small programs in `attacks/`, each with a title, its demonstration and its criterion
of success. They only ever touch a copy of the task's folder made for the audit. See docs/audit.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from culmen.extensions.audit.attack import AuditReport
    from culmen.extensions.audit.battery import audit

__all__ = ["AuditReport", "audit"]


def __getattr__(name: str) -> object:
    # Late: every command imports this package to find its extension.
    if name == "audit":
        from culmen.extensions.audit.battery import audit

        return audit
    if name == "AuditReport":
        from culmen.extensions.audit.attack import AuditReport

        return AuditReport
    raise AttributeError(f"module 'culmen.extensions.audit' has no attribute '{name}'")
