"""What PostgreSQL and its driver say, in culmen's errors: what is wrong, with which database, and what to do."""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import parse_qs, urlsplit

from culmen.core.errors import CulmenError, JournalDamaged, Unavailable, UserError
from culmen.store.address import VARIABLE, Address

_SAFE = "everything recorded so far is safe"
_RESUME = "once it does, a run goes on by: culmen resume, with its folder or address"
_UNREACHED = ("OperationalError", "ConnectionTimeout", "InterfaceError")
_REFUSED = re.compile(r"authentication failed|pg_hba\.conf|role .* (does not exist|is not permitted)")


def meaning(error: object, address: Address) -> CulmenError | None:
    """What an error of psycopg means to a person; None if it is a bug."""
    state, said = cast("str | None", getattr(error, "sqlstate", None)), _said(str(error))
    if state is None:
        return _before(error, said, address)
    where = str(address)
    if state.startswith(("08", "57P")):
        return Unavailable(f"the connection to the database was lost ({said}); {_SAFE}", where=where, fix=_RESUME)
    if state.startswith("53"):
        fix = "make room there, or raise max_connections"
        return Unavailable(f"the database has no room ({said}); {_SAFE}", where=where, fix=fix)
    if state == "42P01":
        return JournalDamaged(f"the tables of the run are not as they should be ({said})", where=where)
    if state == "42501":
        return UserError(f"the database refuses: {said}", where=where, fix=_rights(said, address))
    if state == "25006":
        return UserError(f"the database takes no writes: {said}", where=where, fix="name the primary server in the URL")
    if state.startswith("28") or state == "3D000":
        return UserError(f"the database refuses: {said}", where=where, fix="check user, password, name and rights")
    return None


def _before(error: object, said: str, address: Address) -> CulmenError | None:
    """Errors of the driver itself, mostly before there is a connection."""
    where, user = str(address), _user(address)
    if "password authentication failed" in said:
        fix = f"give another with ~/.pgpass, PGPASSWORD, or the URL in {VARIABLE}"
        return UserError(f"the database refuses the password of {user} ({said})", where=where, fix=fix)
    if "no password supplied" in said:
        fix = f"give it with ~/.pgpass, PGPASSWORD, or the URL in {VARIABLE}"
        return UserError(f"the database wants a password of {user} ({said})", where=where, fix=fix)
    if re.search("database .* does not exist", said):
        fix = f"make it: createdb {_server(address)} {_database(address)}"
        return UserError(f"the server has no such database ({said})", where=where, fix=fix)
    if _REFUSED.search(said):
        fix = "name another user in the URL, or have the server let this one in (pg_hba.conf)"
        return UserError(f"the database refuses {user} ({said})", where=where, fix=fix)
    if "invalid connection option" in said or "invalid port" in said or "invalid integer value" in said:
        fix = "leave it out; after the ? are options of libpq, such as host, port, sslmode"
        return UserError(f"the URL cannot be used ({said})", where=where, fix=fix)
    if type(error).__name__ in _UNREACHED:
        fix = f"pg_isready {_server(address)} says whether it does; {_RESUME}"
        return Unavailable(f"the database does not answer ({said}); {_SAFE}", where=where, fix=fix)
    return None


def _said(text: str) -> str:
    """The first line, without what every such line begins with."""
    line = text.strip().partition("\n")[0]
    return re.sub(r"^connection (failed|is bad): (?=connection to server)", "", line)


def _rights(said: str, address: Address) -> str:
    if "for database" in said:
        return f"as its owner: GRANT CREATE ON DATABASE {_database(address)} TO {_user(address)}"
    return f"connect as the user who made these runs, or as that user: GRANT <that user> TO {_user(address)}"


def _user(address: Address) -> str:
    login = urlsplit(address.url).netloc.rpartition("@")[0]
    return login or "you"


def _database(address: Address) -> str:
    return urlsplit(address.url).path.strip("/")


def _server(address: Address) -> str:
    """How the server's own programs are told where it is."""
    parts = urlsplit(address.url)
    host = parts.hostname or next(iter(parse_qs(parts.query).get("host", [])), "")
    told = [f"-h {host}" if host else "", f"-p {parts.port}" if parts.port else ""]
    login = parts.netloc.rpartition("@")[0]
    return " ".join(filter(None, [*told, f"-U {login}" if login else ""]))
