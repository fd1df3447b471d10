"""Mutation trials: one small change of the rules at a time, which a test must notice.

    python -m tests.mutations --out trials.jsonl --sample 200          # goes on where it was cut off
    python -m tests.mutations --out trials.jsonl --modules evidence/pedigree/tree.py extensions/baselines/puct.py
    python -m tests.mutations --out trials.jsonl --all                 # what survived, again with more tests
    python -m tests.mutations --out trials.jsonl --modules engine/driver.py --tests tests/engine/test_engine_d*.py
    python -m tests.mutations --out trials.jsonl --report              # what survived and is not explained

Changed are comparisons, arithmetic, `and`/`or`, conditions, numbers and calls whose result is not
used, in the modules of `ROOMS`, on the tests of the files that name the module (`loaded.py` picks
and orders them). A change in a function is tried in a fork of a process that has loaded everything,
what runs as a module is loaded in a fork of one that has loaded no culmen. Whatever survived is
tried with `--all` on all tests of its room and its users. What changes nothing that a test could
see is in `explained/ROOM.toml`, by its module, its line and the change.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

from tests.mutations.places import Place, mutated, places_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "culmen"
EXPLAINED = Path(__file__).parent / "explained"
ROOMS = ("engine", "evidence", "strategies", "extensions/train/objectives.py")
FILES = 6  # test files a module is tried with
PATIENCE = 60.0  # seconds after which a trial in a fresh process counts as noticed: it hangs
ENOUGH = 4.0  # seconds of tests that a place is tried with, unless with all
SURVIVED = ("survived", "not executed")
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-n0"]


def modules(names: list[str]) -> list[Path]:
    """The modules to be tried, by their names or all."""
    chosen = [SOURCE / name for name in names or ROOMS]
    return sorted(
        file for each in chosen for file in ([each] if each.is_file() else each.rglob("*.py"))
    )


def files_for(module: Path, everything: bool) -> list[Path]:
    """Test files that name a module: those of its own room first, of these the smallest first."""
    room = ROOT / "tests" / module.relative_to(SOURCE).parts[0]
    found = _naming(module, (ROOT / "tests").rglob("test_*.py"))
    if everything or not found:  # tested through the modules that use it
        users = [user for user in _naming(module, SOURCE.rglob("*.py")) if user != module]
        of_users = [
            file for user in users for file in _naming(user, (ROOT / "tests").rglob("test_*.py"))
        ]
        if everything:
            tried_here = [
                file
                for file in of_users
                if file.parent.name in {Path(each).parts[0] for each in ROOMS}
            ]
            return sorted({*room.rglob("test_*.py"), *found, *tried_here})
        found = of_users
    found = found or [
        file for file in room.rglob("test_*.py") if f'"{module.stem}"' in file.read_text()
    ]
    found.sort(key=lambda f: (module.stem not in f.stem, room not in f.parents, f.stat().st_size))
    return list(dict.fromkeys(found))[:FILES]


def _naming(module: Path, files: Iterable[Path]) -> list[Path]:
    """The files that import a module, or have its name in theirs."""
    dotted = ".".join(module.relative_to(SOURCE.parent).with_suffix("").parts)
    package, _, name = dotted.rpartition(".")
    wanted = (f"{dotted} import", f"from {package} import {name}")
    return [
        f
        for f in files
        if f.stem.endswith(f"_{name}") or any(each in f.read_text() for each in wanted)
    ]


def tried(module: Path, place: Place | None, tests: Sequence[Path | str], patience: float) -> str:
    """`noticed`, `hangs` or `survived`: the verdict of the tests on a changed module.

    With None as place, the module is unchanged. Raises RuntimeError in a process that has loaded
    culmen: its forks would not load the change.
    """
    if any(name.partition(".")[0] == "culmen" for name in sys.modules):
        raise RuntimeError("culmen is loaded already")
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os._exit(_in_child(module, place, tests))
    end = time.monotonic() + patience
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"
        time.sleep(0.02)
    os.killpg(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"


def _in_child(module: Path, place: Place | None, tests: Sequence[Path | str]) -> int:
    import pytest

    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    if place is not None:
        sys.meta_path.insert(0, _Finder(module, place))
    with tempfile.TemporaryDirectory() as folder:
        return int(pytest.main([*OPTIONS, "-x", f"--basetemp={folder}/pytest", *map(str, tests)]))


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
        return spec_from_file_location(
            fullname, self._path, loader=_Changed(fullname, self._path, self._place)
        )


def trials(options: argparse.Namespace, known: set[str]) -> list[tuple[Path, Place]]:
    """Places to be tried: a random sample of all, less those already tried."""
    every = [
        (module, place)
        for module in modules(options.modules)
        for place in places_of(module.read_text())
    ]
    Random(0).shuffle(every)
    print(f"{len(every)} places in {len({module for module, _ in every})} modules")
    return [each for each in every[: options.sample or None] if _name(*each) not in known]


def _name(module: Path, place: Place) -> str:
    return f"{module.relative_to(SOURCE)}:{place.line}:{place.column}:{place.change}:{place.number}"


def explained() -> set[tuple[str, str]]:
    """Changes that no test can see, each as (module, "change | line")."""
    files = [tomllib.loads(file.read_text()) for file in sorted(EXPLAINED.glob("*.toml"))]
    return {
        (module, told)
        for file in files
        for module, all in file.items()
        for one in all
        for told in one["changes"]
    }


def told(module: Path, place: Place) -> tuple[str, str]:
    """A place as `explained` names it, whatever stands above it."""
    line = module.read_text().splitlines()[place.line - 1].strip()
    return str(module.relative_to(SOURCE)), f"{place.change} | {line}"


def report(rows: Iterable[dict[str, Any]], names: list[str]) -> None:
    """Print counts, and what survived of the modules as they are now and is not explained."""
    results, known = {row["name"]: row["result"] for row in rows}, explained()
    counts: dict[str, Counter[str]] = {}
    for module in modules(names):
        for place in places_of(module.read_text()):
            result, name = results.get(_name(module, place), "not tried"), told(module, place)
            if result in SURVIVED and name in known:
                result = "explained"
            elif result in SURVIVED:
                print(
                    f"{name[0]}:{place.line}",
                    name[1],
                    "" if result == "survived" else f"({result})",
                    sep="  ",
                )
            counts.setdefault(name[0], Counter())[result] += 1
    for name, each in [*counts.items(), ("together", sum(counts.values(), Counter[str]()))]:
        print(f"{name}:", ", ".join(f"{each[result]} {result}" for result in sorted(each)))


def run(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Try the places that were not tried; a row for each."""
    known = {row["name"] for row in rows if not (options.all and row["result"] in SURVIVED)}
    chosen = trials(options, known)
    with options.out.open("a") as out:
        for module in dict.fromkeys(module for module, _ in chosen):
            files = [file.resolve() for file in options.tests] or files_for(module, options.all)
            if not files:
                raise SystemExit(f"{module}: it has no tests")

            def tell(
                place: Place, result: str, killer: str, seconds: float, module: Path = module
            ) -> None:
                row = {
                    "name": _name(module, place),
                    "result": result,
                    "by": killer,
                    "seconds": round(seconds, 2),
                }
                out.write(json.dumps(row) + "\n")
                out.flush()

            enough = math.inf if options.all else options.enough
            left = _in_place(
                module, [place for of, place in chosen if of == module], files, tell, enough
            )
            for number, tests in left:  # what runs as the module is loaded
                place = next(
                    p for of, p in chosen if of == module and (p.number, p.change) == number
                )
                began = time.monotonic()
                result = tried(module, place, tests, PATIENCE) if tests else "not executed"
                tell(place, result, "", time.monotonic() - began)


def _in_place(
    module: Path,
    places: list[Place],
    files: list[Path],
    report: Callable[[Place, str, str, float], None],
    enough: float,
) -> list[tuple[tuple[int, str], list[str]]]:
    """Try the places in a process that has loaded everything.

    Returns those that need a fresh process, with their tests.
    """
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        import pytest

        from tests.mutations.loaded import Trials

        try:
            plugin = Trials(module, places, report, enough)
            with tempfile.TemporaryDirectory() as folder:
                pytest.main(
                    [*OPTIONS, f"--basetemp={folder}/pytest", *map(str, files)], plugins=[plugin]
                )
            print(
                f"{module.relative_to(SOURCE)}: {len(plugin.plan.seconds)} tests",
                *plugin.broken,
                flush=True,
            )
            left = [
                ((place.number, place.change), plugin.plan.tests_for(place))
                for place in plugin.left
            ]
            with os.fdopen(sink, "w") as told:
                told.write(json.dumps(left))
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return [((number, change), tests) for (number, change), tests in json.loads(said)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--modules", nargs="*", default=[], help="files or folders below src/culmen"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="so many places, drawn at random; 0: all"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="what survived, again: with every test file of the module's room and all that name the module",
    )
    parser.add_argument(
        "--tests",
        nargs="*",
        type=Path,
        default=[],
        help="test files, instead of those that name it",
    )
    parser.add_argument(
        "--enough", type=float, default=ENOUGH, help="seconds of tests that a place is tried with"
    )
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if not options.report:
        import hypothesis.internal.conjecture.engine  # loaded once, before the forks
        import hypothesis.strategies  # noqa: F401
        import numpy  # noqa: F401
        import pytest  # noqa: F401

        run(options, _rows(options.out))
    report(_rows(options.out), options.modules)


def _rows(file: Path) -> list[dict[str, Any]]:
    """The last row of each place."""
    rows = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return list({row["name"]: row for row in rows}.values())


if __name__ == "__main__":
    main()
