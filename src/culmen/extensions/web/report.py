"""A run as one HTML file without a server or network: the dashboard's pages and documents.

It reads nothing from elsewhere, and its policy forbids that: scripts carry a nonce made of the
whole content, the one style sheet is named by its hash, documents are JSON that no parser takes for
markup, and trusted types refuse texts as markup at run time.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from string import Template
from urllib.parse import quote

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.pictures import is_picture
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.pages.candidates import candidate_table_rows
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import STATIC, encode_document
from culmen.store import views
from culmen.store.journal import SqlJournal
from culmen.store.views import CandidateQuery

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
<script type="$form" id="culmen-documents">$documents</script>
<script type="importmap" nonce="$nonce">$imports</script>
<script type="module" nonce="$nonce">import "culmen/main.js";</script>
</body>
</html>
""")


def report_page(gathered: Gathered) -> str:
    """The text of the report."""
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    if "</style" in style.lower():
        raise ValueError("the style sheet holds markup that would end its element")
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    imports = embed_json({"imports": module_addresses(STATIC)})
    documents = (
        _pack_document(gathered.documents) if gathered.packed else embed_json(gathered.documents)
    )
    nonce = hashlib.sha256(f"{imports}{documents}".encode("utf-8", "replace")).hexdigest()
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src '{_csp_hash(style)}'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    name = str(gathered.documents["run"])
    return _PAGE.substitute(
        policy=policy,
        title=html.escape(f"{name} · culmen"),
        icon=f"data:image/svg+xml;base64,{icon}",
        style=style,
        plain=html.escape(_noscript_text(gathered)),
        form=_PACKED if gathered.packed else "application/json",
        documents=documents,
        imports=imports,
        nonce=nonce,
    )


def _noscript_text(gathered: Gathered) -> str:
    """The text shown if scripts are switched off."""
    head, overview = (gathered.documents["pages"][name] for name in ("head", "overview"))
    lines = ". ".join(overview["summary"]["lines"])
    return (
        f"{head['task']}, {head['strategy']}, seed {head['seed']}: {head['state']}. {lines}. "
        "The pages are drawn by scripts, which are switched off in this browser."
    )


def embed_json(document: object) -> str:
    """JSON without `<`, so that it contains neither `</script` nor `<!--`.

    The parsed document is unchanged.
    """
    return encode_document(document).decode("utf-8").replace("<", "\\u003c")


_PLAIN = 1_000_000  # bytes of documents from which on they are compressed
_PACKED = "application/gzip"  # form of the documents' JSON, in base64; the browser unpacks it


def _pack_document(document: object) -> str:
    return base64.b64encode(gzip.compress(encode_document(document), 9, mtime=0)).decode()


def _csp_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def write_report(gathered: Gathered, path: Path) -> int:
    """Write the report atomically; return its size in bytes.

    Raises `UserError` if it cannot be written.
    """
    text = report_page(gathered).encode("utf-8", "replace")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise UserError(
            f"cannot write {path}: {error.strerror}", where="--out", fix="name another file"
        ) from None
    return len(text)


# The front end's modules as addresses that hold their texts, for an import map: browsers refuse to
# load modules from disk.

_RELATIVE = re.compile(r'^(import (?:[^"]* from )?)"(\.[^"]*)";$', re.M)


def module_addresses(folder: Path) -> dict[str, str]:
    """The `data:` address of every module in a folder, by its name in the import map.

    Relative imports become such names: a `data:` address has no folder.
    """
    addresses: dict[str, str] = {}
    for path in sorted(folder.resolve().rglob("*.js")):

        def with_name(match: re.Match[str], near: Path = path.parent) -> str:
            return f'{match[1]}"{_module_name((near / match[2]).resolve(), folder.resolve())}";'

        text = _RELATIVE.sub(with_name, path.read_text(encoding="utf-8"))
        held = base64.b64encode(text.encode()).decode()
        addresses[_module_name(path, folder.resolve())] = f"data:text/javascript;base64,{held}"
    return addresses


def _module_name(path: Path, folder: Path) -> str:
    return f"culmen/{path.relative_to(folder).as_posix()}"


# A report on paper: the system's own Chromium prints all pages of the file to a PDF, without a
# window.

BROWSERS = (
    "chromium-headless-shell",  # starts faster: it makes no window
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
_SECONDS = 180  # for a browser to print a report


def installed_browser() -> str | None:
    """The browser that prints and draws; None if this machine has none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def find_browser() -> str:
    """The browser that prints; raises `UserError` if this machine has none."""
    browser = installed_browser()
    if browser is None:
        raise UserError(
            "there is no Chromium on this machine to print with",
            where="--pdf",
            fix="install chromium, or open the report and print it from your browser",
        )
    return browser


def print_pdf(gathered: Gathered, path: Path) -> int:
    """Print the report to `path`; return its size in bytes.

    Raises `UserError` if there is no browser, if it fails, or if `path` cannot be written.
    """
    program = find_browser()
    with tempfile.TemporaryDirectory(prefix="culmen-") as folder:
        source, pdf = Path(folder) / "report.html", Path(folder) / "report.pdf"
        write_report(gathered, source)
        address = f"{source.as_uri()}#/r/{quote(str(gathered.documents['run']), safe='')}/print"
        print_to = ["--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
        # milliseconds of a virtual clock, ahead while the page is idle
        print_to.append("--virtual-time-budget=20000")
        _run_browser(program, address, print_to, folder)
        if not pdf.is_file() or not pdf.read_bytes().startswith(b"%PDF"):
            raise UserError(
                f"{program} made no PDF", where="--pdf", fix="print the report from your browser"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(pdf, path)
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror}", where="--pdf", fix="name another file"
            ) from None
        return path.stat().st_size


def _run_browser(program: str, address: str, output: list[str], folder: str) -> None:
    """Let a browser without a window open an address; `output` are its options for the result."""
    command = [program, "--headless", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", *output]
    if os.geteuid() == 0:  # Chromium's sandbox refuses root; the page can run nothing foreign
        command.append("--no-sandbox")
    try:
        subprocess.run([*command, address], capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{program} did not finish within {_SECONDS} s",
            where="--pdf",
            fix="open the report and print it from your browser",
        ) from None


# Contents of a report on one run: the documents of the same pages, within bounds, and a list of
# omissions.

ROWS = 10_000  # rows of the table of candidates
FULL = 60  # best candidates with their texts
# bytes: one page, one candidate, all of these
_BOUNDS = (8_000_000, 1_000_000, 24_000_000)
# characters to which texts are cut, in turn, until their document is small enough
_TEXTS = (100_000, 20_000, 2_000, 200)


class Gathered(msgspec.Struct):
    """The contents of a report.

    `documents` are in the form of the front end's `Embedded`; `full` candidates have their texts;
    `left_out` lists omissions in words; `packed` documents are compressed in the file.
    """

    documents: JsonObject
    candidates: int
    rows: int
    full: int
    left_out: list[str]
    packed: bool = False


def gather_report(run: Digest, full: int | None = FULL, rows: int = ROWS) -> Gathered:
    """Read all pages of a run.

    Complete are the lineage of the best, the finalists, the `full` best candidates and their
    parents; with None, all candidates. Raises `JournalDamaged` if the journal is not as culmen
    wrote it.
    """
    SqlJournal.open(run.run).check()
    bounds = _BOUNDS if full is not None else (math.inf, math.inf, math.inf)
    if full is None:
        rows = views.run_status(run.run).candidates
    left_out: list[str] = []
    pages = {
        name: make(run, {})
        for name, make in page_makers().items()
        if name not in ("candidate", "candidates")
    }
    for name, page in pages.items():
        pages[name], kept = _bound_document(page, bounds[0])
        if kept:
            left_out.append(f"{name.capitalize()}: the ends of texts beyond {kept:,} characters.")
    table = _candidate_table(run, rows)
    if len(table["rows"]) < table["all"]:
        left_out.append(
            f"Candidates, the table: all but the best {len(table['rows']):,} of {table['all']:,}."
        )
    leaders = [row["id"] for row in table["rows"][:full]]
    candidates = _full_candidates(run, leaders, left_out, bounds)
    if len(candidates) < table["all"]:
        missing = table["all"] - len(candidates)
        left_out.append(
            f"Texts, evaluations and prompts of {missing:,} of {table['all']:,} candidates."
        )
    documents = _report_documents(run, pages, table, candidates, left_out)
    packed = full is None or len(encode_document(documents)) > _PLAIN
    return Gathered(documents, table["all"], len(table["rows"]), len(candidates), left_out, packed)


def _report_documents(
    run: Digest,
    pages: JsonObject,
    table: JsonObject,
    candidates: JsonObject,
    left_out: list[str],
) -> JsonObject:
    for name in ("head", "overview"):
        pages[name] |= {"path": "", "owner": None}  # private to the machine it was made on
    best = views.best_result(run.run)
    return {
        "run": run.name,
        "runs": _single_run_list(run),
        "pages": {**pages, "candidates": table},
        "candidates": candidates,
        "names": {"best": best.id if best else "", "seed": views.initial_program(run.run)},
        "made": {
            "time": time.time(),
            "event": run.last,
            "state": pages["head"]["state"],
            "left_out": left_out,
        },
    }


def _candidate_table(run: Digest, rows: int) -> JsonObject:
    table_rows = candidate_table_rows(
        run, views.candidate_page(run.run, CandidateQuery(limit=rows)).rows
    )
    return page_makers()["candidates"](run, {"limit": "1"}) | {"rows": table_rows, "limit": rows}


def _full_candidates(
    run: Digest, leaders: list[str], left_out: list[str], bounds: tuple[float, float, float]
) -> JsonObject:
    """Candidates by id, the most informative first, within the bounds."""
    documents: JsonObject = {}
    _, largest, whole = bounds
    size, cut = 0, 0
    for name in _candidates_to_include(run, leaders):
        document, kept = _bound_document(page_makers()["candidate"](run, {"id": name}), largest)
        size += len(encode_document(document))
        if size > whole:
            left_out.append(
                f"Texts of candidates beyond {whole / 1e6:.0f} MB in all, the less informative "
                "ones first."
            )
            break
        cut += bool(kept)
        documents[name] = document
    if cut:
        left_out.append(
            f"The ends of the longest texts of {cut:,} candidates, which take more than "
            f"{largest:,} bytes each."
        )
    return documents


def _candidates_to_include(run: Digest, leaders: list[str]) -> list[str]:
    """Ids of the candidates to include, each once.

    Best, initial program, the lineage between, finalists, leaders, and the first parents of all
    these.
    """
    best, seed = views.best_result(run.run), views.initial_program(run.run)
    names = [best.id] if best else []
    names += [seed] if seed else []
    names += (
        [step.row.id for step in reversed(views.lineage_steps(run.run, best.id))] if best else []
    )
    names += (views.final_choice(run.run) or {}).get("finalists") or []
    names += [point.id for point in best.front] if best else []
    names += leaders
    parents = {node.id: node.parent for node in views.family_tree(run.run)}
    names += [parents[name] for name in names if parents.get(name)]
    return [name for name in dict.fromkeys(names) if name in parents]


def _single_run_list(run: Digest) -> JsonObject:
    """The list of runs with only this one: the front end then shows no other."""
    return {"runs": [{"name": run.name}], "single": True, "folder": ""}


def _bound_document(document: JsonObject, max_bytes: float) -> tuple[JsonObject, int]:
    """The document with its longest texts cut until it has at most `max_bytes` bytes.

    The second value is the length of cut texts in characters, 0 if none was cut.
    """
    if len(encode_document(document)) <= max_bytes:
        return document, 0
    shorter: JsonObject = document
    for kept in _TEXTS:
        shorter = {
            name: _map_texts(value, lambda text, kept=kept: _shorten_text(text, kept))
            for name, value in msgspec.to_builtins(document).items()
        }
        if len(encode_document(shorter)) <= max_bytes:
            return shorter, kept
    return shorter, _TEXTS[-1]


def _map_texts(value: object, cut: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict):
        return {name: _map_texts(each, cut) for name, each in value.items()}
    return [_map_texts(each, cut) for each in value] if isinstance(value, list | tuple) else value


def _shorten_text(text: str, kept: int) -> str:
    if is_picture(text):
        return text if len(text) <= kept else "a picture that is not in this report"
    return (
        text
        if len(text) <= kept
        else f"{text[:kept]}\n... {len(text) - kept:,} characters are not in this report"
    )
