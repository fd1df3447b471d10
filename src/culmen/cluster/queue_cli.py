"""`culmen worker` and `culmen queue ...`: workers from anywhere, and the queue they use."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.observe.figures import count_text, escape_controls

if TYPE_CHECKING:
    from culmen.cluster.launch import LaunchedWorker

TOKEN = "CULMEN_WORKER_TOKEN"

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="postgresql://user@host/database, or db: for CULMEN_DB's."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The worker's name.")]


def worker(
    screen: Screen,
    url: Url,
    slots: Annotated[
        int, typer.Option(metavar="N", help="Evaluations at once, up to 64.", show_default="cores")
    ] = 0,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help=f"The worker's token; better in {TOKEN}."),
    ] = None,
    runs: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Serve these runs only.")
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help="Serve runs only at this isolation level or a stronger."
        ),
    ] = None,
) -> Answer:
    """Evaluate candidates of runs that put their work into a queue (`run --backend queue:URL`).

    Needs the database and nothing else: no shared disk, no port. Ends at Ctrl-C or SIGTERM and
    gives back what it has.
    """
    import asyncio

    from culmen.cluster.queue_worker import MOST_SLOTS, QueueWorker
    from culmen.evaluate.jail.probes import level_rank
    from culmen.store.address import parse_address

    secret = token or os.environ.get(TOKEN, "")
    if not secret:
        raise UserError(
            "a worker needs a token",
            where=TOKEN,
            fix=f"make one as the queue's owner: culmen queue token '{url}' NAME",
        )
    if require is not None:
        level_rank(require)
    slots = slots or min(MOST_SLOTS, os.cpu_count() or 1)
    if not 1 <= slots <= MOST_SLOTS:
        raise UserError(f"{slots} slots", where="--slots", fix=f"from 1 to {MOST_SLOTS}")

    def say(text: str) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {escape_controls(text)}\n")

    async def serve() -> int:
        served = QueueWorker(
            parse_address(url), secret, slots, runs.split(",") if runs else None, require, say
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, served.stop)
        await served.serve()
        return served.done

    done = asyncio.run(serve())
    return Answer({"done": done}, lambda screen: screen.print_line(_done_text(done)))


def _done_text(done: int) -> str:
    return f"ended after {count_text(done, 'evaluation')}"


def queue_setup(screen: Screen, url: Url) -> Answer:
    """Make the queue's tables, or bring them up to this version; print the grants for workers.

    Runs do it by themselves. The grants are for a role that workers log in as.
    """
    from culmen.cluster.queue_link import prepare_queue
    from culmen.cluster.queue_schema import worker_grants
    from culmen.store.address import parse_address

    address = parse_address(url)
    scripts = prepare_queue(address)
    grants = worker_grants(address.url.partition("?")[0].rpartition("/")[2])

    def show(screen: Screen) -> None:
        screen.print_line("-- the queue is ready; as its owner, with a password of your own:")
        screen.print_text(grants)

    return Answer({"scripts": scripts, "grants": grants}, show)


def queue_token(
    screen: Screen,
    url: Url,
    name: Name,
    runs: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Good for these runs only.")
    ] = None,
    trusted: Annotated[
        bool,
        typer.Option("--trusted", help="Its results decide where others differ: your machine."),
    ] = False,
) -> Answer:
    """Make a worker's token; an older one of the same name is not valid any more.

    Only its hash is stored. Give each machine, or each owner of machines, a name of its own:
    results are compared between names.
    """
    from culmen.cluster.queue_link import new_token
    from culmen.store.address import parse_address

    address = parse_address(url)
    token = new_token(address, name, runs.split(",") if runs else None, trusted)

    def show(screen: Screen) -> None:
        screen.print_text(f"export {TOKEN}={token}")
        screen.print_next_steps((f"culmen worker '{address}'", "on the worker's machine"))

    return Answer({"name": name, "token": token}, show)


def queue_revoke(screen: Screen, url: Url, name: Name) -> Answer:
    """Make a worker's token invalid at once; what it holds goes to others when its leases end."""
    from culmen.cluster.queue_link import change_queue
    from culmen.store.address import parse_address

    found = change_queue(
        parse_address(url),
        "UPDATE culmen_queue.worker SET revoked = true WHERE name = %s RETURNING id",
        (name,),
    )
    if not found:
        raise UserError(f"there is no worker '{name}'", where=url, fix=f"culmen queue show '{url}'")
    return Answer({"revoked": name}, lambda screen: screen.print_line(f"revoked {name}"))


def queue_show(screen: Screen, url: Url) -> Answer:
    """Show the queue: its runs, its workers, and the findings about them."""
    from culmen.cluster.queue_link import read_queue
    from culmen.store.address import parse_address

    state = read_queue(parse_address(url))

    def show(screen: Screen) -> None:
        for run in state["runs"]:
            counts = (f"{run[name]} {name}" for name in ("ready", "leased", "answered", "lost"))
            screen.print_line(f"run {run['name']}: {', '.join(counts)}")
        for each in state["workers"]:
            words = [each["name"], count_text(each["slots"], "slot")]
            words += [word for word in ("trusted", "revoked") if each[word]]
            words += [f"launched on {each['place']}"] if each["place"] else []
            words += ["no sign of life"] if each["place"] and not each["processes"] else []
            screen.print_line(f"worker {', '.join(words)}")
        for finding in state["findings"]:
            screen.print_line(f"{finding['at']}  run {finding['run']}: {finding['text']}")
        if not any(state.values()):
            screen.print_line("the queue is empty")

    return Answer(state, show)


def queue_launch(
    screen: Screen,
    url: Url,
    on: Annotated[
        list[str],
        typer.Option(metavar="PLACE", help="ssh:HOST, container:IMAGE, kubernetes:IMAGE."),
    ],
    count: Annotated[int, typer.Option(metavar="N", help="Workers in each place.")] = 1,
    slots: Annotated[
        int, typer.Option(metavar="N", help="Evaluations at once of each.", show_default="cores")
    ] = 0,
    worker_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address for the workers; their password is better in CULMEN_WORKER_PASSWORD.",
            show_default="URL, as culmen_worker",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Workers are NAME-1...", show_default="the place")
    ] = "",
    runs: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Serve these runs only.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Their results decide where others differ.")
    ] = False,
    require: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="As of culmen worker.")
    ] = None,
    program: Annotated[str, typer.Option(metavar="PATH", help="culmen in that place.")] = "culmen",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the place. Repeatable."),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time to join in, before this ends.")
    ] = 60.0,
) -> Answer:
    """Start workers elsewhere: over SSH, in containers, as Kubernetes Jobs.

    Each gets a token of its own. They go on when this ends, until culmen queue stop.
    """
    from culmen.cluster.launch import Launch, WorkerTerms, make_launcher
    from culmen.store.address import parse_address

    _vet_launch(count, name, settings or [])
    pairs = dict(each.split("=", 1) for each in settings or ())
    options = ("--slots", str(slots)) if slots else ()
    options += ("--require", require) if require else ()
    terms = WorkerTerms(
        worker_url or "", program, options, tuple(runs.split(",")) if runs else None, trusted
    )
    address = parse_address(url)
    launchers = [make_launcher(each, pairs) for each in on]
    launch = Launch(address, terms, screen.print_note)
    stop = f"culmen queue stop '{address}'"
    try:
        launch.start(launchers, count, name)
        launch.wait(wait)
    except KeyboardInterrupt:
        names = " ".join(each.name for each in launch.workers if each.state != "failed")
        if names:
            screen.print_note(f"these may run: {names}; end them with {stop}")
        raise
    return _launched_answer(launch.workers, (stop, "end all that were launched"))


def _vet_launch(count: int, name: str, settings: list[str]) -> None:
    if count < 1:
        raise UserError(f"{count} workers", where="--count", fix="write 1 or more")
    if name and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name):
        fix = "write up to 30 of a-z, 0-9 and -"
        raise UserError(f"'{name}' cannot be a name", where="--name", fix=fix)
    for each in settings:
        if "=" not in each:
            raise UserError(f"cannot read '{each}'", where="--set", fix="write NAME=VALUE")


def queue_stop(
    screen: Screen,
    url: Url,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Workers. Default: all.")
    ] = None,
) -> Answer:
    """Stop workers that were launched; they give back what they have.

    The token of one that cannot be reached is revoked: it ends when it next asks the queue.
    """
    from culmen.cluster.launch import stop_workers
    from culmen.store.address import parse_address

    return _launched_answer(stop_workers(parse_address(url), names or ()))


def _launched_answer(workers: list[LaunchedWorker], *steps: tuple[str, str]) -> Answer:
    """Workers and their states; exit code 1 if one failed."""
    import msgspec

    def show(screen: Screen) -> None:
        for each in workers:
            words = {"starting": "started, has not joined yet", "joined": "joined"}
            state = words.get(each.state, each.state)
            said = f": {each.words}" if each.words else ""
            screen.print_line(f"{each.name} on {each.place}: {state}{said}")
            if each.fix:
                screen.print_line(f"  next:  {each.fix}")
        if not workers:
            screen.print_line("no worker is launched")
        if any(each.state in words_of_life for each in workers):
            screen.print_next_steps(*steps)

    words_of_life = ("starting", "joined")
    failed = any(each.state == "failed" for each in workers)
    return Answer({"workers": msgspec.to_builtins(workers)}, show, int(failed))


VERBS = VerbTable(
    "Search",
    verbs=(worker,),
    groups={
        "queue": (
            "Evaluations that workers pull from PostgreSQL: culmen run TASK --backend queue:URL.",
            {
                "setup": queue_setup,
                "token": queue_token,
                "revoke": queue_revoke,
                "launch": queue_launch,
                "stop": queue_stop,
                "show": queue_show,
            },
        )
    },
)
