"""Settings of agent sessions, and fixed bounds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from culmen.core.errors import UserError

SANDBOXES = ("auto", "agent", "none")

CANDIDATE_BYTES = 1 << 20  # one candidate, all its parts together
CANDIDATE_FILES = 64  # of one candidate
NOTE_CHARS = 4000  # a note of an experiment
WORD_CHARS = 20_000  # a report, a last message, a tool's text
BATCH = 64  # experiments of one scan after which no further request is read
PENDING = 1000  # waiting requests; the rest is refused
RECORDED = 200  # invalid requests, and reports, of one session that are recorded
SCAN = 20_000  # entries read in one folder
COMMIT_FILES, COMMIT_FILE_BYTES, COMMIT_BYTES = 2000, 1 << 20, 20 << 20


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a user for agent sessions.

    sandbox        auto: confined by namespaces, or no session is opened
                   none: with the user's own rights
                   agent: as none, trusting the program's own sandbox
    memory_mb      of all processes of a session together
    processes      processes and threads of a session
    file_mb        largest single file
    disk_mb        work tree, home and temporary files together
    """

    sandbox: str = "auto"
    memory_mb: int = 4096
    processes: int = 512
    file_mb: int = 256
    disk_mb: int = 4096

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> SandboxSettings:
        """Settings from plain data, other keys ignored.

        Raises UserError for an invalid value.
        """
        known = {
            name: values[name] for name in cls.__struct_fields__ if values.get(name) is not None
        }
        try:
            settings = msgspec.convert(known, cls, strict=False)
        except msgspec.ValidationError as error:
            raise UserError(f"invalid setting of agent sessions: {error}") from None
        if settings.sandbox not in SANDBOXES:
            raise UserError(
                f"there is no sandbox '{settings.sandbox}'",
                fix=f"use one of {', '.join(SANDBOXES)}",
            )
        return settings
