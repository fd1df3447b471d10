"""The file at the program's path: imported, run or copied, it forwards to the candidate.

The candidate is in another process. A fresh interpreter that the evaluator starts loads this
module, so it imports only the standard library.
"""

from __future__ import annotations

import builtins
import gc
import os
import stat
import sys
import traceback
from types import ModuleType

from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.proxy import connection, remote_objects
from culmen.extensions.compat.openevolve.proxy.operations import Operation
from culmen.extensions.compat.openevolve.proxy.session import ProgramGone, ProxySession

_TEXT = (
    '"""Stands in for a program that runs in another process, and forwards all requests '
    'to it."""\n'
    "\n"
    "import importlib.util\n"
    "import sys\n"
    "\n"
    'if "culmen" not in sys.modules:\n'
    '    spec = importlib.util.spec_from_file_location("culmen", {start!r}, '
    "submodule_search_locations=[{package!r}])\n"
    '    sys.modules["culmen"] = importlib.util.module_from_spec(spec)\n'
    '    spec.loader.exec_module(sys.modules["culmen"])\n'
    "    del spec\n"
    "from culmen.extensions.compat.openevolve.proxy import stub\n"
    "\n"
    "stub.stand_in(globals(), {folder!r}, {part!r})\n"
)
_current: tuple[int, ProxySession] | None = None
_early: JsonObject = {}  # seeds set before there is a session
_hooked = False


def stub_text(package: str, folder: str, part: str) -> str:
    """The text of the stub of one part of the candidate.

    `package` is culmen's folder, `folder` the one with the socket.
    """
    return _TEXT.format(
        start=os.path.join(package, "__init__.py"), package=package, folder=folder, part=part
    )


def process_session(folder: str) -> ProxySession:
    """This process's session."""
    global _current
    if _current is None or _current[0] != os.getpid():
        _current = (os.getpid(), ProxySession(folder))
        _current[1].seeds.update(_early)
        install_hooks()
    return _current[1]


def install_hooks() -> None:
    """Hook into forks, seeding of random generators, and uncaught exceptions of this process."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    os.register_at_fork(
        before=lambda: _current and _current[1].before_fork(),
        after_in_parent=lambda: _current and _current[1].after_fork_in_parent(),
        after_in_child=_in_child,
    )
    connection.watch_seeding(_note_seed)
    sys.excepthook = (
        traceback.print_exception
    )  # Python's own would open the stub to show a line of it


def _in_child() -> None:
    global _current
    if _current is not None:
        _current = (os.getpid(), _current[1])
        _current[1].after_fork_in_child()


def _note_seed(name: str, value: object) -> None:
    (_current[1].seeds if _current else _early)[name] = value


def stand_in(space: JsonObject, folder: str, part: str) -> None:
    """Fill the module with globals `space` with the definitions of the candidate's module."""
    link = process_session(folder)
    link.note_event("import", str(_expected_openings(space)))
    name = str(space.get("__name__", "program"))
    if name == "__main__":
        raise SystemExit(_run_script(link, part))
    about = link.import_part(name, part)
    remote: remote_objects.RemoteHandle = about["remote"]
    space["__doc__"] = None if about["doc"] is None else str(about["doc"])
    space.update(about["names"])
    every = (
        about["all"]
        if isinstance(about["all"], list)
        else [name for name in about["names"] if name[:1] != "_"]
    )
    # `from program import *` must not put the candidate's functions in the place of Python's own
    space["__all__"] = [str(name) for name in every if not hasattr(builtins, str(name))]
    space["__getattr__"] = lambda name: link.remote_attribute(
        remote, name, remote_objects.DEFINITIONS
    )
    space["__dir__"] = lambda: sorted(
        {*link.ask(Operation.LIST_ATTRIBUTES, remote, key="dir()"), *space}
    )
    for module in (sys.modules.get(name), *gc.get_referrers(space)):
        if isinstance(module, ModuleType) and module.__dict__ is space:
            module.__class__ = _module_class(link, remote)
            break


def _expected_openings(space: JsonObject) -> int:
    """Number of times that Python opens a file to run it.

    1 for an import (or if the text was read and run), 3 for `runpy.run_path`, 2 for a script, which
    is first examined as a possible archive.
    """
    if space.get("__spec__") is not None:
        return 1
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "runpy":
            return 3
        frame = frame.f_back
    return 2 if space.get("__name__") == "__main__" else 1


def _module_class(link: ProxySession, remote: remote_objects.RemoteHandle) -> type[ModuleType]:
    """A module whose attributes are set in the candidate's process."""

    class Program(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if name.startswith("__"):
                return super().__setattr__(name, value)
            link.ask(Operation.SET_ATTRIBUTE, remote, name, value, key=name)
            self.__dict__.pop(name, None)

        def __delattr__(self, name: str) -> None:
            link.ask(Operation.DELETE_ATTRIBUTE, remote, name, key=name)
            self.__dict__.pop(name, None)

    return Program


def _run_script(link: ProxySession, part: str) -> int:
    """Run `python PROGRAM ARGUMENTS` in the candidate's process; return the exit status.

    The candidate gets our arguments and our standard streams.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    streams = tuple(fd for fd in range(3) if _is_pipe_or_null(fd))
    if len(streams) < 3:
        link.note_event(
            "unsupported",
            "the program is run as a script with a file as one of its standard streams",
        )
        sys.stderr.write("a program that runs elsewhere needs pipes as its standard streams\n")
        return 1
    try:
        return int(
            link.ask(Operation.RUN_SCRIPT, part, sys.argv[1:], key="exit status", fds=streams)
        )
    except ProgramGone:
        return 1


def _is_pipe_or_null(fd: int) -> bool:
    """True if a stream can only be read from or written to."""
    try:
        about = os.fstat(fd)
    except OSError:
        return False
    return stat.S_ISFIFO(about.st_mode) or os.path.samestat(about, os.stat(os.devnull))
