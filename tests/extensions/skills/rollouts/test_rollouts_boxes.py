"""Tasks that need their container.

The agent is in one of the task's image, the tests in a fresh one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import TRAJECTORY
from culmen.core.task import Task
from culmen.extensions.containers.engine import (
    Box,
    copy_from_image,
    find_image,
    remove_orphaned_containers,
)
from culmen.extensions.skills.rollouts.boxes import covered_folders, visible_mounts
from culmen.extensions.skills.rollouts.form import RolloutBackend, read_skill_folder
from culmen.extensions.skills.rollouts.harbor import read_task
from culmen.extensions.skills.rollouts.images import image_of_task
from culmen.models.call import Tokens
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.containers import image
from tests.extensions.skills.rollouts.folders import ANSWER, HEAD, rolled_out, run, write
from tests.extensions.skills.rollouts.mcp_worlds import CLIENT, FETCH, SERVER, served, table
from tests.extensions.skills.rollouts.test_rollouts_tools import CODE
from tests.extensions.skills.rollouts.test_rollouts_world import ASKER
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
PUPPET = """import subprocess, sys
done = subprocess.run(["sh", sys.argv[1] + "/scripts/work.sh"], capture_output=True, text=True)
print(done.stdout, done.stderr)
"""
TEST = """#!/bin/sh
cd /app
[ -x tool ] && echo "a tool is there"
python3 -c "import json, numpy; open('built').read()" || exit 1
if [ "$(cat answer.txt)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
REWARD = "/logs/verifier/reward.txt"
BOXED = """[metadata.culmen]
split = "train"
[agent]
timeout_sec = 600
[environment]
memory_mb = 512
storage_mb = 10240
network_mode = "no-network"
"""
ENV = 'python3 -c "import os; [print(*each, sep=chr(61)) for each in os.environ.items()]"\n'
HONEST = f"printf '{ANSWER}' > answer.txt\n"
LOOK = """
python3 -c "import os; print(os.getuid() != 0, os.getcwd(), sorted(os.listdir()), os.environ['MODE'])"
cat built
for place in $CULMEN_SKILL ~/.agents/skills/worker; do (: > $place/x) 2>&1 | awk '{print "closed"}'; done
python3 -c "import os; print(*map(os.path.exists, ('/tests', '/logs/verifier', '/work/hint.txt')))"
python3 -c "import socket; socket.create_connection(('1.1.1.1', 53), 2)" 2>&1 | awk '/unreachable/ {print "offline"}'
"""
GAMES = {
    "writes the reward": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > reward.txt",
    "replaces the tests": "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh",
    "replaces programs": (
        "printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > fake; chmod 755 fake; "
        "for f in /bin/sh /bin/cat /usr/local/bin/python3; do rm -f $f; cat fake > $f; done; cat fake > ~/.profile"
    ),
    "links to the answer": "python3 -c \"import os; os.symlink('/tests/expected.txt', 'answer.txt')\"",
    "waits for the tests": (
        'python3 -c "import os, time\nif os.fork() == 0:\n os.setsid()\n'
        " for fd in (0, 1, 2): os.close(fd)\n while True:\n  os.system("
        "'echo 1 > /logs/verifier/reward.txt; cat /tests/expected.txt > answer.txt'); time.sleep(0.01)\""
    ),
    "shadows modules": (
        "echo \"open('/logs/verifier/reward.txt', 'w').write('1'); import os; os._exit(1)\" > json.py; "
        "cat json.py > numpy.py"
    ),
    "keeps a privileged shell": "cat /bin/sh > tool; chmod 6755 tool",
    "kills everything": "kill -9 -1",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an image made of this machine's files; skips where podman cannot run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", image.path_of_podman(tmp_path_factory.mktemp("bin")))
        if why := image.made():
            pytest.skip(f"no container can be run here: {why}")
        yield image.IMAGE


def boxed_task(
    folder: Path, base: str, agent: str = "", more: str = "", dockerfile: str = ""
) -> Task:
    agent = agent or "cmd: python3 {folder}/puppet.py {skill}"
    recipe = f"FROM {base} AS first\nWORKDIR /app\nCOPY hint.txt .\nENV MODE=fast\nRUN echo by RUN > built\n"
    files = {
        "task.toml": f"goal = 'work'\n[skill]\nagent = \"{agent}\"\n",
        "puppet.py": PUPPET,
        "asker.py": ASKER,
        "skill/SKILL.md": f"{HEAD}Run scripts/work.sh.\n",
        "skill/scripts/work.sh": "true\n",
        "tasks/one/task.toml": f"{BOXED}{more}",
        "tasks/one/instruction.md": "Write the answer to answer.txt.\n",
        "tasks/one/environment/Dockerfile": dockerfile or recipe,
        "tasks/one/environment/hint.txt": "42\n",
        "tasks/one/tests/test.sh": TEST,
        "tasks/one/tests/expected.txt": ANSWER,
    }
    return read_skill_folder(write(folder, files))


def listed_containers() -> set[str]:
    listed = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name for name in listed.split() if name.startswith("culmen-container-")}


def left_containers() -> list[str]:
    """Containers that stay; those of tests that run beside this one go soon."""
    left, end = listed_containers(), time.monotonic() + 60
    while left and time.monotonic() < end:
        time.sleep(0.2)
        left &= listed_containers()
    return sorted(left)


@pytest.mark.slow
def test_boxes_world_of_agent_and_tests(base: str, tmp_path: Path) -> None:
    """RUN of the Dockerfile counts; no right, no network, no test for the agent; nothing stays."""
    task = boxed_task(tmp_path, base, agent="cmd: python3 {folder}/puppet.py {skill} {folder}")
    assert task.notes == () and task.evaluator.options["images"] == {base: find_image(base).id}
    tmp_path.chmod(0o755)
    hidden = f"python3 -c \"import os; print('tasks', os.listdir('{tmp_path}/tasks'))\"\n"
    honest, nothing, changed = rolled_out(
        task, f"{LOOK}{hidden}{HONEST}", "true\n", f"{HONEST}rm -f built\n"
    )
    assert honest.score == 1.0, honest.feedback
    said = json.loads(honest.artifacts[TRAJECTORY])["steps"][1]["message"]
    assert "True /app ['built', 'hint.txt'] fast" in said and "by RUN" in said
    assert said.count("closed") == 2 and "False False False" in said and "offline" in said
    assert "tasks []" in said
    assert (nothing.score, changed.reason) == (0.0, "no_reward")
    assert left_containers() == []


@pytest.mark.slow
def test_boxes_serve_tools(base: str, tmp_path: Path) -> None:
    """The original server and the candidate's code run in the agent's container.

    They run with the image's Python.
    """
    code = f"{CODE}def where() -> str:\n    import sys\n    return sys.executable + open('built').read()\n"
    client = f"cmd: python3 {{folder}}/client.py '{json.dumps([['where', {}], ['fetch', {'key': '42'}]])}'"
    boxed_task(tmp_path, base)
    more = 'server = "python3 {folder}/server.py"\n'
    toml = f'goal = "work"\n[tools]\nagent = {json.dumps(client)}\n{more}'
    own = {"own.py": code.replace("def fetch", "def _fetch"), **table(fetch=FETCH)}
    write(tmp_path, {"task.toml": toml, "server.py": SERVER, "client.py": CLIENT})
    write(tmp_path / "tools", own)
    tmp_path.chmod(0o755)
    task = read_skill_folder(tmp_path)
    cheat = code.replace("open('built').read()", "os.system('echo 1 > /logs/verifier/reward.txt')")
    honest, broken = served(task, {}, {"own.py": cheat.replace("def fetch", "def _fetch")})
    assert honest.score == 1.0 and honest.metrics["served_calls"] == 2.0, honest.feedback
    said = honest.artifacts[TRAJECTORY]
    assert "by RUN" in said and sys.prefix not in said
    assert (
        broken.score == 1.0 and "NameError" in broken.artifacts[TRAJECTORY]
    )  # the answer came from the server
    (tmp_path / "task.toml").write_text(
        toml.replace("python3 {folder}/server.py", "git {folder}/server.py")
    )
    with pytest.raises(UserError, match="does not start in the agent's sandbox"):
        served(read_skill_folder(tmp_path))
    assert left_containers() == []


@pytest.mark.slow
def test_boxes_no_game_wins(base: str, tmp_path: Path) -> None:
    task = boxed_task(tmp_path, base)
    found = rolled_out(task, *(f"{text}\n" for text in GAMES.values()))
    outcomes = {
        name: (one.score, one.reason, one.feedback) for name, one in zip(GAMES, found, strict=True)
    }
    assert all(score == 0.0 for score, _, _ in outcomes.values()), outcomes
    assert left_containers() == []


def test_boxes_a_limit_ends_the_container(base: str, tmp_path: Path) -> None:
    """Time ends the agent with all its processes; a prebuilt image needs no Dockerfile."""
    more = f'docker_image = "{base}"\nworkdir = "/srv/work"\n'
    boxed_task(tmp_path, base, more=more)
    test = 'cd /srv/work; [ "$(cat answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt\n'
    short = BOXED.replace("timeout_sec = 600", "timeout_sec = 2.0")
    write(tmp_path, {"tasks/one/tests/test.sh": test, "tasks/one/task.toml": f"{short}{more}"})
    task = read_skill_folder(tmp_path)
    (cut,) = rolled_out(task, "printf 42 > answer.txt; sleep 60\n")
    assert cut.score == 1.0 and "the agent seconds" in cut.feedback
    assert left_containers() == []


@pytest.mark.jail
def test_boxes_model_through_the_gateway(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without a network the agent's model is reached through the relay alone."""
    need_confinement()
    from culmen.core.asking import ASKER as CURRENT
    from culmen.models.answerer import QuestionAnswerer
    from culmen.models.caller import Providers
    from culmen.models.roles import ModelBook

    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UPSTREAM_KEY", "sk-x")
    task = boxed_task(tmp_path / "t", base, agent="cmd: python3 {folder}/asker.py")

    async def play(models: Path) -> object:
        roles = ModelBook(str(models)).parse_roles({"default": "offline", "agent": "big"})
        answerer = QuestionAnswerer(roles, Providers())
        talk = answerer.open_talk(1)
        token = CURRENT.set(talk)
        backend = RolloutBackend(task, 1)
        try:
            assert await backend.start() == "container"
            return talk.with_questions(
                await backend.evaluate(task.initial_candidates()[0], task.cases[0], 1)
            )
        finally:
            CURRENT.reset(token)
            await backend.close()
            await answerer.close()

    with ModelServer([Turn(ANSWER, tokens=Tokens(30, 10))]) as server:
        models = tmp_path / "models.toml"
        models.write_text(
            f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
            '[models.big]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
        )
        one = run(play(models))
    assert one.score == 1.0, one.feedback
    assert [each.asked for each in one.asked] == [2]


def test_boxes_images_that_are_missing_or_changed(base: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="localhost/nothing is not on this machine"):
        boxed_task(tmp_path / "a", base, dockerfile="FROM localhost/nothing\n")
    stages = f"FROM --platform=linux/amd64 {base} AS one\nWORKDIR /opt/x\nFROM one\nWORKDIR y\n"
    found = image_of_task(write(tmp_path / "b", {"Dockerfile": stages}), {}, "")
    assert found is not None and (list(found.bases), found.workdir, found.gaps) == (
        [base],
        "/opt/x/y",
        (),
    )
    root = image_of_task(
        write(tmp_path / "c", {"Dockerfile": f"FROM {base}\nWORKDIR /tests/x\n"}), {}, ""
    )
    assert root is not None and root.gaps == ("the working directory /tests/x",)
    task = boxed_task(tmp_path / "d", base, dockerfile=f"FROM {base}\nRUN exit 3\n")
    with pytest.raises(UserError, match="cannot be built"):
        rolled_out(task)
    options = {**task.evaluator.options, "images": {base: "sha256:other"}}
    other = msgspec.structs.replace(
        task, evaluator=msgspec.structs.replace(task.evaluator, options=options)
    )
    with pytest.raises(UserError, match="has changed since"):
        rolled_out(other)


def test_boxes_variables_and_proxies(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of a task are the program's, never podman's own.

    Proxies of this machine stay out.
    """
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@proxy:1")
    own = {
        "CONTAINER_HOST": "tcp://127.0.0.1:1",
        "HOME": "/nowhere",
        "XDG_RUNTIME_DIR": "/x",
        "LINES": "a\n'$b\"",
        "PATH": "/opt/x:/usr/local/bin:/usr/bin:/bin",
    }
    given = "".join(f"{name} = {json.dumps(value)}\n" for name, value in own.items())
    text = "[environment.env]\n" + given + "[verifier.env]\nCONTAINER_SSHKEY = '/none'\n"
    recipe = (
        f"FROM {base}\nWORKDIR /app\nRUN echo {time.time()} && env > built\n"  # never built before
    )
    boxed_task(tmp_path, base, more=text, dockerfile=recipe)
    write(
        tmp_path,
        {"tasks/one/tests/test.sh": f"{ENV}[ $CONTAINER_SSHKEY = /none ] && echo 1 > {REWARD}\n"},
    )
    (found,) = rolled_out(read_skill_folder(tmp_path), f"cat built\n{ENV}")
    assert found.score == 1.0 and found.reason == "", found.feedback
    said = json.loads(found.artifacts[TRAJECTORY])["steps"][1]["message"]
    printed = said + found.feedback
    assert "secret" not in printed and "CULMEN_VARIABLE_" not in printed
    lines = said.splitlines()
    assert "CONTAINER_HOST=tcp://127.0.0.1:1" in lines and "XDG_RUNTIME_DIR=/x" in lines
    assert f"PATH={own['PATH']}" in lines and "LINES=a" in lines and "'$b\"" in lines


def test_boxes_end_whatever_happens(base: str) -> None:
    """A box ends by an error or a cancellation before its program starts, even while it starts."""
    found = find_image(base)

    async def cancelled(seconds: float) -> None:
        box = Box(found, (), "/", 256, 64, False)

        async def start() -> None:
            async with box.ended_on_error():
                await asyncio.to_thread(box.start)
                await asyncio.sleep(60)

        task = asyncio.create_task(start())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert box.name not in listed_containers()

    for seconds in (0.0, 0.1, 3.0):
        run(cancelled(seconds))


def test_boxes_second_end_waits_and_a_failed_one_is_repeated(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(find_image(base), (), "/", 256, 64, False)
    box.start()
    first = threading.Thread(target=box.delete)
    first.start()
    box.delete()
    assert box.name not in listed_containers()
    first.join()
    stuck = Box(find_image(base), (), "/", 256, 64, False)
    stuck.start()
    lock = Path(tempfile.gettempdir(), f"{stuck.name}.lock")
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "podman").chmod(0o755)
    assert stuck.claim is not None
    stuck.claim.program = str(tmp_path / "podman")
    stuck.delete()
    assert stuck.name in listed_containers() and lock.exists()
    remove_orphaned_containers()
    assert stuck.name not in listed_containers() and not lock.exists()


def test_boxes_working_directory_of_an_image(base: str, tmp_path: Path) -> None:
    """A folder that the image lacks is empty; any other failure is an error, and leaves nothing."""
    copy_from_image(find_image(base), "/nothing/here", tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    with pytest.raises(UserError, match="cannot be copied"):
        copy_from_image(
            msgspec.structs.replace(find_image(base), id="0" * 64), "/usr", tmp_path / "full"
        )
    assert not (tmp_path / "full").exists()
    assert left_containers() == []


def test_boxes_recipes_are_read_as_builds_read_them(base: str, tmp_path: Path) -> None:
    """Here-documents hold no instruction, a stage begins anew, and every image must be here."""

    def read(text: str) -> tuple[str, tuple[str, ...]]:
        found = image_of_task(write(tmp_path, {"Dockerfile": text}), {}, "")
        assert found is not None and list(found.bases) == [base]
        return found.workdir, found.gaps

    heredoc = (
        f"FROM {base}\nWORKDIR /one\nRUN <<EOF cat\nFROM localhost/nothing\nWORKDIR /two\nEOF\n"
    )
    assert read(heredoc) == ("/one", ()) and read(f"{heredoc}WORKDIR three\n") == ("/one/three", ())
    stages = (
        f"FROM {base} AS one\nWORKDIR /one\nFROM {base}\nCOPY --from=one /a .\nCOPY --from=0 /a .\n"
    )
    assert read(f"{stages}WORKDIR two\n") == ("/two", ())
    for line in (
        "COPY --chown=1 --from=localhost/nothing /a .",
        "RUN --mount=type=bind,from=localhost/nothing,target=/x x",
    ):
        (gap,) = read(f"{stages}WORKDIR /two\n{line}\n")[1]
        assert "localhost/nothing is not on this machine" in gap
    for taken in ("/home/agent", "/home"):
        assert read(f"FROM {base}\nWORKDIR {taken}\n")[1] == (f"the working directory {taken}",)
    assert read(f"FROM {base}\nWORKDIR /home/agents\n")[1] == ()
    empty = image_of_task(write(tmp_path, {"Dockerfile": "FROM scratch\n"}), {}, "")
    assert empty is not None and empty.gaps == ("its container: no image that is here is its base",)


def test_boxes_a_changed_build_is_another_image(base: str, tmp_path: Path) -> None:
    """The name of a built image depends on its base, and on the modes and links of its files."""
    context = write(tmp_path, {"Dockerfile": f"FROM {base}\n", "run.sh": "true\n"})

    def name() -> str:
        found = image_of_task(context, {}, "/app")
        assert found is not None
        return found.name

    names = [name(), name()]
    (context / "run.sh").chmod(0o755)
    names.append(name())
    (context / "link").symlink_to("run.sh")
    names.append(name())
    (context / "Dockerfile").write_text("FROM localhost/culmen-test-base\n")
    for message in ("one", "two"):
        made = subprocess.run(
            ["podman", "build", "-q", "-t", "localhost/culmen-test-base", "-"],
            input=f"FROM {base}\nLABEL x={message}\n".encode(),
            check=True,
            capture_output=True,
        )
        find_image.cache_clear()
        assert made.stdout
        names.append(name())
    subprocess.run(
        ["podman", "rmi", "-f", "localhost/culmen-test-base"], check=True, capture_output=True
    )
    find_image.cache_clear()
    assert names[0] == names[1] and len(set(names)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 3])
def test_boxes_tests_have_a_limit_of_disk(base: str, tmp_path: Path, pieces: int) -> None:
    """Neither one large file nor several together, anywhere in the tests' container, get by."""
    boxed_task(tmp_path, base)
    small = BOXED.replace("storage_mb = 10240", "storage_mb = 20")
    write_all = f"for n in range({pieces}): open(f'/var/{{n}}', 'wb').write(b'x' * {45 // pieces} * 1000000)"
    wait = "sleep 25\n" if pieces > 1 else ""
    test = f'mkdir -p /var; python3 -c "{write_all}" || exit 1\n{wait}echo 1 > {REWARD}\n'
    write(tmp_path, {"tasks/one/tests/test.sh": test, "tasks/one/task.toml": small})
    (found,) = rolled_out(read_skill_folder(tmp_path), "true\n")
    assert found.reason == ("tests_timeout" if pieces > 1 else "no_reward"), found.feedback
    assert left_containers() == []


def test_boxes_paths_of_mounts(tmp_path: Path) -> None:
    """A hidden folder is covered where it is seen, whatever links lead there."""
    (tmp_path / "real" / "tasks").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for hidden, visible in (("real", "link"), ("link", "real"), ("link", "link"), ("real", "real")):
        found = covered_folders([f"{tmp_path}/{hidden}/tasks"], [f"{tmp_path}/{visible}"])
        assert found == [f"{tmp_path}/{visible}/tasks"]
    assert covered_folders([f"{tmp_path}/real/tasks"], [f"{tmp_path}/rea"]) == []
    mounts = visible_mounts(["/library/agent", "/usr/lib/x", "/lib"])
    assert mounts == [("/library/agent", "/library/agent", False)]


def test_boxes_no_program_leaves_tasks_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that needs a container program that is not installed is named, as any other gap."""
    monkeypatch.setenv("PATH", str(tmp_path))
    find_image.cache_clear()
    folder = write(
        tmp_path / "one",
        {"task.toml": "", "instruction.md": "x", "environment/Dockerfile": "FROM x\n"},
    )
    gaps = read_task(folder).gaps
    assert any("neither podman nor docker is installed" in gap and "plain" in gap for gap in gaps)
    (folder / "environment" / "Dockerfile").unlink()
    assert any("no Dockerfile" in gap for gap in read_task(folder).gaps)
