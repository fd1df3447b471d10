"""Mutation trials: one small change of the rules at a time, which a test must notice.

    python -m tests.mutations --out trials.jsonl --sample 200          # goes on where it was cut off
    python -m tests.mutations --out trials.jsonl --modules memory/pedigree.py strategies/puct.py
    python -m tests.mutations --out trials.jsonl --report              # what survived, to be killed or explained

Changed are comparisons, arithmetic, `and`/`or`, conditions, numbers and calls whose result nobody takes, in the modules
of `ROOMS`. Each trial is a fork of a process that has loaded pytest and numpy, and runs the test files that name the
module, quickest first, until one fails. Whatever survives these is tried with `--all` on every test file of its room.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

from tests.mutations.places import Place, mutated, places_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "culmen"
ROOMS = ("engine", "memory", "strategies", "train/objectives.py")
FILES = 3  # test files a module is tried with
PATIENCE = 60.0  # seconds after which a trial counts as noticed: it hangs


def modules(names: list[str]) -> list[Path]:
    """The modules to be tried, by their names or all."""
    chosen = [SOURCE / name for name in names or ROOMS]
    return sorted(file for each in chosen for file in ([each] if each.is_file() else each.rglob("*.py")))


def files_for(module: Path, everything: bool) -> list[Path]:
    """Test files that name a module: those of its own room first, of these the smallest first."""
    room = ROOT / "tests" / module.relative_to(SOURCE).parts[0]
    if everything:
        return sorted(room.rglob("test_*.py"))
    found = _naming(module, (ROOT / "tests").rglob("test_*.py"))
    if not found:  # tested through the modules that use it
        users = [user for user in _naming(module, SOURCE.rglob("*.py")) if user != module]
        found = [file for user in users for file in _naming(user, (ROOT / "tests").rglob("test_*.py"))]
    found = found or [file for file in room.rglob("test_*.py") if f'"{module.stem}"' in file.read_text()]
    found.sort(key=lambda f: (module.stem not in f.stem, room not in f.parents, f.stat().st_size))
    return list(dict.fromkeys(found))[:FILES]


def _naming(module: Path, files: Iterable[Path]) -> list[Path]:
    """The files that import a module, or have its name in theirs."""
    dotted = ".".join(module.relative_to(SOURCE.parent).with_suffix("").parts)
    package, _, name = dotted.rpartition(".")
    wanted = (f"{dotted} import", f"from {package} import {name}")
    return [f for f in files if f.stem.endswith(f"_{name}") or any(each in f.read_text() for each in wanted)]


def tried(module: Path, place: Place | None, files: list[Path], patience: float) -> str:
    """`noticed`, `hangs` or `survived`: what the tests say of a changed module (None: as it is).

    Raises RuntimeError in a process that has loaded culmen: its forks would not load the change."""
    if any(name.partition(".")[0] == "culmen" for name in sys.modules):
        raise RuntimeError("culmen is loaded already")
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os._exit(_in_child(module, place, files))
    end = time.monotonic() + patience
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"
        time.sleep(0.02)
    os.killpg(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"


def _in_child(module: Path, place: Place | None, files: list[Path]) -> int:
    import pytest

    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    if place is not None:
        sys.meta_path.insert(0, _Finder(module, place))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-n0"]
    return int(pytest.main([*options, *map(str, files)]))


class _Changed(SourceFileLoader):
    """Loads one module of culmen with a change in it."""

    def __init__(self, name: str, path: str, place: Place) -> None:
        super().__init__(name, path)
        self._place = place

    def get_code(self, fullname: str) -> Any:  # never from a cache of bytes
        return compile(mutated(Path(self.path).read_text(), self._place), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, module: Path, place: Place) -> None:
        dotted = ".".join(module.relative_to(SOURCE.parent).with_suffix("").parts)
        self._name, self._path, self._place = dotted.removesuffix(".__init__"), str(module), place

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._path, loader=_Changed(fullname, self._path, self._place))


def trials(options: argparse.Namespace, known: set[str]) -> list[tuple[Path, Place]]:
    """What is to be tried: a random sample of all places, less what was tried."""
    every = [(module, place) for module in modules(options.modules) for place in places_of(module.read_text())]
    Random(0).shuffle(every)
    print(f"{len(every)} places in {len({module for module, _ in every})} modules")
    return [each for each in every[: options.sample or None] if _name(*each) not in known]


def _name(module: Path, place: Place) -> str:
    return f"{module.relative_to(SOURCE)}:{place.line}:{place.column}:{place.change}"


def run(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Try what was not tried; a row for each."""
    base: dict[tuple[Path, ...], float] = {}
    with options.out.open("a") as out:
        for module, place in trials(options, {row["name"] for row in rows}):
            files = files_for(module, options.all)
            began = time.monotonic()
            if tuple(files) not in base:
                if not files or tried(module, None, files, 600.0) != "survived":
                    raise SystemExit(f"{module}: its tests do not pass as it is: {files}")
                base[tuple(files)] = time.monotonic() - began
                began = time.monotonic()
            result = tried(module, place, files, max(PATIENCE, 5.0 * base[tuple(files)]))
            row = {"name": _name(module, place), "result": result, "seconds": round(time.monotonic() - began, 1)}
            row["files"] = [str(file.relative_to(ROOT)) for file in files]
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--modules", nargs="*", default=[], help="files or folders below src/culmen")
    parser.add_argument("--sample", type=int, default=0, help="so many places, drawn at random; 0: all")
    parser.add_argument("--all", action="store_true", help="with every test file of the module's room")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.report:
        import numpy  # noqa: F401  # loaded once, before the forks
        import pytest  # noqa: F401

        run(options, rows)
    print(dict(Counter(row["result"] for row in rows)))
    for row in sorted(rows, key=lambda each: each["name"]):
        if row["result"] == "survived":
            print(row["name"])


if __name__ == "__main__":
    main()
