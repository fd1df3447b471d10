"""Agents that mean harm: real processes in the real sandbox.

An honest program of the same agent is beside them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from culmen.core.task import Evaluator, Task
from culmen.extensions.agents.messages import Waited
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from tests.extensions.agents.sandbox.grounds import ASK, Ground, everything

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]
KEY = "sk-fake-0123456789"

TELL = (
    ASK
    + """
import os, traceback

def attempt(name, deed):
    try:
        told[name] = str(deed())[:200]
    except BaseException as error:
        told[name] = type(error).__name__

def tell():
    print(json.dumps(told), flush=True)

told = {}
"""
)


def told(waited: Waited) -> dict[str, Any]:
    """The last line that the program printed, as JSON."""
    assert waited.ended == "finished", waited
    return json.loads(waited.word.splitlines()[-1])


def run(here: Ground, program: str, **options: Any) -> dict[str, Any]:
    """Let a program try what it wants to, and read what came of it."""
    here.open(TELL + program + "\ntell()\n", **options)
    return told(here.serve(options.get("agent", 0))[0])


def test_hostile_reads_nothing_it_should_not(
    ground: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys in environment and /proc, the evaluator, the journal, control, other runs.

    None of these is there.
    """
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    task_folder = tmp_path / "task"
    task_folder.mkdir()
    evaluator = task_folder / "evaluator.py"
    evaluator.write_text("SECRET = 'hidden answer'\n")
    victim = subprocess.Popen(["/bin/sleep", "600"], env={"OPENAI_API_KEY": KEY})
    try:
        here = ground(
            task=Task("t", seeds=({"main.py": "x"},), evaluator=Evaluator(path=str(evaluator)))
        )
        package = os.path.dirname(__import__("culmen").__file__)
        found = run(
            here,
            f"""
def search():
    hits = []
    for path in os.listdir("/proc"):
        if path.isdigit():
            for name in ("environ", "cmdline", "root/etc/shadow", "cwd/secret"):
                try:
                    if {KEY!r} in open(f"/proc/{{path}}/{{name}}", errors="replace").read():
                        hits.append(f"{{path}}/{{name}}")
                except OSError:
                    pass
    return hits

attempt("environment", lambda: [name for name, value in os.environ.items() if {KEY!r} in value])
attempt("proc", search)
attempt("processes", lambda: len([name for name in os.listdir("/proc") if name.isdigit()]) < 15)
attempt("evaluator", lambda: open({str(evaluator)!r}).read())
attempt("run", lambda: os.listdir({str(tmp_path)!r}))
attempt("control", lambda: open({str(here.run_folder / "control" / "repo.git" / "HEAD")!r}).read())
attempt("tasks", lambda: [n for n in os.listdir({package + "/extensions/builtin"!r})])
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("root", lambda: os.listdir("/root"))
attempt("capabilities", lambda: [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")])
attempt("user", lambda: os.getuid() != 0)
""",
        )
    finally:
        victim.kill()
        victim.wait()
    assert found.pop("capabilities") == "['0000000000000000']"
    assert found.pop("user") == "True" and found.pop("processes") == "True"
    assert (
        found.pop("environment") == "[]"
        and found.pop("proc") == "[]"
        and found.pop("tasks") == "[]"
    )
    assert found.pop("root") in ("FileNotFoundError", "PermissionError", "[]", "['.pyenv']"), found
    assert set(found.values()) <= {"FileNotFoundError", "PermissionError"}, found


def test_hostile_changes_nothing_it_should_not(ground: Make, tmp_path: Path) -> None:
    """The view, culmen itself, the system: read-only, and mounts cannot be undone."""
    here = ground()
    here.open("print('seed')")
    here.serve()
    here.finish()
    before = everything(here.run_folder / "view")
    package = os.path.dirname(__import__("culmen").__file__)
    found = run(
        here,
        f"""
def write(path):
    with open(path, "w") as file:
        file.write("x")
    return "written"

def sh(line):
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    return "done" if done.returncode == 0 else "refused"

attempt("history", lambda: write(".culmen/past_experiments.jsonl"))
attempt("through the link", lambda: write("past_experiments.jsonl"))
attempt("result", lambda: write(".culmen/results/forged.json"))
attempt("program", lambda: write(".culmen/evaluate"))
attempt("replace view", lambda: os.rename(".culmen", "x"))
attempt("remove view", lambda: os.rmdir(".culmen"))
attempt("umount", lambda: sh("umount .culmen || umount -l /repo/.culmen"))
attempt("remount", lambda: sh("mount -o remount,rw /repo/.culmen"))
attempt("tmpfs", lambda: sh("mount -t tmpfs none .culmen"))
attempt("nested", lambda: sh("unshare -Ur sh -c 'umount /repo/.culmen || mount -o remount,rw,bind /repo/.culmen'"))
attempt("culmen", lambda: write({package + "/x.py"!r}))
attempt("usr", lambda: write("/usr/x"))
attempt("etc", lambda: write("/etc/x"))
attempt("root", lambda: write("/x"))
attempt("dev", lambda: write("/dev/x"))
attempt("disk", lambda: sh("mknod disk b 8 0"))
attempt("kill", lambda: sh("kill -9 1; exit 1"))  # we live on
attempt("uid", lambda: os.setuid(0))
""",
        agent=1,
    )
    assert set(found.values()) <= {"OSError", "PermissionError", "refused"}, found
    assert (
        everything(here.run_folder / "view").items()
        >= {name: data for name, data in before.items() if name != "leaderboard.md"}.items()
    )
    assert not os.path.exists(os.path.join(package, "x.py"))


def test_hostile_reaches_no_network(ground: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0culmen-hostile-{os.getpid()}")
        abstract.listen()
        found = run(
            ground(),
            f"""
import socket
attempt("port", lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 2))
attempt("world", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0culmen-hostile-{os.getpid()}"))
""",
        )
        abstract.close()
        assert set(found.values()) <= {"ConnectionRefusedError", "OSError", "TimeoutError"}, found
        with pytest.raises(TimeoutError):
            server.accept()


def test_hostile_forged_results_and_history_count_for_nothing(ground: Make) -> None:
    here = ground()
    found = run(
        here,
        """
path = propose("x.py", "x = 1\\n")
os.makedirs("results", exist_ok=True)
open("results/a00-forged.json", "w").write('{"ticket": "a00-forged", "score": 1e9}')
os.unlink("past_experiments.jsonl")
open("past_experiments.jsonl", "w").write('{"ticket": "a00-forged", "score": 1e9}\\n')
os.unlink("leaderboard.md")
open("leaderboard.md", "w").write("I am first\\n")
attempt("best", lambda: ask(path)[0]["score"])
""",
    )
    assert found["best"] == "19.0"
    _, committed = here.finish()
    assert {"past_experiments.jsonl", "leaderboard.md", "results/a00-forged.json"} <= set(
        committed.dropped
    )
    here.open(
        TELL
        + """
attempt("rows", lambda: [json.loads(line)["score"] for line in open("past_experiments.jsonl")])
attempt("board", lambda: "first" in open("leaderboard.md").read())
tell()
""",
        agent=1,
    )
    assert told(here.serve(1)[0]) == {"rows": "[19.0]", "board": "False"}


def test_hostile_fork_bomb_is_bounded(ground: Make) -> None:
    here = ground(settings=SandboxSettings(processes=60))
    here.open(
        """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
        limits={"seconds": 3.0},
    )
    end, most = time.monotonic() + 1.5, 0
    while time.monotonic() < end:
        most = max(most, len(here.processes()))
    waited, _ = here.serve()
    assert waited.ended == "seconds" or waited.word == "processes", waited
    assert most < 200
    here.finish()
    assert not here.processes()


def test_hostile_memory_is_bounded(ground: Make) -> None:
    here = ground(settings=SandboxSettings(memory_mb=200))
    here.open("import time\nhoard = [b'x' * (100 << 20) for _ in range(4)]\ntime.sleep(600)\n")
    waited, _ = here.serve()
    assert (waited.ended, waited.word) == ("crashed", "memory")
    assert not here.processes()


@pytest.mark.slow
def test_hostile_disk_is_bounded(ground: Make) -> None:
    here = ground(settings=SandboxSettings(file_mb=8, disk_mb=64))
    found = run(
        here,
        """
def fill():
    with open("huge", "wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
attempt("one file", fill)
""",
    )
    assert found == {"one file": "OSError"}
    here.finish()
    here.open(
        """
import time
for place in ("/tmp", "/dev/shm", "."):
    for n in range(8):
        open(f"{place}/f{n}", "wb").write(b"x" * (7 << 20))
time.sleep(600)
""",
        agent=1,
    )
    waited, _ = here.serve(1)
    assert (waited.ended, waited.word) == ("crashed", "disk")


def test_hostile_hang_and_deaf_ears(ground: Make) -> None:
    """Ignoring every signal, closing all pipes, stopping itself: the limit ends it all the same."""
    here = ground()
    here.open(
        """
import os, signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
if os.fork():
    os.close(1); os.close(2)
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    time.sleep(1)
""",
        limits={"seconds": 1.0},
    )
    waited, _ = here.serve()
    assert waited.ended == "seconds"
    here.finish()
    assert not here.processes()


def test_hostile_daemon_does_not_survive(ground: Make) -> None:
    """It leaves a daemon that would go on asking for experiments and writing into its tree."""
    here = ground()
    here.open("""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        n = 0
        while True:
            n += 1
            with open("notes/a00.md", "w") as file:
                file.write(str(n))
            time.sleep(0.001)
    os._exit(0)
time.sleep(0.3)
""")
    waited, _ = here.serve()
    assert waited.ended == "finished"
    assert not here.processes()
    notes = (here.tree() / "notes/a00.md").read_text()
    ended, committed = here.finish()
    assert ended.notes == notes and "notes/a00.md" in committed.changed
    assert here.git("show", "trunk:notes/a00.md") == notes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hostile_flood_of_requests(ground: Make) -> None:
    """Ten thousand requests, then an honest one.

    They are bounded, every one is answered, and the honest one is evaluated.
    """
    here = ground()
    here.open(
        TELL
        + """
path = propose("x.py", "x = 1\\n")
for n in range(10_000):
    with open(f"f{n}", "w") as file:
        json.dump({"path": path} if n % 2 else {"path": "../" * n}, file)
for n in range(10_000):
    os.rename(f"f{n}", f"queue/f{n:05d}.json")
results, seen = ".culmen/results", set()
while len(seen) < 10_000:
    seen = {name for name in os.listdir(results) if name.startswith("a00-f")}
    if not os.listdir("queue"):
        break
honest = ask(path)[0]
told["status"], told["answers"] = honest["status"], len(seen) > 5000
tell()
""",
        limits={"seconds": 500.0},
    )
    waited, asked = here.serve()
    assert told(waited) == {"status": "ok", "answers": True}
    assert len(asked) <= 4000
    assert sum(bool(one.fault) for one in asked) <= 200


def test_hostile_links_and_devices_as_candidates(ground: Make) -> None:
    here = ground()
    (here.run_folder.parent / "outside").write_text("secret")
    found = run(
        here,
        f"""
own = "candidates/a00"
os.symlink({str(here.run_folder.parent / "outside")!r}, own + "/outside.py")
os.symlink("/proc/self/environ", own + "/environ.py")
os.symlink("/repo", own + "/loop")
os.mkfifo(own + "/fifo")
open("real.py", "w").write("x")
os.link("real.py", own + "/hard.py")
with open(own + "/huge.py", "wb") as file:
    file.truncate(200 << 20)
names = ("outside.py", "environ.py", "loop", "fifo", "hard.py", "huge.py", "missing.py", "../../TASK.md")
rows = ask(*(f"{{own}}/{{name}}" for name in names))
told = {{name: f"{{row['status']}} {{row['reason']}}" for name, row in zip(names, rows)}}
""",
    )
    assert found == {
        "outside.py": "refused link",
        "environ.py": "refused link",
        "loop": "refused link",
        "fifo": "refused not_a_file",
        "hard.py": "refused hard_link",
        "huge.py": "refused too_large",
        "missing.py": "refused missing",
        "../../TASK.md": "refused outside_candidates",
    }
    _, committed = here.finish()
    assert committed.changed == ()
    assert not any(
        "secret" in here.git("show", f"trunk:{path}")
        for path in here.git("ls-tree", "-r", "--name-only", "trunk").split()
    )


def test_hostile_git_tricks(ground: Make, tmp_path: Path) -> None:
    """Hooks, filters, alternates, included settings, a replaced .git.

    Nothing of it acts outside, nothing goes in.
    """
    here = ground()
    alarm = tmp_path / "alarm"
    here.open(f"""
import os, subprocess, shutil
trick = "#!/bin/sh\\ntouch {alarm} /tmp/alarm\\n"
for hook in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-merge"):
    os.makedirs(".git/hooks", exist_ok=True)
    open(f".git/hooks/{{hook}}", "w").write(trick)
    os.chmod(f".git/hooks/{{hook}}", 0o755)
open(".gitattributes", "w").write("* filter=evil diff=evil merge=evil\\n")
open("candidates/a00/.gitattributes", "w").write("* filter=evil\\n")
subprocess.run(["git", "config", "filter.evil.clean", "touch {alarm}"], check=True)
subprocess.run(["git", "config", "include.path", "/proc/self/environ"], check=False)
subprocess.run(["git", "config", "core.fsmonitor", "touch {alarm}"], check=True)
open(".git/objects/info/alternates", "w").write("{here.run_folder}/control/repo.git/objects\\n")
shutil.move(".git", "candidates/a00/repo")
os.symlink("candidates/a00/repo", ".git")
os.makedirs("candidates/a01")
open("candidates/a01/theirs.py", "w").write("mine")
open("candidates/a00/x.py", "w").write("x = 1\\n")
""")
    waited, _ = here.serve()
    assert waited.ended == "finished", waited
    _, committed = here.finish()
    assert "candidates/a00/x.py" in committed.changed
    assert {
        ".gitattributes",
        "candidates/a01/theirs.py",
        "candidates/a00/.gitattributes (not_a_file)",
    } <= set(committed.dropped)
    assert not alarm.exists()
    assert "candidates/a01/theirs.py" not in here.git("ls-tree", "-r", "--name-only", "trunk")
    here.open(
        "open('reflections.md', 'a').write('next')\n", agent=1
    )  # the next checkout runs nothing either
    assert here.serve(1)[0].ended == "finished"
    assert here.finish(1)[1].changed == ("reflections.md",)
    assert not alarm.exists()


def test_hostile_evaluator_in_a_visible_folder_is_covered(ground: Make, tmp_path: Path) -> None:
    """A project may be its own Python environment: its evaluator is covered even so."""
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "lib/tool.py").write_text("tool")
    (project / "evaluator.py").write_text("SECRET")
    from culmen.extensions.agents.sandbox import confinement

    hidden = (str(project), str(project / "evaluator.py"))
    line = confinement._mask_options(hidden, [str(project)])
    assert line == ["--ro-bind", "/dev/null", str(project / "evaluator.py")]
    assert confinement._mask_options(hidden, [str(tmp_path)])[:2] == ["--tmpfs", str(project)]
    assert confinement._mask_options(hidden, ["/opt"]) == []
    here = ground(task=Task("t", evaluator=Evaluator(path=str(project / "evaluator.py"))))
    tool = project / "bin"
    tool.mkdir()
    (tool / "agent").write_text(
        f"#!/bin/sh\ncat {project}/lib/tool.py\ncat {project}/evaluator.py\ntrue\n"
    )
    (tool / "agent").chmod(0o755)
    here.open("x", kind=f"cmd: {tool}/agent")
    waited, _ = here.serve()
    assert waited.word == "tool" and waited.ended == "finished", waited
