"""Place of a run's journal: its own folder, or the database in `RUN/database.json`.

A run in a database is addressed as `postgresql+psycopg://user@host/database#name`, or as `db:name`
if CULMEN_DB holds the URL. Such a run still has a folder on the machine for everything outside the
journal (an agent's repository, weights); for a run started on another machine the folder is made at
the first access.

A password is taken from the URL once and kept in this process; it is never written, printed or
journaled. Without one, libpq's own sources apply: PGPASSWORD, PGPASSFILE, ~/.pgpass.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from culmen.core.errors import UserError
from culmen.core.extensions import part_addresses

FILE = "journal.db"
PART = ".journal.db"  # while it is being made
POINTER = "database.json"
VARIABLE = "CULMEN_DB"

_NAME = re.compile(r"[^/\\#\x00-\x1f]{1,200}")
_WHERE = "the URL of the database"
_secrets: dict[str, str] = {}  # passwords by redacted URL, of this process only


class Address(msgspec.Struct, frozen=True, omit_defaults=True):
    """The URL of a database, without a password, and the name of a run in it.

    Without a name, the address is the database as a whole.
    """

    url: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.url}#{self.name}" if self.name else self.url

    @property
    def secret_url(self) -> str:
        """The URL to connect with, for the driver only; never show it."""
        if self.url not in _secrets and os.environ.get(VARIABLE):
            parse_address("db:")  # remembers its password
        secret = _secrets.get(self.url)
        if secret is None:
            return self.url
        parts = urlsplit(self.url)
        user, _, host = parts.netloc.rpartition("@")
        return self.url.replace(
            f"//{parts.netloc}/", f"//{user}:{quote(secret, safe='')}@{host}/", 1
        )


def is_address(text: str) -> bool:
    """True if a text has the form of a database address rather than of a path."""
    return text.startswith("db:") or ("://" in text and text.partition("://")[0].isascii())


def parse_address(text: str, name: str = "") -> Address:
    """An address from a user's text; `name` is the run's name if the text has none.

    Raises `UserError` for a text that is not a valid address.
    """
    if text.startswith("db:"):
        url = os.environ.get(VARIABLE)
        if not url:
            raise UserError(
                f"'{text}' needs a database", where=VARIABLE, fix=f"export {VARIABLE}={_example()}"
            )
        return parse_address(url.partition("#")[0], text[3:] or name)
    base, _, fragment = text.partition("#")
    parts = urlsplit(base)
    scheme = _stored_scheme(parts.scheme)
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if re.search(r":[^\]]*[^\]\d][^\]]*$", host):
        raise UserError(
            f"'{host.rpartition(':')[2]}' is not a port", where=_WHERE, fix=f"write {_example()}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    password = unquote(password) or options.pop("password", "")
    if not parts.path.strip("/"):
        raise UserError("the URL names no database", where=_WHERE, fix=f"write {_example()}")
    netloc = f"{user}@{host}" if user else host
    query = f"?{urlencode(options, safe='/')}" if options else ""
    url = f"{scheme}://{netloc}/{parts.path.strip('/')}{query}"
    if password:
        _secrets[url] = password
    return Address(url, _checked_run_name(unquote(fragment) or name))


def read_pointer(run_dir: Path) -> Address | None:
    """The database that a folder points to; None if the folder holds its own journal."""
    try:
        raw = (run_dir / POINTER).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(raw, type=Address)
    except msgspec.DecodeError:
        raise UserError(
            "this file names no database",
            where=run_dir / POINTER,
            fix="look through the address instead: URL#NAME",
        ) from None


def write_pointer(run_dir: Path, address: Address) -> None:
    """Write a pointer to `address` into a folder, which is made if missing.

    The folder then stands for a run in a database or, if the address has no name, for all of its
    runs.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    part = run_dir / f".{POINTER}.{os.getpid()}"
    part.write_bytes(msgspec.json.encode(address) + b"\n")
    part.replace(run_dir / POINTER)


def has_run(folder: Path) -> bool:
    """True if a folder is a run's: it holds a journal or points to a run in a database."""
    if (folder / FILE).is_file():
        return True
    found = read_pointer(folder)
    return found is not None and bool(found.name)


def journal_file(run_dir: Path) -> Path:
    """The file that makes the folder a run's: the journal, or the pointer to a database."""
    file = run_dir / FILE
    return file if file.is_file() else run_dir / POINTER


def cache_dir() -> Path:
    """Folder of files that culmen keeps for this user between runs.

    Raises `UserError` for a user without a home, as in some containers.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "culmen"
    except RuntimeError:
        raise UserError(
            "this user has no home folder for cached files",
            where="HOME",
            fix="export XDG_CACHE_HOME=DIR, a folder of your own",
        ) from None


def local_folder(address: Address, base: Path | None = None) -> Path:
    """This machine's folder of a run (or of a database).

    It lies in `base`, or in this user's cache directory if `base` is None, and is made if missing.
    Raises `UserError` if the folder holds another run.
    """
    if base is None:
        base = cache_dir() / "databases" / hashlib.sha256(address.url.encode()).hexdigest()[:16]
    folder = base / address.name
    pointer = read_pointer(folder)
    if pointer == address:
        return folder
    if pointer is not None or (folder / FILE).exists():
        raise UserError(
            f"there is another run in '{folder}'",
            where=address,
            fix="resume it from another folder",
        )
    write_pointer(folder, address)
    return folder


def _stored_scheme(scheme: str) -> str:
    """The scheme under which a database is stored: the first of those of its kind.

    Raises `UserError` if no extension adds databases of this scheme.
    """
    kinds = part_addresses("journals")
    if scheme not in kinds:
        install = f", or install the package that adds '{scheme}'" if scheme else ""
        raise UserError(
            f"no database is reached by '{scheme or 'this'}'",
            where=_WHERE,
            fix=f"write {_example()}{install}",
        )
    return next(name for name, kind in kinds.items() if kind == kinds[scheme])


def _example() -> str:
    return f"{next(iter(part_addresses('journals')), 'SCHEME')}://user@host/database"


def _checked_run_name(name: str) -> str:
    if name and (not _NAME.fullmatch(name) or name in (".", "..")):
        raise UserError(
            f"'{name}' cannot be the name of a run",
            where=_WHERE,
            fix="letters, digits, '-', '_' and '.'",
        )
    return name


# Local file systems only: SQLite's write-ahead log needs memory shared between processes.

# fmt: off
NETWORK = frozenset((
    "nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "beegfs_nodev",
    "ceph", "afs", "pvfs2", "orangefs", "panfs", "9p", "ncpfs", "coda", "glusterfs", "davfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.ceph",
    "fuse.juicefs",
))
# fmt: on


def filesystem_type(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path` (absolute).

    `mounts` is a text in the form of /proc/self/mountinfo.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode("ascii", "backslashreplace").decode("unicode_escape")
        inside = point == "/" or path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def require_local(path: Path) -> None:
    """Raise `UserError` if `path` lies on a network file system.

    Does nothing on systems without /proc/self/mountinfo.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return
    refuse_network(path, filesystem_type(path.resolve(), mounts))


def refuse_network(path: Path, kind: str) -> None:
    """Raise `UserError` if `kind` is a network file system."""
    if kind in NETWORK:
        raise UserError(
            f"a run cannot be kept on a network file system ({kind}): its journal could be "
            "damaged there",
            where=path,
            fix=(
                "give a folder on a local disk with --run-dir, or keep the journal in a database: "
                "--db URL"
            ),
        )


class Owner(msgspec.Struct, frozen=True):
    """The process that writes a run: id, host name, and start of writing (Unix seconds)."""

    pid: int = 0
    host: str = ""
    since: float = 0.0

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}"
