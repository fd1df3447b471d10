"""API keys: read late, from the environment or a file the user names, and never shown."""

from __future__ import annotations

import os
import re
from pathlib import Path

from culmen.core.errors import UserError

_LOOKS_LIKE_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|key)-[A-Za-z0-9_\-*.]{6,}|\bBearer\s+\S+|\bAIza[\w-]{20,}")


class Key:
    """Where a provider's key is found. `reveal` is called only where the HTTP client is built."""

    def __init__(self, env: str = "", file: str = "") -> None:
        self.env, self.file = env, file

    def __repr__(self) -> str:
        return f"Key({self.name})"

    @property
    def name(self) -> str:
        """Where the key is looked for, in words."""
        if self.file:
            return f"the file {self.file}"
        return f"the environment variable {self.env}" if self.env else "no key"

    @property
    def needed(self) -> bool:
        """Whether the provider wants a key at all."""
        return bool(self.file or self.env)

    def found(self) -> bool:
        """Whether there is a key, without saying which."""
        return not self.needed or bool(self._read())

    def reveal(self) -> str:
        """The key. Raises `UserError` naming the place where it is missing."""
        if not self.needed:
            return "none"
        key = self._read()
        if not key:
            fix = f"put the key into {self.file}" if self.file else f"export {self.env}=…"
            raise UserError("no API key found", where=self.name, fix=f"{fix}, or use --model offline")
        return key

    def scrub(self, text: str) -> str:
        """The text without this key and without anything that looks like one."""
        key = self._read() if self.needed else ""
        return _LOOKS_LIKE_KEY.sub("[key]", text.replace(key, "[key]") if key else text)

    def _read(self) -> str:
        if not self.file:
            return os.environ.get(self.env, "").strip()
        try:
            return Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
