"""A run as one HTML file that needs no server and no network: the dashboard's pages with their documents inside.

Nothing in it is read from elsewhere, and its policy forbids it: the one script and the one style sheet are named by
their hashes, documents are JSON that no parser takes for markup, and trusted types refuse texts as markup at run time.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from contextlib import suppress
from pathlib import Path
from string import Template

from culmen.core.errors import UserError
from culmen.web.bundle import bundle
from culmen.web.gathering import Gathered
from culmen.web.server import STATIC, encoded

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>$title</title>
<link rel="icon" href="$icon" type="image/svg+xml">
<style>$style</style>
</head>
<body>
<noscript><p class="empty">$plain</p></noscript>
<div id="app"></div>
<script type="application/json" id="culmen-documents">$documents</script>
<script>$script</script>
</body>
</html>
""")


def page(gathered: Gathered) -> str:
    """The report's text."""
    script, style = bundle(STATIC / "main.js"), (STATIC / "style.css").read_text(encoding="utf-8")
    if "</script" in script.lower() or "<!--" in script or "</style" in style.lower():
        raise ValueError("the front end's own sources hold markup that would end their element")
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    name = str(gathered.documents["run"])
    return _PAGE.substitute(
        policy=policy,
        title=html.escape(f"{name} · culmen"),
        icon=f"data:image/svg+xml;base64,{icon}",
        style=style,
        plain=html.escape(_plain(gathered)),
        documents=embedded(gathered.documents),
        script=script,
    )


def _plain(gathered: Gathered) -> str:
    """What can be said where scripts are switched off."""
    head = gathered.documents["pages"]["head"]
    score = f"best score {head['best']['score']:g}" if head["best"] else "nothing has scored"
    return (
        f"{head['task']}, {head['strategy']}, seed {head['seed']}: {head['state']}, {score}, "
        f"{head['evaluations']:,} evaluations. The pages are drawn by scripts, which are switched off in this browser."
    )


def embedded(document: object) -> str:
    """JSON without `<`, so that neither `</script` nor `<!--` can come up in it; parsed, it is the same."""
    return encoded(document).decode("utf-8").replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write(gathered: Gathered, path: Path) -> int:
    """Write the report whole or not at all; returns its bytes. Raises `UserError` where it cannot be written."""
    text = page(gathered).encode("utf-8", "replace")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}", where="--out", fix="another place") from None
    return len(text)
