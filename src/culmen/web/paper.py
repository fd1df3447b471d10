"""A report on paper: the system's own Chromium prints all pages of the file to a PDF, without a window."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from culmen.core.errors import UserError
from culmen.web.gathering import Gathered
from culmen.web.report import write

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_SECONDS = 180
_DRAWING = 20_000  # milliseconds of the page's own clock, which runs ahead while nothing is under way


def browser() -> str:
    """The program that prints. Raises `UserError` if this machine has none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise UserError(
            "there is no Chromium on this machine to print with",
            where="--pdf",
            fix="install chromium, or open the report and print it from your browser",
        )
    return found


def print_pdf(gathered: Gathered, path: Path) -> int:
    """Print the report to `path`; returns its size in bytes. Raises `UserError` if there is no browser or it fails."""
    program = browser()
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder:
        source, made = Path(folder) / "report.html", Path(folder) / "report.pdf"
        write(gathered, source)
        address = f"{source.as_uri()}#/r/{quote(str(gathered.documents['run']), safe='')}/print"
        _run(program, address, made, folder)
        if not made.is_file() or not made.read_bytes().startswith(b"%PDF"):
            raise UserError(f"{program} made no PDF", where="--pdf", fix="print the report from your browser")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", where="--pdf", fix="another place") from None
        return path.stat().st_size


def _run(program: str, address: str, made: Path, folder: str) -> None:
    command = [program, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    command += ["--no-pdf-header-footer", f"--user-data-dir={folder}/profile", "--disable-dev-shm-usage"]
    command += [f"--print-to-pdf={made}", f"--virtual-time-budget={_DRAWING}"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")  # Chromium's sandbox refuses root; the page may load and run nothing foreign
    try:
        subprocess.run([*command, address], capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{program} did not print within {_SECONDS} s", where="--pdf", fix="print the report from your browser"
        ) from None
