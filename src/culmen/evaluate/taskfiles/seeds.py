"""The seeds a task.toml names: files, patterns, folders or texts, as named parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from culmen.core.errors import TaskError
from culmen.evaluate.taskfiles.places import missing, read_text
from culmen.evaluate.taskfiles.schema import SeedTable, Source
from culmen.evaluate.taskfiles.surface import is_text, safe_name

Seeds = tuple[dict[str, str], ...]


def read_seeds(source: Source) -> tuple[Seeds, tuple[Path, ...]]:
    """The seeds and the files they came from; none if there is no [seed]. Raises `TaskError`."""
    table, root = source.table.seed, source.path.parent
    if table is None:
        return (), ()
    together = bool(table.files or table.glob or table.parts)
    if together + bool(table.folders) + bool(table.each) != 1:
        fix = "use files, glob and parts for one seed, or folders for several, or each for several of one file"
        raise source.fault("[seed] must say in one way where the seeds are", "", "seed", fix)
    if together:
        named = _together(source, table, root)
    elif table.folders:
        named = [_folder(source, root / name) for name in table.folders]
    else:
        name = table.name or f"program{Path(table.each[0]).suffix}"
        named = [{name: _file(source, "each", root, each)} for each in table.each]
    seeds = tuple({name: _text(place) for name, place in seed.items()} for seed in named)
    _check(source, seeds)
    return seeds, tuple(place for seed in named for place in seed.values() if isinstance(place, Path))


def check_text(text: str, where: str) -> None:
    """Raises `TaskError` for a seed text that is empty or cannot be stored."""
    if not text.strip():
        raise TaskError("the seed is empty", where=where, fix="write a first version into it, however simple")
    if not is_text(text):
        raise TaskError("the seed holds NUL characters", where=where, fix="save it as plain UTF-8 text")


def _together(source: Source, table: SeedTable, root: Path) -> list[dict[str, Path | str]]:
    found = [_file(source, "files", root, name) for name in table.files]
    if table.glob:
        matched = [p for p in sorted(_glob(source, table.glob, root)) if p.is_file() and p not in found]
        if not matched and not found:
            raise source.fault(f"no file matches '{table.glob}'", "seed", "glob", "correct the pattern")
        found += matched
    seed: dict[str, Path | str] = {}
    for path in found:
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        if name in seed:
            raise source.fault(f"two parts are called '{name}'", "seed", "files", "name every part once")
        seed[name] = path
    for name, text in table.parts.items():
        if name in seed or not safe_name(name):
            fix = "use a plain name that no seed file has"
            raise source.fault(f"a part cannot be called '{name}'", "seed", "parts", fix)
        seed[name] = text
    return [seed]


def _glob(source: Source, pattern: str, root: Path) -> list[Path]:
    try:
        return list(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise source.fault(f"bad pattern: {error}", "seed", "glob", 'use a relative one like "prompts/*.txt"') from None


def _folder(source: Source, folder: Path) -> dict[str, Path | str]:
    if not folder.is_dir():
        raise missing(folder, f"{source.path} (seed.folders)")
    visible = (p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    parts: dict[str, Path | str] = {p.relative_to(folder).as_posix(): p for p in visible if p.name[0] != "."}
    if not parts:
        raise source.fault(f"folder '{folder.name}' holds no files", "seed", "folders", "put the seed's files there")
    return parts


def _file(source: Source, key: str, root: Path, name: str) -> Path:
    path = (root / name).resolve()
    if not path.is_file():
        raise missing(path, f"{source.path} (seed.{key})")
    return path


def _text(place: Path | str) -> str:
    return read_text(place) if isinstance(place, Path) else place


def _check(source: Source, seeds: Seeds) -> None:
    for number, seed in enumerate(seeds, 1):
        for name, text in seed.items():
            check_text(text, f"{source.path} (seed {number}, part {name})")
        if seed.keys() != seeds[0].keys():
            what = f"seed {number} has the parts {_names(seed)}, seed 1 has {_names(seeds[0])}"
            raise source.fault(what, "", "seed", "give all seeds the same part names")
        if sum(map(len, seed.values())) > source.table.surface.max_chars:
            what = f"seed {number} is longer than surface.max_chars = {source.table.surface.max_chars}"
            raise source.fault(what, "surface", "max_chars", "raise max_chars or shorten the seed")


def _names(seed: Mapping[str, str]) -> str:
    return ", ".join(seed)
