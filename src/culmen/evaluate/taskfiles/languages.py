"""File suffixes and the names of languages, as used in prompts and code fences."""

from __future__ import annotations

from pathlib import Path

LANGUAGES = {
    ".py": "python",
    ".awk": "awk",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".f90": "fortran",
    ".go": "go",
    ".html": "html",
    ".java": "java",
    ".jl": "julia",
    ".js": "javascript",
    ".json": "json",
    ".lean": "lean",
    ".md": "markdown",
    ".metal": "metal",
    ".ml": "ocaml",
    ".prompt": "text",
    ".r": "r",
    ".rs": "rust",
    ".sh": "shell",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".txt": "text",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def language_of(name: str) -> str:
    """The language of a file by its suffix, "text" if it is not known."""
    return LANGUAGES.get(Path(name).suffix.lower(), "text")
