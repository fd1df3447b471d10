"""Extensions: what packages add to culmen, found through entry points.

A package names an `Extension` in its metadata:

    [project.entry-points."culmen.extensions"]
    contest = "culmen_contest:EXTENSION"

An extension holds names and addresses, `"module:attribute"`, so that to find one imports nothing of
what it adds. culmen's own parts for agents, clusters, training, other ecosystems, trackers and
benchmarks are added in the same way; the rest of culmen never imports them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from culmen.core.errors import UserError

GROUP = "culmen.extensions"

Addresses = Mapping[str, str]
"""`"module:attribute"` by name; `"module"` for a module itself."""


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that one package adds, each an address by name."""

    name: str
    strategies: Addresses = {}
    """Classes of strategies (`core.ports.Strategy`), in the order of `culmen strategies`."""
    task_folders: Addresses = {}
    """Readers of task folders (`tasks.loading.FolderAdapter`), asked in order."""
    differences: Addresses = {}
    """Functions that name what another ecosystem's package does otherwise, for `culmen check`.

    By a word of the evaluator's text; the argument is the evaluator's path.
    """
    evaluator_forms: Addresses = {}
    """Ways to run an evaluator (`jail.forms.EvaluatorForm`), by `Evaluator.form`."""
    metrics: Addresses = {}
    """Measures of programs (`jail.spoken.ProgramMeasure`), by `[evaluator] metric`."""
    judges: Addresses = {}
    """Judges (`jail.spoken.JudgeType`), for programs written `NAME:...`."""
    jails: Addresses = {}
    """Modules of levels of isolation, by name; the one there is: `extensions.containers.jail`."""
    backends: Addresses = {}
    """Kinds of machines for evaluations (`evaluate.backends.BackendKind`)."""
    journals: Addresses = {}
    """Databases that hold runs (makers of a `store.database.RunDatabase` of an `Address`).

    By the scheme of their URLs; of several schemes for one address, the first one is stored.
    """
    performers: Addresses = {}
    """Functions that make a `core.ports.Craft` of a `core.ports.CraftContext`, by family."""
    simulators: Addresses = {}
    """Stand-ins for performers in `culmen.testing.landscape`, by family."""
    winner_checks: Addresses = {}
    """Makers of `evaluate.integrity.guard.ToleranceCheck`; that named `tolerances` is used.

    That named `pushes` makes an `extensions.audit.pushing.OutputPushes`; that named `flag` tells
    of a task if a winner may depend on a tolerance (`Evaluator.tolerances`).
    """
    trackers: Addresses = {}
    """Makers of observers that copy a run elsewhere, by the scheme of `--track`."""
    models_files: Addresses = {}
    """Functions that make the tables of a models file of another program's settings.

    By the name of a table that its YAML file has at the top; the argument is the file's path.
    """
    pools: Addresses = {}
    """Readers of another program's results as a `run.pools.Pool`; None if they are not its own."""
    examples: Addresses = {}
    """Packages whose folders are tasks, for `culmen new --example`."""
    pages: Addresses = {}
    """Pages of a run in dashboard and report (`extensions.web.pages.added.Page`), by name."""
    comparison_pages: Addresses = {}
    """Functions that make a page of several runs; that named `compare` is used."""
    readings: Addresses = {}
    """Functions of a long run's folder, called at its end: what they read of it is kept."""
    endings: Addresses = {}
    """Functions that make a `cli.pages.Ending` of a run's folder, by `Evaluator.form`."""
    verbs: Addresses = {}
    """Tables of the command line's verbs (`cli.verbs.VerbTable`).

    The name is that of a verb, with its group, as `runs track`: a table is imported when its verb
    is used. A table with another name is found, too, after all have been imported.
    """
    checks: Addresses = {}
    """Sections of `culmen doctor` (`cli.about.MachineCheck`)."""
    trials: Addresses = {}
    """Functions behind options of `culmen doctor` that try something, by the option's name."""


SLOTS = tuple(name for name in Extension.__struct_fields__ if name != "name")


@cache
def installed_extensions() -> tuple[Extension, ...]:
    """All extensions: culmen's own first, then those of other packages by name.

    Raises `UserError` for a package whose extension cannot be imported, naming it.
    """
    found = sorted(_entry_points(), key=lambda entry: (not _is_own(entry), entry.name))
    return tuple(filter(None, map(_load_extension, found)))


@cache
def part_addresses(slot: str) -> Mapping[str, str]:
    """The addresses of all parts of a slot, by name, in the order of the extensions.

    Raises `UserError` if two extensions add a part of the same name.
    """
    found: dict[str, str] = {}
    owners: dict[str, str] = {}
    for extension in installed_extensions():
        for name, address in getattr(extension, slot).items():
            if name in found:
                raise UserError(
                    f"two extensions add {slot} '{name}': {owners[name]} and {extension.name}",
                    where=f"entry points {GROUP}",
                    fix="uninstall one of their packages",
                )
            found[name], owners[name] = address, extension.name
    return found


def find_part(slot: str, name: str) -> Any:
    """The part of this name, imported now; None if no extension adds it."""
    address = part_addresses(slot).get(name)
    return None if address is None else import_part(address)


def all_parts(slot: str) -> dict[str, Any]:
    """All parts of a slot by name, imported now."""
    return {name: import_part(address) for name, address in part_addresses(slot).items()}


def import_part(address: str) -> Any:
    """The object at `"module:attribute"`, or the module at `"module"`.

    Raises `UserError` for an address of another package that leads nowhere; errors of culmen's own
    modules, such as a missing extra, pass through.
    """
    module, _, attribute = address.partition(":")
    package = module.partition(".")[0]
    try:
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    except Exception as error:
        if package == "culmen":
            raise
        raise UserError(
            f"a part of an extension cannot be used: {type(error).__name__}: {error}",
            where=address,
            fix=f"upgrade or uninstall the package that brings {package}",
        ) from error


class _Entry(NamedTuple):
    """One line of a package's entry points: `name = module:attribute`."""

    name: str
    value: str
    package: str

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]


_METADATA = re.compile(r"(.+?)(?:-[^-]+)?(?:-py[\d.]+)?\.(?:dist|egg)-info")


def _entry_points() -> Iterator[_Entry]:
    """Entry points of the group, as `importlib.metadata` finds them: the first of each package.

    Importing that takes longer than all the rest of this file, and every start would.
    """
    seen: set[str] = set()
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:  # not there, or an archive, which holds no packages
            continue
        for found in filter(None, map(_METADATA.fullmatch, sorted(names))):
            package = re.sub(r"[-_.]+", "-", found[1]).lower()
            if package in seen:
                continue
            seen.add(package)
            try:
                with open(os.path.join(folder, found[0], "entry_points.txt"), "rb") as file:
                    text = file.read()
            except OSError:  # most have none
                continue
            if GROUP.encode() in text:
                yield from _group_entries(text.decode("utf-8", "replace"), package)


def _group_entries(text: str, package: str) -> Iterator[_Entry]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] \t")
        elif section == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield _Entry(name.strip(), value.partition("[")[0].replace(" ", ""), package)


def _is_own(entry: _Entry) -> bool:
    return entry.module.partition(".")[0] == "culmen"


def _load_extension(entry: _Entry) -> Extension | None:
    """The extension of an entry point; None for a part of culmen that is not installed."""
    try:
        module, _, attribute = entry.value.partition(":")
        extension = import_module(module)
        for name in filter(None, attribute.split(".")):
            extension = getattr(extension, name)
    except ModuleNotFoundError as error:
        if _is_own(entry) and error.name is not None and entry.module.startswith(error.name):
            return None
        raise _broken_extension(entry, error) from error
    except Exception as error:
        raise _broken_extension(entry, error) from error
    if not isinstance(extension, Extension):
        raise _broken_extension(entry, TypeError(f"{entry.value} is not an Extension"))
    return extension


def _broken_extension(entry: _Entry, error: Exception) -> UserError:
    package = entry.package
    return UserError(
        f"the extension '{entry.name}' cannot be used: {type(error).__name__}: {error}",
        where=f"package {package}, entry point {entry.value}",
        fix=f"pip install --upgrade {package}, or pip uninstall {package}",
    )
