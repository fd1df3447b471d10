"""`culmen mcp`: a server of the Model Context Protocol on standard input and output.

Coding agents search with it. Every tool is a verb of the command line in a process of its own, so
that both return the same. A run goes on when the server ends.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import CulmenError, NothingScored, UserError, missing_extra
from culmen.core.foreign import boundary, without_surrogates
from culmen.core.json import JsonObject
from culmen.core.options import RUN_SETTINGS
from culmen.core.usage import Budget
from culmen.report.summary import check_scored
from culmen.store import views
from culmen.store.address import has_run
from culmen.strategies.catalog import WITH_AGENTS, strategy_paths

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from pydantic import ValidationError

_Tool = Callable[..., Awaitable[JsonObject]]
_PATIENCE = 60.0  # seconds a run may take to write its first event
_LONG = 40_000  # characters of a text that one answer, or an argument, carries
_VERB_SECONDS = 900.0  # a check or an audit that takes longer is ended
TOOLS = (
    "new",
    "check",
    "audit",
    "judge",
    "run",
    "resume",
    "status",
    "best",
    "story",
    "diff",
    "explain",
    "tell",
    "stop",
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,80}")
_PATTERN = re.compile(r"[*?\[]")
_BANK = re.compile(r"bank:([^#|,]*)")  # the folder of recorded programs

INSTRUCTIONS = (
    "culmen searches for a better program, prompt or other text, against an evaluator, "
    "within a budget.\n"
    "1. new writes an example task: task.toml, an initial program, evaluator.py. Edit these "
    "files for the problem at hand.\n"
    "2. check runs the initial program: is the score right, repeatable, sensitive? audit "
    "tries to game the evaluator. Repair\n"
    "   what they find before any budget is spent.\n"
    "3. run returns at once. Ask status every minute or so (not more often); tell sends a "
    "hint or a candidate; stop ends it;\n"
    "   resume goes on with a run that was interrupted, or with more budget where one has "
    "ended.\n"
    "4. best, story and diff show what came out, and which steps made the gain. Report the score "
    "with its margin and\n"
    "   whether it is beyond noise, as they say it.\n"
    "An edit of your own needs no search: judge says if it is better, by any command that prints "
    "a number.\n"
)

Folders = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FOLDER", help="Folders the agent may use, nothing else. Default: the current one."
    ),
]


def mcp(
    screen: Screen,
    folders: Folders = None,
    evaluations: Annotated[
        int, typer.Option(min=1, help="Evaluations that one run may be given.")
    ] = 10_000,
    dollars: Annotated[float, typer.Option(min=0, help="Dollars that one run may be given.")] = 5.0,
    seconds: Annotated[
        float, typer.Option(min=1, help="Seconds that one run may be given.")
    ] = 86_400.0,
    confirm: Annotated[
        str,
        typer.Option(
            metavar="COMMAND", help="Hold-out of judge, which the agent does not get to see."
        ),
    ] = "",
) -> Answer:
    """Serve coding agents over the Model Context Protocol, on standard input and output.

    An agent's settings name this command. Tools: new, check, audit, judge, run, resume, status,
    best, story, diff, explain, tell, stop.
    """
    for folder in folders or ():
        if not folder.is_dir():
            raise UserError(
                f"there is no folder {folder}", where="culmen mcp", fix=f"mkdir -p {folder}"
            )
    if sys.stdin.isatty():
        screen.err.print(
            "This serves a program, not a person: name it in your agent's settings.", style="dim"
        )
    limits = {"evaluations": float(evaluations), "dollars": dollars, "seconds": seconds}
    serve_tools(AllowedFolders(folders or [Path()]), limits, confirm)
    raise typer.Exit


def serve_tools(folders: AllowedFolders, limits: dict[str, float], confirm: str = "") -> None:
    """Answer until standard input ends."""
    try:
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise missing_extra(
            "the server for coding agents", "mcp (2 or newer)", "mcp", "culmen mcp"
        ) from None
    tools = Tools(folders, limits, confirm)

    def report_mistakes(tool: _Tool) -> _Tool:
        """The tool with `UserError` as `ToolError`, which is returned and not logged as a crash."""
        import functools

        @functools.wraps(tool)
        async def call(**arguments: object) -> JsonObject:
            try:
                return await tool(**arguments)
            except UserError as error:
                raise ToolError(str(error)) from None

        return call

    server = _make_server(tools, folders)
    for name in TOOLS:
        server.add_tool(report_mistakes(getattr(tools, name)), name=name)
    server.run("stdio")


def _make_server(tools: Tools, folders: AllowedFolders) -> MCPServer:
    """A server that refuses unknown, missing and unfit arguments in plain words."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import ValidationError

    from culmen.core import VERSION

    class CheckedServer(MCPServer):
        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                if name in TOOLS:
                    check_arguments(name, getattr(tools, name), arguments, folders)
                return await super().call_tool(name, arguments, context)
            except UserError as error:
                raise ToolError(str(error)) from None
            except ToolError as error:
                if isinstance(error.__cause__, ValidationError):
                    raise ToolError(_unfit_text(name, error.__cause__)) from None
                raise

    return CheckedServer("culmen", version=VERSION, instructions=INSTRUCTIONS, log_level="ERROR")


@boundary()
def check_arguments(
    name: str, tool: Callable[..., object], arguments: Mapping[str, object], folders: AllowedFolders
) -> None:
    """Raise `UserError` for arguments that a tool does not have, or that it needs and lacks.

    Also for texts that no command line can hold.
    """
    known = inspect.signature(tool).parameters
    unknown = [argument for argument in arguments if argument not in known]
    if unknown:
        raise UserError(
            f"the tool {name} has no argument '{unknown[0]}'",
            where=name,
            fix=f"it takes {', '.join(known)}",
        )
    for argument, value in arguments.items():
        _check_text(name, argument, "\n".join(_texts_in(value)))
    given = set(arguments)
    for each in known.values():
        if each.default is each.empty and each.name not in given:
            runs = f"known runs: {', '.join(folders.known_runs()) or 'none'}"
            raise UserError(
                f"the tool {name} needs the argument '{each.name}'",
                where=name,
                fix=runs if each.name == "run" else f"it takes {', '.join(known)}",
            )


def _check_text(name: str, argument: str, text: str) -> None:
    """Raise `UserError` for a text that cannot be a word of a command: the system refuses it."""
    where, words = f"'{argument}' of {name}", "a character that no command can hold"
    if "\0" in text or without_surrogates(text) != text:
        raise UserError(f"there is {words}", where=where, fix="leave out NUL and half characters")
    if len(text) > _LONG:
        raise UserError(
            "the text is too long", where=where, fix=f"use at most {_LONG:,} characters"
        )


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts_in([*value, *value.values()])
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts_in(each)


def _unfit_text(name: str, error: ValidationError) -> str:
    """One line for arguments of a wrong type."""
    unfit = (
        f"'{'.'.join(map(str, each['loc']))}': {each['msg'].lower()}" for each in error.errors()
    )
    return f"arguments of the tool {name} do not fit: {'; '.join(unfit)}"


class Tools:
    """The tools: each returns the output of its verb with --json.

    `limits` holds the largest budget of one run, `confirm` the hold-out command of `judge`.
    """

    def __init__(
        self, folders: AllowedFolders, limits: dict[str, float], confirm: str = ""
    ) -> None:
        self._folders, self._limits, self._confirm = folders, limits, confirm

    async def new(self, folder: str, example: str = "") -> JsonObject:
        """Write an example task into a new folder, with comments.

        The task has task.toml, an initial program and evaluator.py. `example` names a built-in task
        to copy instead ("": a short one).
        """
        chosen = [f"--example={example}"] if example else []
        return await self._verb_document("new", str(self._folders.resolve_path(folder)), *chosen)

    async def check(self, task: str) -> JsonObject:
        """Evaluate the initial program of a task several times.

        Returns score, noise, seconds, isolation, and `findings`, which is empty for a task that is
        ready. `task` is a task folder or an evaluator file. Takes seconds to minutes.
        """
        return await self._verb_document("check", str(self._folders.resolve_task(task)))

    async def audit(self, task: str, seconds: float = 120.0) -> JsonObject:
        """Try to game the task's evaluator, before any budget is spent.

        Outcomes with result "broken" or "look" show the gain of a candidate that cheats, and the
        change that prevents it.
        """
        return await self._verb_document(
            "audit", str(self._folders.resolve_task(task)), f"--seconds={max(1.0, seconds):g}"
        )

    async def judge(
        self,
        folder: str,
        edit: list[str],
        command: list[str],
        against: str = "",
        metric: str = "",
        direction: str = "max",
        gain: str = "",
        pairs: int = 60,
    ) -> JsonObject:
        """Judge an edit: run a command with and without it, in pairs, until the answer is clear.

        Verdicts: better, worse, no difference that matters, cannot tell (`more_pairs` would).
        `edit` are the edited files of `folder`; before is the git revision or folder `against`
        ("": HEAD). The metric is the last number printed, or `metric`: a line with {}, a JSON key,
        "exit" or "seconds". `gain` is the smallest that matters, as 0.5 or 2%. Every ask spends of
        the error rate that all asks share: ask once an edit. Ended after 15 minutes.
        """
        place = self._folders.resolve_path(folder)
        if not place.is_dir():
            raise UserError(f"there is no folder {place}", where="judge", fix="name one that is")
        words = ["judge", *(f"--edit={name}" for name in edit), f"--direction={direction}"]
        words += [f"--metric={metric}", f"--gain={gain}", f"--pairs={pairs}"]
        if against and os.path.isdir(place / against):  # False also for names that none can have
            against = str(self._folders.resolve_path(str(place / against)))
        words += [f"--against={against}"] if against else []
        words += [f"--confirm={self._confirm}"] if self._confirm else []
        # `--json` comes behind the other words, so the command is an option here
        return await self._verb_document(*words, f"--command={shlex.join(command)}", home=place)

    async def run(
        self,
        task: str,
        evaluations: int = 0,
        seconds: float = 0.0,
        dollars: float = 0.0,
        model: str = "offline",
        strategy: str = "",
        settings: dict[str, str] | None = None,
        seed: int = 0,
        name: str = "",
    ) -> JsonObject:
        """Start a search and return at once, with the name of the run.

        The name is for status, best, diff, tell and stop. At least one of `evaluations`, `seconds`
        and `dollars` ends the run. `model` is a name such as "gpt-5-mini", whose key is in the
        server's environment, or "offline": edits without a language model. `strategy` "" is the
        default.
        """
        path = self._folders.resolve_task(task)
        for bank in _BANK.findall(model):
            self._folders.resolve_path(bank)
        folder = self._folders.new_run(
            name or f"{path.stem if path.is_file() else path.name}-{time.time_ns() // 10**6}"
        )
        budget = self._checked_budget(
            {"evaluations": evaluations, "seconds": seconds, "dollars": dollars}
        )
        words = [
            "run",
            str(path),
            f"--run-dir={folder}",
            f"--budget={budget}",
            f"--model={model}",
            f"--seed={seed}",
        ]
        if strategy:
            words.append(f"--strategy={self._allowed_strategy(strategy)}")
        words += [
            f"--set={_strategy_setting(key)}={value}" for key, value in (settings or {}).items()
        ]
        return await self._start_run(words, folder, lambda: _is_readable(folder))

    async def resume(
        self,
        run: str,
        evaluations: int = 0,
        seconds: float = 0.0,
        dollars: float = 0.0,
        name: str = "",
    ) -> JsonObject:
        """Go on with an interrupted run, under its own limits; returns at once, as run does.

        With a budget, start a new run with that much more, which takes over the results of the old
        one and pays for nothing twice: use this if a budget has ended. `name` is the name of the
        new run.
        """
        path = self._folders.resolve_run(run)
        now, meta = await asyncio.to_thread(lambda: (views.run_status(path), views.run_meta(path)))
        if meta.strategy.get("path") == strategy_paths().get(WITH_AGENTS):
            raise UserError(
                "a search with coding agents is not resumed here",
                fix=f"a person can: culmen resume {run}",
            )
        self._folders.resolve_task(meta.task.root)
        more = {"evaluations": evaluations, "seconds": seconds, "dollars": dollars}
        if any(more.values()):
            folder = self._folders.new_run(name or f"{path.name}-{time.time_ns() // 10**6}")
            words = [
                *("runs", "fork"),
                str(path),
                f"--run-dir={folder}",
                f"--budget={self._fork_budget(meta.budget, more)}",
            ]
            return await self._start_run(words, folder, lambda: _is_readable(folder))
        if now.is_finished or now.state == "running":
            what = (
                "running: ask status"
                if now.state == "running"
                else "finished: give more evaluations, or dollars"
            )
            raise UserError(
                f"the run is {what}",
                where=path.name,
                fix="without more budget, only an interrupted run is resumed",
            )
        return await self._start_run(
            ["resume", str(path)], path, lambda: views.run_status(path).state == "running"
        )

    async def status(self, run: str = "") -> JsonObject:
        """State of a run, with evaluations, best and cost.

        States: running, finished, failed, interrupted. `problem` gives the reason if nothing
        scored. Without a run, all runs are listed.
        """
        if not run:
            return await self._verb_document("status", "--all")
        path = self._folders.resolve_run(run)
        now = await self._verb_document("status", str(path))
        try:
            await asyncio.to_thread(check_scored, path)
        except NothingScored as error:
            now["problem"] = str(error)
        return now

    async def best(self, run: str, out: str = "") -> JsonObject:
        """The best candidate: its texts (`parts`), and its score against the initial program.

        The score has a margin and the way it was measured. With `out`, the files of the candidate
        are also written into that folder.
        """
        chosen = [f"--out={self._folders.resolve_path(out)}"] if out else []
        return await self._verb_document("best", str(self._folders.resolve_run(run)), *chosen)

    async def story(self, run: str) -> JsonObject:
        """Tell the few steps that made the gain of a run, and what was tried in vain.

        `steps` have a sentence, the candidate `id`, `gain` with `gain_margin`, `share` of the whole
        gain (0..1) and the cost since the step before; `why` says why there are none.
        """
        return await self._verb_document("story", str(self._folders.resolve_run(run)))

    async def diff(self, run: str, first: str = "seed", second: str = "best") -> JsonObject:
        """Difference between two candidates: ids, "best", or "seed" for the initial program."""
        return await self._verb_document(
            *("show", str(self._folders.resolve_run(run))),
            *(_checked_id(second), f"--diff={_checked_id(first)}"),
        )

    async def explain(self, run: str, evaluation: str = "") -> JsonObject:
        """Reason for an evaluation: actions considered, with gains and costs, and its result.

        `evaluation` is a number from 1, or the id of a candidate; "" is the latest one.
        """
        chosen = [_checked_id(evaluation)] if evaluation else []
        return await self._verb_document(
            "show", str(self._folders.resolve_run(run)), *chosen, "--explain"
        )

    async def tell(self, run: str, hint: str = "", candidate: str = "") -> JsonObject:
        """Send a running search a hint for the models that propose, or a candidate.

        `candidate` is the path of a file to evaluate.
        """
        words = [f"--hint={hint}"] if hint else []
        words += [f"--candidate={self._folders.resolve_path(candidate)}"] if candidate else []
        return await self._verb_document(
            "runs", "tell", str(self._folders.resolve_run(run)), *words
        )

    async def stop(self, run: str) -> JsonObject:
        """End a running search now, with a final choice from its candidates.

        It takes a while until the run is finished.
        """
        return await self._verb_document("runs", "stop", str(self._folders.resolve_run(run)))

    def _fork_budget(self, old: Budget, more: dict[str, float]) -> str:
        """Limits, as `fork` takes them, of a run that goes on after one with the limits `old`."""
        wanted = {name: value for name, value in more.items() if value}
        for name, value in wanted.items():
            if value < 0:
                raise UserError(
                    f"{name} = {value:g} is negative",
                    where="resume",
                    fix="give how much more",
                )
            if getattr(old, name) is None and name != "seconds":
                raise UserError(
                    f"the run had no limit on {name}",
                    where="resume",
                    fix="give more seconds instead",
                )
        self._checked_budget(
            {
                name: value + (getattr(old, name) if name != "seconds" else 0)
                for name, value in wanted.items()
            }
        )
        kept = {name: getattr(old, name) for name in ("seconds", "dollars") if name not in wanted}
        limits = {
            name: min(self._limits[name], value or self._limits[name])
            for name, value in kept.items()
        }
        added = [f"{name}=+{value:g}" for name, value in wanted.items()]
        return ",".join(added + [f"{name}={value:g}" for name, value in limits.items()])

    def _checked_budget(self, wanted: dict[str, float]) -> str:
        chosen = {name: value for name, value in wanted.items() if value}
        if not chosen or min(chosen.values()) < 0:
            raise UserError(
                "nothing ends this run", where="run", fix="give evaluations, seconds or dollars"
            )
        for name, value in chosen.items():
            if value > self._limits[name]:
                fix = (
                    f"give at most {self._limits[name]:g}; a person can raise that: culmen mcp "
                    f"--{name}"
                )
                raise UserError(
                    f"{name} = {value:g} is more than a run may be given here", where="run", fix=fix
                )
        limits = {"seconds": self._limits["seconds"], "dollars": self._limits["dollars"], **chosen}
        return ",".join(f"{name}={value:g}" for name, value in limits.items())

    def _allowed_strategy(self, name: str) -> str:
        file, _, cls = name.rpartition(":")
        if file:
            return f"{self._folders.resolve_path(file)}:{cls}"
        if name not in strategy_paths() or name == WITH_AGENTS:
            known = ", ".join(each for each in strategy_paths() if each != WITH_AGENTS)
            raise UserError(
                f"there is no strategy '{name}' here", where="run", fix=f"use one of {known}"
            )
        return name

    async def _verb_document(self, *words: str, home: Path | None = None) -> JsonObject:
        """One verb's document, asked in `home`; raises `UserError` with its message."""
        command = [sys.executable, "-m", "culmen.cli.main", *words, "--json"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=home or self._folders.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _VERB_SECONDS)
        except TimeoutError:
            raise UserError(
                f"{_verb_name(words)} took more than {_VERB_SECONDS:.0f} s",
                fix="make the evaluator faster, or ask for less",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return _parse_verb_output(out, _verb_name(words))

    async def _start_run(
        self, words: list[str], folder: Path, begun: Callable[[], bool]
    ) -> JsonObject:
        """Start a run that outlives this server; its name once it has `begun`.

        Raises `UserError` if the run ends before.
        """
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "culmen.cli.main", *words, "--quiet", "--json"],
                cwd=self._folders.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            until = time.monotonic() + _PATIENCE
            while process.poll() is None and time.monotonic() < until:
                if await asyncio.to_thread(begun):
                    return {
                        "run": folder.name,
                        "path": str(folder),
                        "next": f"status with run = {folder.name}",
                    }
                await asyncio.sleep(0.1)  # seconds between two looks for it
            if process.poll() is None:
                process.kill()
                raise UserError(
                    f"the run wrote nothing for {_PATIENCE:.0f} s",
                    where=str(folder),
                    fix="check the task",
                )
            output.seek(0)
            return _parse_verb_output(output.read(), _verb_name(words))


def _is_readable(run: Path) -> bool:
    try:
        views.run_meta(run)
    except CulmenError:
        return False
    return True


def _verb_name(words: Sequence[str]) -> str:
    return words[1] if words[0] == "runs" else words[0]


def _parse_verb_output(out: bytes, verb: str) -> JsonObject:
    """A verb's JSON, long texts cut; raises `UserError` if it is an error."""
    try:
        document: JsonObject = json.loads(out)
    except ValueError:
        raise UserError(
            f"culmen {verb} ended without an answer", fix="culmen doctor shows what is missing"
        ) from None
    if "error" in document:
        error = document["error"]
        raise UserError(error["what"], where=error["where"], fix=error["next"])
    return {name: _cut_long_texts(value) for name, value in document.items()}


def _cut_long_texts(value: object) -> object:
    if isinstance(value, str) and len(value) > _LONG:
        return f"{value[:_LONG]}\n[{len(value) - _LONG} characters left out]"
    if isinstance(value, dict):
        return {key: _cut_long_texts(each) for key, each in value.items()}
    return [_cut_long_texts(each) for each in value] if isinstance(value, list) else value


def _strategy_setting(name: str) -> str:
    """The name of a setting; UserError for those of the run, which reach beyond the folders."""
    plain = name.strip().replace("-", "_")
    if plain in RUN_SETTINGS or plain.startswith("backend."):
        raise UserError(f"'{name}' is not a setting of a strategy", where="run", fix="leave it out")
    return name


def _checked_id(text: str) -> str:
    if text in ("best", "seed") or (text.isalnum() and len(text) <= 64):
        return text
    raise UserError(f"'{text}' is not a candidate", fix="give an id, best or seed")


class AllowedFolders:
    """The folders that culmen reads and writes for a caller that is a program.

    Its methods make a caller's paths absolute, follow links, and raise `UserError` for paths
    outside the folders.

    `folders` exist; relative paths begin in the first one, which also holds `runs`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folder.resolve(strict=True) for folder in folders)
        self.home = self.folders[0]
        self.runs = self.home / "runs"

    def resolve_path(self, text: str) -> Path:
        """An existing or future path inside the folders."""
        if not text or "\0" in text:
            raise UserError("no path was given", fix=f"name a path inside {self._folder_list()}")
        if any(len(part) > 255 for part in text.encode("utf-8", "replace").split(b"/")):
            raise UserError("a name is too long for a file", fix="use at most 255 bytes a name")
        path = (self.home / text).resolve()
        if not self._is_inside(path):
            raise UserError(
                f"{path} lies outside the folders that are open to you",
                fix=f"use {self._folder_list()}",
            )
        return path

    def resolve_task(self, name: str) -> Path:
        """A task whose folder, links and `task.toml` stay inside the folders."""
        path = self.resolve_path(name)
        if not path.exists():
            raise UserError(
                f"there is no task {path}",
                fix="new writes one; or give the path of a folder or evaluator",
            )
        folder = path if path.is_dir() else path.parent
        for link in _symbolic_links(folder):
            self.resolve_path(str(link))
        settings = folder / "task.toml"
        if settings.is_file():
            for text in _settings_texts(_read_toml(settings)):
                self._refuse_outside(folder, text)
        return path

    def resolve_run(self, text: str) -> Path:
        """A run, by its name in `runs` or by its path."""
        self.resolve_path(text)  # refuses what is no name at all
        named = self.runs / text
        path = self.resolve_path(str(named if _NAME.fullmatch(text) and has_run(named) else text))
        if not has_run(path):
            raise UserError(
                f"there is no run '{text}'",
                where=str(self.runs),
                fix=f"known: {', '.join(self.known_runs()) or 'none'}",
            )
        return path

    def known_runs(self) -> list[str]:
        """Names of the runs in `runs`."""
        if not self.runs.is_dir():
            return []
        return sorted(each.name for each in self.runs.iterdir() if has_run(each))

    def new_run(self, name: str) -> Path:
        """The folder of a run that is to begin; `name` is a plain word."""
        if not _NAME.fullmatch(name):
            raise UserError(f"'{name}' is not a name for a run", fix="use letters, digits, - and _")
        path = self.resolve_path(str(self.runs / name))
        if has_run(path):  # a run that stands there would be taken for the new one
            raise UserError(
                f"there is a run '{name}'", where=str(self.runs), fix="use another name"
            )
        return path

    def _refuse_outside(self, folder: Path, text: str) -> None:
        """Refuse a text that names an existing path outside the folders.

        A pattern is refused if its fixed beginning lies outside.
        """
        fixed = _PATTERN.split(text, maxsplit=1)[0]
        if not fixed or len(fixed) > 4096 or "\n" in fixed or "\0" in fixed:
            return
        path = Path(os.path.normpath(folder / fixed))
        if os.path.lexists(path) and not self._is_inside(path.resolve()):
            raise UserError(
                f"task.toml names {path}, which lies outside the folders that are open to you",
                where=str(folder / "task.toml"),
                fix=f"copy it into {self._folder_list()}",
            )

    def _is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def _folder_list(self) -> str:
        return ", ".join(map(str, self.folders))


def _symbolic_links(folder: Path) -> Iterator[Path]:
    """Symbolic links below a folder, which is itself one of few files."""
    seen = 0
    for root, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > 20_000:  # files and folders of a task that are checked
            raise UserError(
                f"{folder} holds too many files to be a task",
                fix="put the task into a folder of its own",
            )
        yield from (path for name in (*folders, *files) if (path := Path(root, name)).is_symlink())


def _read_toml(path: Path) -> JsonObject:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the verb reports the error better, and reads nothing else


def _settings_texts(value: object) -> Iterator[str]:
    """All texts of a parsed file except those of the command, which runs in the jail."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _settings_texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key != "command":
                yield from _settings_texts(each)


VERBS = VerbTable("About", (mcp,))
