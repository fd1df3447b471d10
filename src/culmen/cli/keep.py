"""Verbs that keep a run or take it elsewhere.

They are export, replay, recover, archive, vacuum, pool ...; extensions add more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Run, VerbGroup, find_run
from culmen.core.errors import JournalMismatch, UserError
from culmen.core.json import JsonObject
from culmen.report.figures import RUNS, count_text, escape_controls, run_name

if TYPE_CHECKING:
    from culmen.core.event import Event
    from culmen.engine.search import Search
    from culmen.run.pools import Pool
    from culmen.store.archive import Archived

_UNITS = {"jsonl": "event", "csv": "evaluation", "files": "candidate"}


def export(
    screen: Screen,
    run: Run = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl, csv or files.")
    ] = "jsonl",
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Default: standard output; RUN-best for files."),
    ] = None,
    best: Annotated[
        int, typer.Option("--best", min=1, help="Number of candidates, for --format files.")
    ] = 10,
) -> Answer:
    """Copy a run for other programs.

    Formats: all events (jsonl), all evaluations (csv), the best candidates (files).
    """
    from culmen.store.export import export_run as write

    path = find_run(run)
    if form not in _UNITS:
        raise UserError(
            f"there is no format '{form}'", where="--format", fix="use jsonl, csv or files"
        )
    target = Path(f"{path.name}-best") if form == "files" and out is None else out
    if target is None and screen.as_json:
        raise UserError(
            "standard output is taken by --json", where="--out", fix="name a file with --out"
        )
    if (
        form == "files"
        and target is not None
        and target.exists()
        and (not target.is_dir() or any(target.iterdir()))
    ):
        raise UserError("the folder is not empty", where=target, fix="name a new folder with --out")
    try:
        written = write(path, form, "-" if target is None else target, count=best)  # pyright: ignore[reportArgumentType]
    except OSError as error:
        if target is None:
            raise
        raise UserError(
            f"cannot write: {error.strerror}", where=target, fix="name another path"
        ) from None
    data = {"run": path.name, "format": form, "out": str(target), "written": written}
    text = "" if target is None else f"wrote {count_text(written, _UNITS[form])} to {target}"
    return Answer(data, lambda screen: screen.print_line(text) if text else None)


def replay(
    screen: Screen,
    run: Run = None,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Exit with code 4 if anything differs."),
    ] = True,
) -> Answer:
    """Derive the whole run again from its journal and compare it; nothing is evaluated."""

    return replay_run(find_run(run), verify)


def replay_run(run: Path, verify: bool) -> Answer:
    """Replay the run in a folder, and what follows its checkpoint; compare with its journal."""
    differences: list[str] = []
    _, effects, end = _replay_part(run, differences, is_whole=True)
    checkpoint = 0 if differences else _replay_part(run, differences, is_whole=False)[0]
    data = {
        "run": run.name,
        "matches": not differences,
        "effects": effects,
        "checkpoint": checkpoint,
        "finished": end.get("state") == "finished",
        "winner": end.get("winner"),
        "differences": differences,
    }
    code = JournalMismatch.exit_code if differences and verify else 0
    return Answer(data, lambda screen: _show_replay(screen, data), code)


def _replay_part(
    run: Path, differences: list[str], *, is_whole: bool
) -> tuple[int, int, JsonObject]:
    """Replay a run, or what follows its checkpoint, if it has one.

    Returns the event that it began after, the number of effects, and the journal's last state.
    """
    from culmen.engine.driver import replay_journal
    from culmen.run.assemble import checkpoint_file, rebuild_search, restore_checkpoint
    from culmen.run.options import RunObjects
    from culmen.store.journal import SqlJournal

    after, effects, end = 0, 0, JsonObject()
    with SqlJournal.open(run) as journal:
        if is_whole:
            journal.check()
        search, estimate = rebuild_search(journal.meta, RunObjects(), None if is_whole else run)
        if not is_whole and (checkpoints := checkpoint_file(run, journal.meta, search)):
            after = restore_checkpoint(search, checkpoints)
        try:
            if is_whole or after:
                events = _remember_state(journal.retrace(after), end)
                effects = replay_journal(search, events, estimate).effects
            if end.get("state") == "finished":
                differences += _replay_differences(search, end)
        except JournalMismatch as error:
            what = f"{error.what}: {error.where}"
            if after:
                what = f"from the checkpoint after event {after}: {error.what}"
            differences.append(what)
        finally:
            search.close()
    return after, effects, end


def _remember_state(events: Iterator[Event], last: JsonObject) -> Iterator[Event]:
    """Pass events on; `last` then holds the body of the last state among them."""
    for event in events:
        if event.entry.kind == "state":
            last.clear()
            last.update(event.entry.body)
        yield event


def _replay_differences(search: Search, end: JsonObject) -> list[str]:
    """Differences between the replayed end of a run and the one in its journal."""
    differences: list[str] = []
    verdict, reason = search.result_so_far, str(end.get("reason", ""))
    # as the journal has it
    winner = None if verdict is None else msgspec.json.decode(msgspec.json.encode(verdict))
    if not search.is_done:
        differences.append(
            "the run has finished according to its journal, but the replay does not finish"
        )
    if winner != end.get("winner"):
        differences.append(
            f"the final choice differs: journal {end.get('winner')}, replay {winner}"
        )
    if search.reason != reason:
        differences.append(
            f"the reason it ended differs: journal '{reason}', replay '{search.reason}'"
        )
    return differences


def _show_replay(screen: Screen, data: JsonObject) -> None:
    if data["matches"]:
        effects = count_text(data["effects"], "effect")
        end = (
            ", and the same final choice" if data["finished"] else " (the run has not finished yet)"
        )
        if data["checkpoint"]:
            end += f"; from the checkpoint after event {data['checkpoint']:,}, too"
        screen.print_line(f"matches: {effects} derived again, all the same{end}", style="green")
        return
    screen.print_line("does not match:", style="red")
    for text in data["differences"]:
        screen.print_line(f"  {escape_controls(text)}")
    screen.print_next_steps(
        (f"culmen runs fork {data['run']}", "a new run that reuses every finished result")
    )


def recover(
    screen: Screen,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The damaged run's folder.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: RUN-recovered.")] = None,
) -> Answer:
    """Copy what can be read of a damaged run into a new one, which can be resumed."""
    from culmen.store.transfer import BEYOND
    from culmen.store.transfer import recover_run as copy

    source = run if (run / "journal.db").is_file() else RUNS / run
    saved = copy(source, out)

    def show(screen: Screen) -> None:
        screen.print_line(f"saved {count_text(saved.events, 'event')} into {saved.path}")
        if saved.beyond:
            screen.print_line(
                f"{count_text(saved.beyond, 'event')} after the first unreadable one are in "
                f"{saved.path}/{BEYOND}"
            )
        screen.print_next_steps((f"culmen resume {run_name(saved.path)}", "go on"))

    return Answer(saved, show)


def archive(
    screen: Screen,
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Finished runs; with --restore, files made by this verb."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PLACE",
            help="A file for one run, a folder for several; with --restore, a folder.",
        ),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Unpack archives into runs, under ./runs.")
    ] = False,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Delete each run after its archive was compared with it."),
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also runs that could still be resumed.")
    ] = False,
) -> Answer:
    """Pack finished runs into one compressed file each, or with --restore unpack them.

    Hashes are compared. A run that a process is writing is never packed.
    """
    if restore and (remove or unfinished):
        raise UserError(
            "--restore cannot be combined with --remove or --unfinished",
            where="culmen runs archive",
            fix="leave out --remove and --unfinished",
        )
    archives: list[Archived] = []
    for name in run:
        archives.append(
            _unpack_run(name, out, len(run) > 1)
            if restore
            else _pack_run(name, out, run, remove, unfinished)
        )

    def show(screen: Screen) -> None:
        for archived in archives:
            gone = "; the run was deleted" if archived.removed else ""
            screen.print_line(
                f"{archived.file}: {archived.events:,} events, {_size_text(archived.before)} -> "
                f"{_size_text(archived.after)}{gone}"
            )

    return Answer({"archives": archives}, show)


def _pack_run(
    name: str, out: Path | None, names: list[str], remove: bool, unfinished: bool
) -> Archived:
    from culmen.store import archive as archives
    from culmen.store.address import read_pointer

    path = find_run(name)
    several = len(names) > 1 or (out is not None and out.is_dir())
    if several and out is not None:
        out.mkdir(parents=True, exist_ok=True)
    # then its folder is a hidden one, no place for an archive
    in_database = read_pointer(path) is not None
    file = out / f"{path.name}{archives.SUFFIX}" if out is not None and several else out
    if file is None and in_database:
        file = Path(f"{path.name}{archives.SUFFIX}")
    return archives.archive_run(path, file, remove=remove, unfinished=unfinished)


def _unpack_run(name: str, out: Path | None, several: bool) -> Archived:
    from culmen.store import archive as archives

    file = Path(name)
    stem = file.name.removesuffix(archives.SUFFIX)
    target = RUNS / stem if out is None else out / stem if several or out.is_dir() else out
    return archives.restore_archive(file, target)


def vacuum(screen: Screen, run: Run = None) -> Answer:
    """Free the disk space that a run's store no longer uses.

    Refused while a process is writing the run.
    """
    from culmen.store.archive import vacuum_store as tidy

    path = find_run(run)
    before, after = tidy(path)
    data = {"run": path.name, "before": before, "after": after}
    return Answer(
        data,
        lambda screen: screen.print_line(
            f"{path.name}: {_size_text(before)} -> {_size_text(after)}"
        ),
    )


def _size_text(number: int) -> str:
    """`512 bytes`, `3.2 MB`."""
    value, unit = float(number), "bytes"
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


PoolOut = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File to write.")]
Licence = Annotated[
    str,
    typer.Option(metavar="NAME", help="Licence under which its texts may be used, e.g. CC-BY-4.0."),
]


def pool_build(
    screen: Screen,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run folders, or names under ./runs.")
    ],
    out: PoolOut,
    best: Annotated[
        int, typer.Option(min=1, help="Largest number of candidates from each run.")
    ] = 50,
    licence: Licence = "",
) -> Answer:
    """Collect the best candidates of runs of one task into a file."""
    from culmen.run import pools

    return _save_pool(pools.build_pool([find_run(run) for run in runs], best, licence), out)


def pool_show(
    screen: Screen,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A pool, or a built-in task's name.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Candidates shown.")] = 20,
) -> Answer:
    """Show the task, licence, sources and candidates of a pool.

    Scores are the claims of the file.
    """
    from culmen.run import pools

    data = pools.pool_summary(pools.load_pool(file))

    def show(screen: Screen) -> None:
        screen.print_heading(
            data["task"],
            f"{count_text(len(data['candidates']), 'candidate')}, {data['direction']}imise",
        )
        screen.print_line(f"licence: {data['licence'] or 'none stated'}")
        screen.print_line(
            f"sources: {', '.join(source['run'] for source in data['sources']) or 'none stated'}"
        )
        columns = ["id", "claimed score", "evaluations", "from", "model", "characters"]
        screen.print_table(columns, [_pool_row(row) for row in data["candidates"][:limit]])
        screen.print_next_steps(
            (f"culmen run TASK --strategy turboevolve --pool {file}", "start from them")
        )

    return Answer(data, show)


def pool_merge(
    screen: Screen,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pools of one task.")],
    out: PoolOut,
    licence: Licence = "",
    without_best: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="SHARE",
            help="Leave out this share of the best candidates, by claimed score.",
        ),
    ] = 0.0,
) -> Answer:
    """Merge pools into one; equal candidates are kept once."""
    from culmen.run import pools

    return _save_pool(
        pools.without_best(
            pools.merge_pools([pools.load_pool(file) for file in files], licence), without_best
        ),
        out,
    )


def _save_pool(pool: Pool, out: Path) -> Answer:
    from culmen.run import pools

    pools.save_pool(pool, out)
    data = {
        "out": str(out),
        "task": pool.task,
        "candidates": len(pool.members),
        "licence": pool.licence,
    }

    def show(screen: Screen) -> None:
        screen.print_line(f"wrote {count_text(len(pool.members), 'candidate')} to {out}")
        screen.print_next_steps((f"culmen runs pool show {out}", "look at it"))

    return Answer(data, show)


def _pool_row(row: JsonObject) -> list[str]:
    score = "" if row["claimed_score"] is None else f"{row['claimed_score']:.10g}"
    return [row["id"], score, str(row["count"]), row["run"], row["model"], str(row["characters"])]


POOL: VerbGroup = (
    "Files of candidates to start a search from: culmen run TASK --pool FILE.",
    {"build": pool_build, "show": pool_show, "merge": pool_merge},
)
