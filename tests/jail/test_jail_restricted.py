"""Level restricted, where candidates share files, processes and a user with culmen.

What honest programs keep, what the fork-server does on their behalf, and the attacks once more
as an ordinary user.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.jail import bubblewrap
from tests.evaluate.conftest import Ground, need

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]
SCORE = "def score(output):\n    return 1.0 if output is True else {'score': 0.0, 'feedback': repr(output)}\n"
SOURCE = '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n'

HONEST = {
    "modes and times of its own files": """
import os, pathlib, shutil, stat, time
def run():
    path = pathlib.Path("a"); path.write_text("a"); path.chmod(0o640)
    os.utime(path, (1, 2)); copy = shutil.copy2(path, "b")
    here = [(stat.S_IMODE(os.stat(p).st_mode), os.stat(p).st_mtime) for p in (path, copy)]
    with open("c", "w") as file:
        os.fchmod(file.fileno(), 0o600); os.utime(file.fileno(), ns=(3, 4 * 10**9))
    os.mkdir("d"); os.chmod(os.path.abspath("d"), 0o700); os.makedirs("e/f"); shutil.copytree("e", "g")
    folder = os.open("d", os.O_RDONLY); pathlib.Path("d/x").touch(); os.chmod("x", 0o400, dir_fd=folder)
    os.symlink("a", "link"); os.chmod("link", 0o604); pathlib.Path("a").touch()
    return (here == [(0o640, 2.0)] * 2 and os.stat("c").st_mtime == 4 and stat.S_IMODE(os.stat("d/x").st_mode) == 0o400
            and stat.S_IMODE(os.stat("a").st_mode) == 0o604 and os.stat("a").st_mtime > 2) or here
""",
    "errors of its own": """
import errno, os
def run():
    found = []
    for path in ("nothing", "", "nothing/there", "/nowhere", "../x", "a" * 300):
        try:
            os.chmod(path, 0o600)
        except OSError as error:
            found.append(error.errno)
    wanted = [errno.ENOENT, errno.ENOENT, errno.ENOENT, errno.EPERM, errno.EPERM, errno.ENAMETOOLONG]
    return found == wanted or found
""",
    "archives": """
import io, os, tarfile
def run():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        info = tarfile.TarInfo("x/y"); info.size, info.mode, info.mtime = 2, 0o755, 1000
        archive.addfile(info, io.BytesIO(b"hi"))
    data.seek(0)
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
    tarfile.open(fileobj=data).extractall(".", **safe)
    return os.access("x/y", os.X_OK) and os.stat("x/y").st_mtime == 1000
""",
    "a compiler and what it made": f"""
import subprocess
def run():
    open("a.c", "w").write({SOURCE!r})
    subprocess.run(["cc", "a.c", "-o", "a.out"], check=True)
    return subprocess.run(["./a.out"], capture_output=True, text=True).stdout == "compiled\\n"
""",
    "connected pairs of sockets": """
import asyncio, socket, subprocess, threading
def run():
    async def work():
        process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0], await asyncio.to_thread(lambda: 7)
    a, b = socket.socketpair(); a.sendall(b"x")
    c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.send(b"y")
    return (asyncio.run(work()), b.recv(1), d.recv(1)) == ((b"hi\\n", 7), b"x", b"y")
""",
    "limits and priority of its own": """
import os, resource
def run():
    os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0)); resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return os.isatty(1) is False and os.get_blocking(0)
""",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_keep_what_they_need_in_the_work_folder(shared: Make, name: str) -> None:
    if "compiler" in name and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    observation = shared(SCORE, "restricted").one(HONEST[name])
    assert observation.score == 1.0, observation


def test_many_ask_at_once_and_some_are_killed_while_they_ask(shared: Make) -> None:
    source = """
import os, threading
def run():
    def work(name):
        open(name, "w").close()
        for mode in range(200):
            os.chmod(name, 0o600 | mode % 8)
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            work(f"child{child}"); work("shared"); os._exit(0)
        children.append(pid)
    os.kill(children[0], 9)
    threads = [threading.Thread(target=work, args=(f"thread{n}",)) for n in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return set(ends[1:]) == {0}
"""
    spin = "import os\ndef run():\n    open('a', 'w')\n    while True: os.chmod('a', 0o600)\n"
    ground = shared(SCORE, "restricted")
    asking, ended = ground.evaluate(source, spin)
    assert asking.score == 1.0, (asking.reason, asking.feedback)
    assert ended.reason in ("timeout", "cpu_limit")
    assert ground.one("def run(): return True").score == 1.0


REFUSED = """
def refused(call):
    try:
        call()
    except PermissionError:
        return True
    return False
"""

SENDING = """
import array, ctypes, os, socket
def run():
    a, b = socket.socketpair()
    kept = os.open("held", os.O_RDWR | os.O_CREAT)
    descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [kept] * 200))]
    libc = ctypes.CDLL(None, use_errno=True)
    found = {
        "descriptors": refused(lambda: a.sendmsg([b"x"], descriptors)),
        "descriptors by send_fds": refused(lambda: socket.send_fds(a, [b"x"], [kept])),
        "a message alone": refused(lambda: a.sendmsg([b"x"])),
        "many messages": libc.sendmmsg(a.fileno(), None, 0, 0) == -1 and ctypes.get_errno() == 1,
    }
    a.send(b"y")  # nothing came before it, and bytes alone still travel
    found["bytes"] = b.recv(9) == b"y"
    return all(found.values()) or found
"""


def test_no_descriptor_leaves_a_program_in_a_message(shared: Make) -> None:
    """The kernel counts descriptors in flight for the user.

    One candidate's could keep all others from starting.
    """
    observation = shared(SCORE, "restricted").one(REFUSED + SENDING)
    assert observation.score == 1.0, observation


CONNECTING = """
import os, socket, subprocess, sys, tempfile
OUTSIDE = {outside!r}
def connect(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.connect(path)
        client.sendall(b"x")
def evaluate(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("own"); server.listen()
        connect("own"); connect(os.path.abspath("own"))
    os.symlink(OUTSIDE, "link"); os.symlink("/", "root")
    beyond = [OUTSIDE, "link", "root" + OUTSIDE, os.path.relpath(OUTSIDE), "\\0abstract", "/proc/self/cwd/own"]
    held = {{place: refused(lambda: connect(place)) for place in beyond}}
    held["datagrams"] = refused(lambda: connect(OUTSIDE, socket.SOCK_DGRAM))
    held["network"] = refused(lambda: socket.socket(socket.AF_INET))
    import importlib.util
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
    again = "import importlib.util as u, sys; s = u.spec_from_file_location('p', sys.argv[1]); " \\
            "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.run())"
    out = subprocess.run([sys.executable, "-c", again, path], capture_output=True, text=True)
    held["a process of its own"] = out.stdout.strip() == "7"
    return {{"combined_score": float(module.run() == 7 and all(held.values())), "held": repr(held) + out.stderr}}
"""


@pytest.mark.extension("compat")
def test_a_proxied_evaluator_connects_below_its_work_folder_and_nowhere_else(ground: Make) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="culmen-s-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        os.chmod(folder, 0o777)
        listener.bind(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        listener.listen()
        listener.setblocking(False)
        source = REFUSED + CONNECTING.format(outside=f"{folder}/s")
        seed = {"program.py": "def run():\n    return 7\n"}
        arena = ground(source, "restricted", form="legacy", proxy="always", seeds=(seed,))
        observation = arena.one(seed)
        assert observation.score == 1.0 and observation.trust == "proxied", observation
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.slow
@pytest.mark.extension("audit")
def test_the_attacks_of_this_level_fail_for_an_ordinary_user_too() -> None:
    need("restricted")
    if os.geteuid() != 0:
        pytest.skip("the attacks run as an ordinary user already")
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("unshare and setpriv are missing")
    tests = "tests/jail/test_jail_attacks.py"
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-rs",
        tests,
        "-k",
        "restricted",
    ]
    done = subprocess.run(
        [*as_user(12345), *line], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count(".") > 60 and "SKIPPED" not in done.stdout


SMALL = """
import tempfile
from pathlib import Path
from tests.evaluate.conftest import Grounds
class Folders:
    def mktemp(self, name): return Path(tempfile.mkdtemp())
grounds = Grounds(Folders(), shared=False)
print(grounds("def score(output): return output\\n", "restricted").one("def run(): return 3.0").score)
grounds.close()
"""


@pytest.mark.parametrize("user", [0, 12345], ids=["root", "an ordinary user"])
def test_it_starts_where_new_files_are_closed_to_others(user: int) -> None:
    """Python is in no user's home, so candidates of root may not read closed folders."""
    need("restricted")
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("takes root, unshare and setpriv")
    line = [*as_user(user, umask="077"), sys.executable, "-c", SMALL]
    done = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout == "3.0\n", done.stderr[-2000:]


def as_user(user: int, umask: str = "022") -> list[str]:
    """A command line that runs another as a user who owns nothing else.

    Our Python is in sight, no matter which users may see its folders.
    """
    script = ["set -e", "umask 022", "hold=$(mktemp -d)"]
    needed = [*bubblewrap.python_folders(), str(Path(__file__).parents[2])]
    shut = sorted(
        {str(p) for path in needed for p in Path(path).parents if not os.stat(p).st_mode & 0o001}
    )
    for number, path in enumerate(
        path for path in needed if any(path.startswith(f"{p}/") for p in shut)
    ):
        script += [f"mkdir $hold/{number}", f"mount --bind '{path}' $hold/{number}"]
        script += [f"after=\"$after; mkdir -p '{path}'; mount --bind $hold/{number} '{path}'\""]
    script += [f"mount -t tmpfs -o mode=755 tmpfs '{path}'" for path in shut]
    script += [
        'eval "true $after"',
        "export HOME=$(mktemp -d) PYTHONDONTWRITEBYTECODE=1",
        f"chown {user}:{user} $HOME",
    ]
    bounds = (
        f"setpriv --reuid={user} --regid={user} --clear-groups --bounding-set=-all" if user else ""
    )
    script += ["export TMPDIR=$HOME", f"umask {umask}", f'exec {bounds} "$@"']
    return ["unshare", "-m", "sh", "-c", "\n".join(script), "sh"]
