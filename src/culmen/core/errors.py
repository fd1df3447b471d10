"""One error tree. A candidate's failure is a value (`Status`), never one of these.

`UserError` and its children are mistakes or circumstances that the user can fix: they say what happened,
where, and the next command, and the CLI prints them without a traceback. Anything else that raises is a bug.
"""

from __future__ import annotations


class CulmenError(Exception):
    """Base of every error culmen raises on purpose."""

    exit_code = 1


class UserError(CulmenError):
    """A mistake or circumstance the user can fix.

    `what` happened, `where` (a file, a key, a run) and `fix` (the next command or edit), each one plain sentence.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(
            "\n".join(part for part in (what, where and f"  where: {where}", fix and f"  next:  {fix}") if part)
        )
        self.what, self.where, self.fix = what, where, fix


class TaskError(UserError):
    """The task folder, its `task.toml`, its cases or its evaluator cannot be used as they are."""


def missing_extra(who: str, package: str, extra: str, where: str = "") -> UserError:
    """`who` needs `package`, which an extra of culmen brings and this installation lacks."""
    fix = f"pip install 'culmen[{extra}]', in the environment culmen runs in"
    return UserError(f"{who} needs the package {package}, which is not installed", where=where, fix=fix)


class NothingScored(UserError):
    """A search has ended and no evaluation gave a score: the message has the evaluator's own traceback."""

    exit_code = 1


class RunLocked(UserError):
    """Another process is writing this run."""

    exit_code = 3


class JournalMismatch(UserError):
    """The strategy, replayed, asked for something else than the journal holds."""

    exit_code = 4


class JournalDamaged(UserError):
    """The journal cannot be read as it stands."""

    exit_code = 4


class IsolationError(UserError):
    """The isolation level asked for with `--require` is not in force on this machine."""

    exit_code = 5


class Unavailable(UserError):
    """An outside resource failed (disk full, provider down): nothing is lost, the run can be resumed."""

    exit_code = 75
