"""`culmen worker` and `culmen queue ...`: workers from anywhere, and the queue they use."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.observe.figures import count_text, escape_controls

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
    """Show the queue: its runs, its workers, and what was found about them."""
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
            screen.print_line(f"worker {', '.join(words)}")
        for finding in state["findings"]:
            screen.print_line(f"{finding['at']}  run {finding['run']}: {finding['text']}")
        if not any(state.values()):
            screen.print_line("the queue is empty")

    return Answer(state, show)


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
                "show": queue_show,
            },
        )
    },
)
