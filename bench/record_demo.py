"""Records `culmen demo` as it looks in a terminal.

It writes docs/img/demo.svg (its end) and docs/img/progress.svg (half-way).

    .venv/bin/python bench/record_demo.py [--seconds 50] [--seed 0] [--columns 110]

The command runs in tmux, a real terminal, in an empty folder; what stands on its screen is drawn by
rich, unretouched.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

IMAGES = Path(__file__).parents[1] / "docs/img"
_ROWS = 200  # more than the demo prints, so that nothing scrolls out
_HUES = [
    (240, 113, 120),
    (126, 200, 128),
    (229, 192, 123),
    (97, 175, 239),
    (198, 120, 221),
    (86, 182, 194),
]
_THEME = TerminalTheme(
    (24, 27, 33),
    (208, 212, 220),
    [(24, 27, 33), *_HUES, (208, 212, 220)],
    [(110, 118, 132), *_HUES, (255, 255, 255)],
)


class Terminal:
    """A command in a tmux of its own: `columns` wide, `_ROWS` high."""

    def __init__(self, command: str, columns: int, folder: Path) -> None:
        self._tmux = ["tmux", "-L", f"culmen-record-{os.getpid()}", "-f", "/dev/null"]
        self._mark = folder / "over"
        size = ["-x", str(columns), "-y", str(_ROWS)]
        self._call(
            "new-session",
            "-d",
            *size,
            "-c",
            str(folder),
            f"{command}; echo $? > {self._mark}; sleep 60",
        )

    @property
    def over(self) -> bool:
        """True if the command has ended."""
        return self._mark.exists() and self._mark.read_text().endswith("\n")

    @property
    def code(self) -> int:
        """The ended command's exit code."""
        return int(self._mark.read_text())

    def lines(self) -> list[Text]:
        """The screen as it stands, with its colours, which go on from line to line."""
        return list(AnsiDecoder().decode(self._call("capture-pane", "-e", "-p").rstrip()))

    def close(self) -> None:
        """End tmux, and with it the command."""
        self._call("kill-server")

    def _call(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._tmux, *arguments], check=True, capture_output=True, text=True
        ).stdout


def record(command: str, columns: int, seconds: float) -> tuple[list[Text], list[Text]]:
    """The screen half-way through the search, and at the end."""
    with tempfile.TemporaryDirectory(prefix="culmen-demo-") as folder:
        terminal = Terminal(command, columns, Path(folder))
        try:
            began, half = time.monotonic(), list[Text]()
            while not terminal.over:
                time.sleep(0.2)
                if not half and time.monotonic() - began > seconds / 2:
                    half = terminal.lines()
            if terminal.code:
                raise SystemExit("\n".join(line.plain for line in terminal.lines()))
            return half, terminal.lines()
        finally:
            terminal.close()


def draw(lines: Sequence[Text], path: Path, command: str, columns: int) -> None:
    """The lines as an SVG that asks no server for a font."""
    console = Console(
        record=True,
        width=columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
    for line in lines:
        console.print(line, soft_wrap=True)
    svg = console.export_svg(title="culmen", theme=_THEME, unique_id="culmen")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    svg = svg.replace(
        "Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.M), encoding="utf-8")


def main() -> None:
    """Record and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    options = [
        f"--{name} {value:g}" for name, value in (("seconds", given.seconds), ("seed", given.seed))
    ]
    shown = " ".join(
        ["culmen demo", *(o for o in options if o not in ("--seconds 50", "--seed 0"))]
    )
    command = (
        f"{shlex.quote(str(Path(sys.executable).with_name('culmen')))} demo {' '.join(options)}"
    )
    half, whole = record(command, given.columns, given.seconds)
    draw(half, given.out / "progress.svg", shown, given.columns)
    draw(whole, given.out / "demo.svg", shown, given.columns)
    print("\n".join(line.plain for line in whole))


if __name__ == "__main__":
    main()
