"""Verbs about culmen and this machine: strategies, templates, doctor, docs."""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import typer

from culmen.cli.screen import Answer, Screen
from culmen.core import extensions
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.report.figures import count_text, join_nonempty


def strategies(
    screen: Screen,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A strategy. Default: list them all.")
    ] = None,
) -> Answer:
    """List the search strategies, or show one with its paper, settings and defaults."""
    from culmen.strategies import catalog

    if name is None:
        pages = [catalog.describe_strategy(known) for known in catalog.strategy_paths()]
        return Answer({"strategies": pages}, lambda screen: _show_strategies(screen, pages))
    page = catalog.describe_strategy(name)
    return Answer(page, lambda screen: _show_strategy(screen, page))


def _show_strategies(screen: Screen, pages: list[JsonObject]) -> None:
    screen.print_table(["name", "what it is"], [(page["name"], page["title"]) for page in pages])
    screen.print_next_steps(("culmen strategies NAME", "paper, settings, defaults"))


def _show_strategy(screen: Screen, page: JsonObject) -> None:
    screen.print_heading(page["name"], page["title"])
    if page["paper"]:
        screen.print_line(f"Paper: {page['paper']}", style="dim")
    screen.print_line()
    screen.print_prose(page["doc"])
    fields = page["fields"]
    if fields:
        screen.print_rule("settings")
        screen.print_definitions(
            (field["name"], field["doc"], _default_and_type(field)) for field in fields
        )
        setting = shlex.quote(f"{fields[0]['name']}={fields[0]['default']}")
        line = f"culmen run TASK --strategy {page['name']} --set {setting}"
        screen.print_next_steps((line, "use it"))


def _default_and_type(field: JsonObject) -> str:
    """`default 5; a whole number`."""
    return join_nonempty(
        [f"default {field['default']}" if field["default"] else "", field["type"]], "; "
    )


def templates(
    screen: Screen,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Write the templates into this folder, to be edited. Default: list them.",
        ),
    ] = None,
) -> Answer:
    """List the prompt templates and their slots, or write them to a folder.

    Use the folder with `culmen run TASK --set templates=DIR`. Keep only the files that you
    change: the others are taken from culmen.
    """
    from culmen.models.prompts.template import shipped_templates, slots_of

    texts = shipped_templates()
    slots = {name: slots_of(text) for name, text in texts.items()}
    if folder is None:
        rows = [(name, " ".join(f"${slot}" for slot in found)) for name, found in slots.items()]
        return Answer(
            {"templates": slots}, lambda screen: screen.print_table(["template", "slots"], rows)
        )
    if folder.exists() and any(folder.iterdir()):
        raise UserError("this folder is not empty", where=folder, fix="name another one")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    steps = (
        f"culmen run TASK --set templates={folder}",
        "use them; keep only the files that you change",
    )
    return Answer(
        {"templates": slots, "folder": str(folder)}, lambda screen: screen.print_next_steps(steps)
    )


def doctor(
    screen: Screen,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Send this coding agent one request, to see whether it works."
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Model that the agent uses.")
    ] = None,
    models: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")
    ] = None,
    attack: Annotated[
        bool,
        typer.Option(
            "--attack",
            help="Run hostile programs at the isolation level in force; list which ones win.",
        ),
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE", help="Also try a container of this image (podman or docker)."
        ),
    ] = None,
) -> Answer:
    """Show what this machine has: isolation, keys, extras, agents.

    Isolation is tested by a program that tries to break out; of API keys the names are shown.
    """
    if agent is not None:
        return _trial("agent")(agent, model, models)
    if attack:
        return _trial("attack")(image or "")
    report = _examine_machine(image or "")
    return Answer(report, lambda screen: _show_machine(screen, report))


def _trial(name: str) -> Callable[..., Answer]:
    """The trial of an extension; raise `UserError` if none adds it."""
    found = extensions.find_part("trials", name)
    if found is None:
        fix = "pip install --force-reinstall culmen"
        raise UserError(f"no installed package adds this: {name}", where="culmen doctor", fix=fix)
    return found


class MachineCheck(Protocol):
    """A section of `culmen doctor` that an extension adds (slot `checks`)."""

    def examine(self) -> JsonObject:
        """The findings as plain data."""
        ...

    def show(self, screen: Screen, findings: JsonObject) -> None:
        """Print the findings, with a heading."""
        ...


def _examine_machine(image: str) -> JsonObject:
    """Facilities of this machine for a run, as plain data; API keys by name only."""
    from culmen.core import VERSION
    from culmen.jail import probes

    disk = shutil.disk_usage(Path.cwd())
    return {
        "culmen": VERSION,
        **probes.isolation_report(image),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "disk_free_gb": round(disk.free / 1e9, 1),
        "keys": _api_keys_set(),
        "extras": _extras_installed(),
        "extensions": [extension.name for extension in extensions.installed_extensions()],
        **{name: check.examine() for name, check in _machine_checks().items()},
    }


def _machine_checks() -> dict[str, MachineCheck]:
    return extensions.all_parts("checks")


def _api_keys_set() -> dict[str, bool]:
    """Environment variables for keys of known providers, by name; True if set."""
    from culmen.models.spec import PROVIDERS

    names = {provider.key_env for provider in PROVIDERS.values() if provider.key_env}
    return {name: bool(os.environ.get(name, "").strip()) for name in sorted(names)}


def _extras_installed() -> dict[str, bool]:
    """Extras of the installed package; True for those with all their packages."""
    try:
        package = importlib.metadata.distribution("culmen")
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path, not installed
        return {}
    extras = dict.fromkeys(package.metadata.get_all("Provides-Extra") or (), True)
    for line in package.requires or ():
        requirement = re.match(r"([\w.-]+)[^;]*;.*\bextra == ['\"]([\w.-]+)['\"]", line)
        if requirement and not _is_installed(requirement[1]):
            extras[requirement[2]] = False
    return extras


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _show_machine(screen: Screen, report: JsonObject) -> None:
    keys = [name for name, present in report["keys"].items() if present]
    screen.print_heading(
        f"culmen {report['culmen']}", f"Python {report['python']} at {report['executable']}"
    )
    screen.print_pairs(
        ("system", report["system"]),
        (
            "cores",
            f"{report['cores']}, {report['memory_gb']} GB memory, {report['disk_free_gb']} GB "
            "disk free here",
        ),
        ("keys", join_nonempty(keys) or f"none of {join_nonempty(report['keys'])} is set"),
        ("mechanisms", _mechanisms_text(report["mechanisms"])),
        ("isolation", f"{report['level']} is in force"),
    )
    screen.print_line()
    _show_levels(screen, report["levels"])
    if report["level"] != "namespaces":
        screen.print_line()
        screen.print_line(f"For more: {report['fix']}.")
    _show_extras(screen, report["extras"])
    screen.print_line(f"Extensions: {join_nonempty(report['extensions']) or 'none'}.")
    for name, check in _machine_checks().items():
        check.show(screen, report[name])


def _mechanisms_text(mechanisms: JsonObject) -> str:
    texts = []
    for name, value in mechanisms.items():
        detail = (
            f" {value}"
            if isinstance(value, str | int) and not isinstance(value, bool) and value
            else ""
        )
        texts.append(f"{name}{detail}" if value else f"no {name}")
    return join_nonempty(texts)


def _show_levels(screen: Screen, levels: JsonObject) -> None:
    rows = []
    for name, tried in levels.items():
        probes = tried["probes"]
        passed = sum(result == "PASS" for result in probes.values())
        failed = [probe for probe, result in probes.items() if result != "PASS"]
        outcome = (
            f"{passed} of {count_text(len(probes), 'probe')}" if tried["works"] else "not available"
        )
        detail = (
            f"not enforced: {join_nonempty(failed)}" if failed else tried.get("why", "all enforced")
        )
        rows.append((name, outcome, detail))
    screen.print_table(
        ["level", "result", "found by running a program that tries to break out"], rows
    )


def _show_extras(screen: Screen, extras: dict[str, bool]) -> None:
    screen.print_rule("extras")
    rows = [
        (name, "installed" if there else f"pip install 'culmen[{name}]'")
        for name, there in extras.items()
    ]
    screen.print_table(["extra", "command to install it"], sorted(rows))


def docs(
    screen: Screen,
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="A page. Default: list them all.")
    ] = None,
) -> Answer:
    """Show a page of the documentation, or list them."""
    doc_pages = _doc_pages()
    if page is None:
        titles = [(name, _page_title(path)) for name, path in doc_pages.items()]
        data = {
            "pages": [
                {"name": name, "title": title, "path": str(doc_pages[name])}
                for name, title in titles
            ]
        }
        return Answer(data, lambda screen: screen.print_table(["page", "title"], titles))
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in doc_pages:
        near = join_nonempty(difflib.get_close_matches(name, doc_pages, n=3)) or "culmen docs"
        raise UserError(f"there is no page '{page}'", where="culmen docs", fix=near)
    text = doc_pages[name].read_text(encoding="utf-8")
    return Answer(
        {"page": name, "path": str(doc_pages[name]), "text": text},
        lambda screen: screen.print_markdown(text),
    )


def _doc_pages() -> dict[str, Path]:
    """All pages by name: in an installed package beside the code, in a checkout beside `src`."""
    package = Path(__file__).resolve().parents[1]
    folder = next(each for each in (package / "docs", package.parents[1] / "docs") if each.is_dir())
    doc_pages = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.md"))
    }
    skill = package.parents[1] / "plugins/culmen/skills/culmen/SKILL.md"
    return doc_pages | ({"skill": skill} if skill.is_file() else {})


def _page_title(page: Path) -> str:
    lines = page.read_text(encoding="utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ")), "")
