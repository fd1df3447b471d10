"""Recorded models (`--model bank:DIR`): candidates that models wrote before the run.

The search draws a program by its own random numbers and never twice; reading it is an effect, so
that its text and its price are journaled as those of a model's reply are.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from culmen.core.brief import BANK_EMPTY, Brief, Proposal, Text
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import UserError
from culmen.core.event import ProposeRequest, ReplyLimit, Request, WriteRequest
from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.core.options import BankProgram
from culmen.core.ports import Gateway, Lab, Permit, Proposer
from culmen.core.replies.names import part_names
from culmen.core.task import Task
from culmen.core.usage import Usage, total_usage
from culmen.models.gateway import ModelGateway
from culmen.models.spec import BankAddress, Roles

TABLE = "bank.toml"
FORMAT = "bank"  # the form of a request for a program, whose key is the brief's hypothesis
_BUILT = "setup.py"  # a folder with this file holds a program that needs a build
_LAYOUT = "put programs at DIR/MODEL/NAME{suffix}, or at DIR/MODEL/TASK/NAME{suffix}"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bank's `bank.toml`: dollars and notes of a model's programs, or of one, by path."""

    price: dict[str, float] = {}
    note: dict[str, str] = {}


class Listing(NamedTuple):
    """Programs of a bank for one task, and the folders left out because they need a build."""

    programs: tuple[BankProgram, ...]
    built: tuple[str, ...] = ()


def list_banks(addresses: Iterable[BankAddress], task: Task) -> tuple[BankProgram, ...]:
    """The programs of all these banks for a task, each once, in the order of their paths.

    Raises `UserError` for a bank that cannot be read or has no program for the task.
    """
    listed: dict[BankProgram, None] = {}
    for address in addresses:
        listed |= dict.fromkeys(list_bank(address, task).programs)
    return tuple(listed)


def list_bank(address: BankAddress, task: Task) -> Listing:
    """The programs of one bank for a task; raises `UserError` if there are none."""
    folder, suffix = address.path, Path(_program_part(task)).suffix
    where = f"--model {address.text}"
    if not folder.is_dir():
        raise UserError(f"there is no folder '{folder}'", where=where, fix="check the path")
    models = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if address.model:
        models = [_find_model(models, address)]
    table = _read_table(folder)
    _check_table(table, folder)
    files = [(m.name, f) for m in models for f in _program_files(m, task.name, suffix)]
    if not files:
        raise UserError(
            f"the bank has no program{suffix and f' ({suffix})'} for the task '{task.name}'",
            where=where,
            fix=_missing_programs_fix(models, suffix),
        )
    built = sorted({str(f.parent.relative_to(folder)) for _, f in files if _needs_build(f)})
    programs = tuple(
        _describe_program(folder, file, model, table)
        for model, file in files
        if not _needs_build(file)
    )
    if not programs:
        raise UserError(
            f"all programs of the bank need a build ({_BUILT}), which culmen does not do",
            where=where,
            fix=f"put plain {suffix} files into the bank",
        )
    return Listing(programs, tuple(built))


def _program_part(task: Task) -> str:
    """The one part of a candidate that a program of the bank fills."""
    first = next(iter(task.initial_candidates()), None)
    names = part_names(task, first).editable
    if len(names) != 1:
        raise UserError(
            f"a bank holds programs of one file; the task's candidates have {len(names)} parts",
            where=f"task {task.name}",
            fix="choose another --model",
        )
    return names[0]


def _find_model(models: Sequence[Path], address: BankAddress) -> Path:
    found = next((path for path in models if path.name == address.model), None)
    if found is None:
        known = ", ".join(path.name for path in models) or "none"
        raise UserError(
            f"the bank has no model '{address.model}'",
            where=f"--model {address.text}",
            fix=f"use one of its folders: {known}",
        )
    return found


def _program_files(model: Path, task: str, suffix: str) -> list[Path]:
    """The program files of one model: in its own folder, else in the one named as the task.

    All files if the task's program has no suffix.
    """
    own = _files_in(model, suffix)
    return own if own or not (model / task).is_dir() else _files_in(model / task, suffix)


def _files_in(folder: Path, suffix: str) -> list[Path]:
    files = (path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")
    return sorted(p for p in files if p.suffix == (suffix or p.suffix) and p.name != _BUILT)


def _needs_build(file: Path) -> bool:
    return (file.parent / _BUILT).is_file()


def _missing_programs_fix(models: Sequence[Path], suffix: str) -> str:
    tasks = sorted({p.name for model in models for p in model.iterdir() if p.is_dir()})
    layout = _LAYOUT.format(suffix=suffix)
    if not tasks:
        return layout
    more = ", ..." if len(tasks) > 8 else ""
    return f"{layout}; it has folders for the tasks {', '.join(tasks[:8])}{more}"


def _read_table(folder: Path) -> _Table:
    file = folder / TABLE
    if not file.is_file():
        return _Table()
    try:
        import tomllib

        return msgspec.convert(tomllib.loads(text_inside(file.parent, file.name)), _Table)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{TABLE} is not valid: {error}", where=str(file), fix="see: culmen docs models"
        ) from None


def _check_table(table: _Table, folder: Path) -> None:
    """Refuse negative prices and entries for paths that do not exist."""
    for name, dollars in table.price.items():
        if not 0 <= dollars < float("inf"):
            raise UserError(
                f"the price of '{name}' is {dollars}, not a number of dollars from 0 upwards",
                where=str(folder / TABLE),
            )
    for name in (*table.price, *table.note):
        if not (folder / name).exists():
            raise UserError(
                f"{TABLE} names '{name}', which is not in the bank",
                where=str(folder / TABLE),
                fix="name a model's folder or a program's file, relative to the bank",
            )


def _describe_program(folder: Path, file: Path, model: str, table: _Table) -> BankProgram:
    path = file.relative_to(folder).as_posix()
    pieces = path.split("/")
    # the file's own entry first, then those of the folders above it
    names = ["/".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
    price = next((table.price[name] for name in names if name in table.price), None)
    note = next((table.note[name] for name in names if name in table.note), "")
    raw = _read_program(folder, path)
    digest = hashlib.sha256(raw.encode()).hexdigest()
    return BankProgram(str(folder), path, model, digest, price, note)


def _read_program(folder: str | Path, path: str) -> str:
    """A program's text; raises `UserError` if it cannot be read."""
    try:
        return text_inside(Path(folder), path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"a program of the bank cannot be read: {error}",
            where=str(Path(folder) / path),
            fix="restore the file; culmen resume RUN goes on from there",
        ) from None


class BankGateway(Gateway):
    """Reads the programs that a search has drawn; passes all other requests on to models.

    Roles without a model that can be asked get no prose, as in an offline search.
    """

    def __init__(
        self, task: Task, models: ModelGateway, roles: Roles, programs: Sequence[BankProgram]
    ) -> None:
        self._task, self._models, self._roles = task, models, roles.without_banks()
        self._programs = {program.key: program for program in programs}
        self.answerer = models.answerer

    def begin(self, permit: Permit) -> None:
        """See `core.ports.Gateway`."""
        self._models.begin(permit)

    async def propose(
        self, brief: Brief, seed: int, *, limit: ReplyLimit | None = None
    ) -> Proposal:
        """The drawn program, or the fault `bank_empty`; other briefs go to the models."""
        if brief.format != FORMAT:
            return await self._models.propose(brief, seed, limit=limit)
        if not brief.hypothesis:
            return Proposal(fault=BANK_EMPTY)
        program = self._programs[brief.hypothesis]
        text = await asyncio.to_thread(_read_program, program.folder, program.path)
        if hashlib.sha256(text.encode()).hexdigest() != program.digest:
            raise UserError(
                "a program of the bank has changed since the run was made",
                where=str(Path(program.folder) / program.path),
                fix="restore the file, or start a new run",
            )
        candidate = self._candidate_of(program, text, brief.island)
        usage = _draw_usage(program)
        return Proposal((candidate,), model=program.model, usage=usage, reply=text)

    def _candidate_of(self, program: BankProgram, text: str, island: int | None) -> Candidate:
        """The program as a candidate without parents."""
        first = next(iter(self._task.initial_candidates()), None)
        parts = {**(first.parts if first else {}), _program_part(self._task): text}
        note = f"{program.path}: {program.note}" if program.note else program.path
        return Candidate.of(parts, (), Origin("bank", program.model, island=island, note=note))

    async def write(
        self, role: str, slots: JsonObject, seed: int, *, limit: ReplyLimit | None = None
    ) -> Text:
        """Prose by the role's model; none, and no fault, if the role has programs only."""
        if self._roles.pick_model(role, seed) is None:
            return Text(model="offline")
        return await self._models.write(role, slots, seed, limit=limit)

    def estimate(self, request: Request) -> Usage:
        """The price of a draw; see `core.ports.Gateway` for other requests."""
        drawn = self._drawn_usage(request)
        return self._models.estimate(request) if drawn is None else drawn

    def most(self, request: Request) -> Usage:
        """The price of a draw; see `core.ports.Gateway` for other requests."""
        drawn = self._drawn_usage(request)
        return self._models.most(request) if drawn is None else drawn

    def _drawn_usage(self, request: Request) -> Usage | None:
        """Cost of a request that asks no model; None for those that do."""
        if isinstance(request, ProposeRequest) and request.brief.format == FORMAT:
            program = self._programs.get(request.brief.hypothesis)
            return Usage() if program is None else _draw_usage(program)
        if isinstance(request, WriteRequest) and not self._roles.members(request.role):
            return Usage()
        return None

    async def close(self) -> None:
        """Close the models' connections."""
        await self._models.close()


def _draw_usage(program: BankProgram) -> Usage:
    """One call, at the bank's price."""
    unknown = program.price is None
    return Usage(calls=1, dollars=program.price or 0.0, unpriced=1 if unknown else 0)


@dataclass(frozen=True)
class _Member:
    """A member of a role's ensemble: indices of its programs; None for a model to be asked."""

    weight: float
    programs: tuple[int, ...] | None


class BankProposer(Proposer):
    """Draws programs without replacement; an ensemble's models are asked through `models`.

    A role's members are drawn by their weights, those without programs left excepted. A draw is
    independent of the brief's parent and of everything observed. When nothing is left, a request
    has the fault `bank_empty`, which ends the search.
    """

    def __init__(self, roles: Roles, programs: Sequence[BankProgram], models: Proposer) -> None:
        self._roles, self._programs, self._models = roles, tuple(programs), models
        self._drawn: set[int] = set()

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Up to `brief.k` candidates, from the bank and from models."""
        members = self._role_members(brief.role)
        if all(member.programs is None for member in members):
            return await self._models.propose(lab, brief)
        draws: list[int] = []
        asked = 0
        for _ in range(max(1, brief.k)):
            left = [member for member in members if member.programs is None or self._left(member)]
            if not left:
                break
            member = lab.rng.choices(left, [member.weight for member in left])[0]
            if member.programs is None:
                asked += 1
                continue
            draws.append(lab.rng.choice(self._left(member)))
            self._drawn.add(draws[-1])
        keys = [self._programs[index].key for index in draws]
        requests: list[Coroutine[object, None, Proposal]] = [
            lab.ask(_draw_brief(brief, key)) for key in keys
        ]
        if asked:
            one = msgspec.structs.replace(brief, k=asked)
            requests.append(self._models.propose(lab, one))
        return _merge_proposals(
            await lab.gather(*(requests or [lab.ask(_draw_brief(brief, ""))])), brief.k
        )

    def _role_members(self, role: str) -> list[_Member]:
        """The members of a role's ensemble."""
        found: list[_Member] = []
        for member in self._roles.members(role):
            bank = member.model.bank
            found.append(_Member(member.weight, None if bank is None else self._indices_of(bank)))
        return found

    def _indices_of(self, bank: BankAddress) -> tuple[int, ...]:
        folder = str(bank.path)
        return tuple(
            index
            for index, program in enumerate(self._programs)
            if program.folder == folder and bank.model in ("", program.model)
        )

    def _left(self, member: _Member) -> list[int]:
        return [index for index in member.programs or () if index not in self._drawn]


def _draw_brief(brief: Brief, key: str) -> Brief:
    """The request for the program with this key; "" if none is left."""
    return Brief(format=FORMAT, role=brief.role, island=brief.island, hypothesis=key)


def _merge_proposals(answers: Sequence[Proposal], wanted: int) -> Proposal:
    """One proposal of several; its usage is for display, since each part is charged by itself."""
    if len(answers) == 1:
        return answers[0]
    candidates = tuple(candidate for answer in answers for candidate in answer.candidates)
    faults = [answer.fault for answer in answers if answer.fault]
    return Proposal(
        candidates=candidates,
        fault=faults[0] if faults else "" if len(candidates) >= wanted else "too_few",
        model=", ".join(dict.fromkeys(answer.model for answer in answers if answer.model)),
        usage=total_usage(answer.usage for answer in answers),
    )
