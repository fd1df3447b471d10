"""Hooks of the build with hatchling.

The README is changed for the package index, and the documentation is put into the wheel.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")
_MARK = re.compile(r"^<!-- (?:run|file: [^>]*) -->\n", re.M)


def absolute(text: str, repository: str, version: str) -> str:
    """The README with addresses of this version's files in `repository`.

    Without a repository, images and links are left out.
    """

    def link(match: re.Match[str]) -> str:
        image, title, target = match.groups()
        if not repository:
            return "" if image else title
        return f"{image}[{title}]({repository}/{'raw' if image else 'blob'}/v{version}/{target})"

    return _MARK.sub("", _LINK.sub(link, text))


class CustomMetadataHook(MetadataHookInterface):
    """Readme and project links, from `[tool.culmen] repository` in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = str(self.config.get("repository", "")).rstrip("/")
        if os.environ.get("CULMEN_RELEASE") and not home:
            raise ValueError(
                "a release needs [tool.hatch.metadata.hooks.custom] repository in pyproject.toml"
            )
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, home, metadata["version"]),
        }
        metadata["urls"] = (
            {name: f"{home}{path}" for name, path in self.config["links"].items()} if home else {}
        )


class CustomBuildHook(BuildHookInterface):
    """The pages that messages name (`culmen docs PAGE`), without their pictures."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        for page in sorted((root / "docs").rglob("*.md")):
            build_data["force_include"][str(page)] = (
                f"culmen/docs/{page.relative_to(root / 'docs').as_posix()}"
            )
        build_data["force_include"][str(root / "plugins/culmen/skills/culmen/SKILL.md")] = (
            "culmen/docs/skill.md"
        )
