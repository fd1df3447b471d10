"""Workers of a queue that are launched elsewhere, and stopped again.

Each has a name and a token of its own. The queue's table has its place before anything is started
there, so what an interrupted launch leaves can be found and stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import LiteralString
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from culmen.cluster.launchers import (
    Launcher,
    NothingStarted,
    SandboxLauncher,
    SshLauncher,
    WorkerLook,
    WorkerOrder,
)
from culmen.cluster.queue_link import ask_queue, change_queue, connection_text
from culmen.cluster.queue_schema import ROLE
from culmen.core.errors import UserError
from culmen.core.extensions import find_part, part_addresses
from culmen.store.address import Address, parse_address

TOKEN, PASSWORD = "CULMEN_WORKER_TOKEN", "CULMEN_WORKER_PASSWORD"
_POLL_SECONDS, _FIRST_LOOK = 0.2, 1.0  # looks at the places become rarer
_STOPS_AT_ONCE = 8
_LAST_LINES = 6  # of a worker's log

_CLAIM: LiteralString = """
INSERT INTO culmen_queue.worker (name, token, runs, trusted, place, label)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, runs = excluded.runs,
    trusted = excluded.trusted, place = excluded.place, label = excluded.label, revoked = false,
    made = clock_timestamp()
WHERE worker.revoked AND worker.place IS NULL RETURNING id"""
_TAKEN: LiteralString = (
    "SELECT name FROM culmen_queue.worker WHERE NOT revoked OR place IS NOT NULL"
)
_REVOKE: LiteralString = "UPDATE culmen_queue.worker SET revoked = true WHERE label = %s"
_RELEASE: LiteralString = (
    "UPDATE culmen_queue.worker SET revoked = true, place = NULL, label = NULL WHERE label = %s"
)
_JOINED: LiteralString = """
SELECT DISTINCT worker.label FROM culmen_queue.worker JOIN culmen_queue.process
    ON process.worker = worker.id AND process.seen > worker.made
WHERE worker.label = ANY (%s)"""
_WORKERS: LiteralString = "SELECT name, place, label, revoked FROM culmen_queue.worker ORDER BY id"


class LaunchedWorker(msgspec.Struct):
    """A worker and its state: `starting`, `joined`, `failed` or `stopped`."""

    name: str
    place: str
    label: str
    state: str = "starting"
    words: str = ""
    fix: str = ""


class WorkerTerms(msgspec.Struct, frozen=True):
    """Settings of all workers of a launch."""

    url: str = ""
    program: str = "culmen"
    options: tuple[str, ...] = ()
    runs: tuple[str, ...] | None = None
    trusted: bool = False


class Launch:
    """Workers that are started in places, `count` in each, and waited for.

    `workers` has those begun so far.
    """

    def __init__(self, address: Address, terms: WorkerTerms, say: Callable[[str], None]) -> None:
        self._address, self._terms, self._say = address, terms, say
        self._launchers: dict[str, Launcher] = {}
        self.workers: list[LaunchedWorker] = []
        url = parse_address(terms.url) if terms.url else _as_worker(address)
        self._url, self._root = _take_root(url.url)
        password = os.environ.get(PASSWORD) or _password(url)
        self._secrets = {"PGPASSWORD": password} if password else {}

    def start(self, launchers: Iterable[Launcher], count: int, prefix: str = "") -> None:
        """Start the workers; after a failure of a place no further one there."""
        for launcher in launchers:
            self._launchers[launcher.place] = launcher
            for _ in range(count):
                if not self._start_worker(launcher, prefix or _usual_prefix(launcher.place)):
                    break

    def _start_worker(self, launcher: Launcher, prefix: str) -> bool:
        worker, token = self._claim_name(launcher.place, prefix)
        self.workers.append(worker)
        argv = [self._terms.program, "worker", self._url, *self._terms.options]
        order = WorkerOrder(argv, {TOKEN: token, **self._secrets}, self._root)
        try:
            launcher.start(worker.label, order)
        except (UserError, TimeoutError) as error:
            self._fail(worker, error, is_there=not isinstance(error, NothingStarted))
            return False
        self._say(f"Started {worker.name} on {worker.place}.")
        return True

    def _claim_name(self, place: str, prefix: str) -> tuple[LaunchedWorker, str]:
        """A worker under the first free name, and its token."""
        token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).digest()
        runs = list(self._terms.runs) if self._terms.runs else None
        while True:
            taken = {name for (name,) in change_queue(self._address, _TAKEN)}
            free = (f"{prefix}-{number}" for number in itertools.count(1))
            name = next(name for name in free if name not in taken)
            label = f"culmen-{name}-{secrets.token_hex(4)}"
            values = (name, digest, runs, self._terms.trusted, place, label)
            if ask_queue(self._address, _CLAIM, values):
                return LaunchedWorker(name, place, label), token

    def _fail(self, worker: LaunchedWorker, error: Exception, is_there: bool) -> None:
        """Note a failure, and remove the remains of the worker."""
        worker.state, worker.words, worker.fix = "failed", *_describe(error)
        try:
            if is_there:
                self._launchers[worker.place].stop(worker.label)
            ask_queue(self._address, _RELEASE, (worker.label,))
        except (UserError, TimeoutError):  # stays in the table, to be stopped later
            ask_queue(self._address, _REVOKE, (worker.label,))

    def wait(self, seconds: float) -> None:
        """Wait until all have joined the queue or failed; then see why others have not."""
        now, pause = time.monotonic(), _FIRST_LOOK
        ends, looks = now + seconds, now + pause
        while pending := [each for each in self.workers if each.state == "starting"]:
            self._note_joined(pending)
            now = time.monotonic()
            if now >= min(looks, ends):
                pause *= 2
                looks = now + pause
                for worker in pending:
                    if worker.state == "starting":
                        self._look_at(worker)
            if now >= ends:
                return
            time.sleep(_POLL_SECONDS)

    def _note_joined(self, workers: Sequence[LaunchedWorker]) -> None:
        rows = ask_queue(self._address, _JOINED, ([each.label for each in workers],))
        for worker in workers:
            if (worker.label,) in rows:
                worker.state, worker.words = "joined", ""

    def _look_at(self, worker: LaunchedWorker) -> None:
        try:
            look = self._launchers[worker.place].look(worker.label)
        except (UserError, TimeoutError) as error:
            look = WorkerLook(False, _describe(error)[0])
        worker.words = "\n".join(look.words.splitlines()[-_LAST_LINES:])
        if look.has_ended:
            words, fix = worker.words or "without a word", "correct that, and launch again"
            self._fail(worker, UserError(f"it ended: {words}", fix=fix), is_there=True)


def stop_workers(address: Address, names: Sequence[str]) -> list[LaunchedWorker]:
    """Stop launched workers, all of them without names; they give back what they have.

    One that cannot be reached ends by itself: its token is not valid any more.
    """
    rows = change_queue(address, _WORKERS)
    known = {name: (place, label, revoked) for name, place, label, revoked in rows}
    for name in names:
        place, _, revoked = known.get(name, ("", "", True))
        if place == "":
            fix = f"culmen queue show '{address}'"
            raise UserError(f"there is no worker '{name}'", where=str(address), fix=fix)
        if place is None and not revoked:
            fix = f"end it there, or: culmen queue revoke '{address}' {name}"
            raise UserError(f"'{name}' was not launched from here", where=str(address), fix=fix)
    chosen = [LaunchedWorker(n, p, m) for n, p, m, _ in rows if p and (not names or n in names)]
    with ThreadPoolExecutor(_STOPS_AT_ONCE) as pool:
        for worker in pool.map(_stop_worker, chosen):
            statement = _RELEASE if worker.state == "stopped" else _REVOKE
            ask_queue(address, statement, (worker.label,))
    return chosen


def _stop_worker(worker: LaunchedWorker) -> LaunchedWorker:
    try:
        find_launcher(worker.place).stop(worker.label)
        worker.state = "stopped"
    except (UserError, TimeoutError) as error:
        worker.state, worker.words, worker.fix = "failed", *_describe(error)
    return worker


def _describe(error: Exception) -> tuple[str, str]:
    """The words of a failure, and its remedy."""
    if isinstance(error, UserError):
        return error.what, error.fix
    return str(error), "try again, or see what it does there"


def make_launcher(text: str, settings: Mapping[str, str]) -> Launcher:
    """The launcher of `KIND:TARGET`, as a user names it."""
    kind, _, target = text.partition(":")
    kinds = ("ssh", "kubernetes", *part_addresses("sandboxes"))
    if kind not in kinds or not target:
        fix = f"write ssh:HOST, or {', '.join(f'{each}:IMAGE' for each in kinds[1:])}"
        raise UserError(f"'{text}' is no place for workers", where="--on", fix=fix)
    if kind == "ssh":
        return SshLauncher(target, settings)
    if kind == "kubernetes":
        from culmen.cluster.kubernetes import KubernetesLauncher

        return KubernetesLauncher(target, settings)
    return SandboxLauncher(kind, find_part("sandboxes", kind)(), target, settings)


def find_launcher(place: str) -> Launcher:
    """The launcher whose place this is; raises `UserError` if it is another machine's."""
    kind, _, target = place.partition(":")
    if kind == "ssh":
        return SshLauncher(target, {})
    if kind == "kubernetes":
        from culmen.cluster.kubernetes import KubernetesLauncher

        context, _, namespace = target.rpartition("/")
        return KubernetesLauncher("", {"context": context, "namespace": namespace})
    provider = find_part("sandboxes", kind)
    found = provider and SandboxLauncher(kind, provider(), "", {})
    if not found or found.place != place:
        fix = f"culmen queue stop, on {target}"
        raise UserError("it was launched from another machine", where=place, fix=fix)
    return found


def _as_worker(address: Address) -> Address:
    """The address for the role of workers."""
    parts = urlsplit(address.url)
    host = parts.netloc.rpartition("@")[2]
    return parse_address(parts._replace(netloc=f"{ROLE}@{host}").geturl())


def _password(address: Address) -> str | None:
    from psycopg.conninfo import conninfo_to_dict

    found = conninfo_to_dict(connection_text(address)).get("password")
    return None if found is None else str(found)


def _take_root(url: str) -> tuple[str, bytes]:
    """A URL without its root certificate, and the certificate, if that is a file here."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = options.pop("sslrootcert", "")
    if name in ("", "system") or not (file := Path(name)).is_file():
        return url, b""
    return f"{url.partition('?')[0]}?{urlencode(options, safe='/')}", file.read_bytes()


def _usual_prefix(place: str) -> str:
    """The beginning of workers' names: the host, or the last part of the place."""
    kind, _, target = place.partition(":")
    last = re.split(r"[@/]", target)[-1].lower()
    return re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:30] or kind
