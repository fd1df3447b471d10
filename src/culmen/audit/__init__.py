"""Audits of evaluators: weaknesses, found by trial before any token is spent.

    report = await audit(task, lambda task: LocalBackend(task, workers=2))

The attacks are small programs in `attacks/`, each with a title, its demonstration and its criterion
of success. They only ever touch a copy of the task's folder made for the audit. See docs/audit.md.
"""

from culmen.audit.attack import AuditReport
from culmen.audit.battery import audit

__all__ = ["AuditReport", "audit"]
