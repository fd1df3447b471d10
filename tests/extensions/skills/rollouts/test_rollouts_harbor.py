"""Folders of Harbor tasks and skills: reading, splits, gaps.

Tasks are dealt to splits, missing things are named.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError, TaskError
from culmen.extensions.compat import harbor
from culmen.extensions.compat.harbor_task import LONGEST_SECONDS
from culmen.extensions.skills.rollouts.form import ROLLOUT, read_skill_folder
from culmen.extensions.skills.rollouts.harbor import NO_NETWORK, read_task, read_tasks
from culmen.extensions.skills.rollouts.skill import places, prompt_for, read_skill
from culmen.tasks import load, surface_fault, write_new
from tests.extensions.skills.rollouts.folders import HEAD, harbor_task, skill_task, write

PLAIN = '[metadata.culmen]\nenvironment = "plain"\n'


def one(folder: Path, **files: str) -> Path:
    """A task whose files may be replaced; keys are names with __ for / and _DOT_ for a dot."""
    named = {name.replace("__", "/").replace("_DOT_", "."): text for name, text in files.items()}
    return write(folder, {**harbor_task(), **named})


def test_harbor_dockerfile_of_a_plain_task(tmp_path: Path) -> None:
    """WORKDIR, COPY and ENV are followed; other lines are a gap, or named if without effect."""
    recipe = (
        "FROM python:3.12\n# a comment\nARG X=1\nENV MODE=fast \\\n  NAME='a b'\nWORKDIR /srv\nWORKDIR work\n"
        "COPY --chown=root hint.txt notes/ \nADD hint.txt renamed.txt\nCOPY . .\nRUN pip install x\nCMD bash\n"
    )
    task = read_task(one(tmp_path / "a", environment__Dockerfile=recipe))
    assert (
        task.gaps == ()
        and task.workdir == "/srv/work"
        and task.variables == {"MODE": "fast", "NAME": "a b"}
    )
    assert task.copies == (("hint.txt", "notes/hint.txt"), ("hint.txt", "renamed.txt"), (".", "."))
    assert task.ignored == ("RUN in the Dockerfile",)
    for text, gap in (
        ("WORKDIR /app\nCOPY hint.txt /etc/hint\n", "COPY to /etc/hint, outside of /app"),
        ("WORKDIR /app\nCOPY gone.txt .\n", "COPY gone.txt, which is not in environment/"),
        ("WORKDIR /app\nCOPY ../task.toml .\n", "COPY ../task.toml, which is not in environment/"),
        ("WORKDIR /usr/src\n", "the working directory /usr/src"),
        (
            "FROM a AS b\nWORKDIR /app\nCOPY --from=b /x .\n",
            "COPY from elsewhere than environment/",
        ),
    ):
        found = read_task(one(tmp_path / gap.replace("/", "_"), environment__Dockerfile=text))
        assert gap in found.gaps


def test_harbor_gaps_are_named(tmp_path: Path) -> None:
    table = (
        f'schema_version = "1.3"\n[task]\nname = "org/deep"\n{PLAIN}split = "val"\n[verifier]\ntimeout_sec = 5\n'
        'env = { KEY = "${OPENAI_API_KEY}", MODE = "x" }\n[verifier.environment]\ndocker_image = "x"\n'
        '[environment]\ngpus = 1\nmcp_servers = [{ name = "m" }]\nallow_internet = true\nodd = 1\n[[steps]]\n'
    )
    task = read_task(
        one(tmp_path / "a", task_DOT_toml=table, environment__docker_compose_DOT_yaml="x")
    )
    assert (task.name, task.split, task.verifier_seconds) == ("deep", "val", 5.0)
    assert (task.network, task.verifier_network) == (False, True)
    assert task.verifier_variables == {"MODE": "x"}
    gaps = " ".join(task.gaps)
    for each in ("several steps", "a GPU", "mcp_servers", "variable OPENAI_API_KEY", "own image"):
        assert each in gaps
    assert "environment.odd" in task.ignored
    apart = f'version = "1.0"\n{PLAIN}[verifier]\nenvironment_mode = "separate"\n'
    assert "own image" in " ".join(read_task(one(tmp_path / "apart", task_DOT_toml=apart)).gaps)
    assert NO_NETWORK in task.stricter  # the jail of a plain task's agent has none
    closed = one(
        tmp_path / "closed",
        task_DOT_toml=f"version = '1.0'\n{PLAIN}[environment]\nallow_internet = false\n",
    )
    assert NO_NETWORK not in read_task(closed).stricter
    container = read_task(one(tmp_path / "b", task_DOT_toml='version = "1.0"\n'))
    assert container.gaps and "declare the environment plain" in container.gaps[0]
    assert not read_task(tmp_path / "b", "plain").gaps
    old = write(tmp_path / "old", {"task.yaml": "instruction: x", "run-tests.sh": "x"})
    assert "terminal-bench" in read_task(old).gaps[0]
    with pytest.raises(TaskError, match="not a task of Harbor"):
        read_task(one(tmp_path / "c", task_DOT_toml="version = \n"))


def test_harbor_defaults_are_harbors(tmp_path: Path) -> None:
    """No limit of memory, and a network in a container; where culmen is stricter, a note."""
    write(tmp_path / "a", {**harbor_task(), "task.toml": 'version = "1.0"\n'})
    boxed, plain = read_task(tmp_path / "a"), read_task(tmp_path / "a", "plain")
    assert (boxed.memory_mb, boxed.cpus, boxed.network, boxed.verifier_network) == (
        *(None, None),
        *(True, True),
    )
    assert (plain.network, plain.verifier_network) == (False, False)
    stricter = "; ".join(plain.stricter)
    assert "no network" in stricter and "86400 s" in stricter and "10240 MB" in stricter
    assert NO_NETWORK not in boxed.stricter
    listed = '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.com"]\n'
    write(tmp_path / "b", {**harbor_task(), "task.toml": listed})
    assert "a network of listed hosts only" in read_task(tmp_path / "b").gaps


@pytest.mark.parametrize(
    ("toml", "megabytes", "network", "seconds"),
    [
        ("", None, True, None),
        ("[environment]\nmemory_mb = 512\nallow_internet = false\n", 512, False, None),
        ('[agent]\ntimeout_sec = 7.5\n[environment]\nmemory = "1G"\n', 1024, True, 7.5),
    ],
)
def test_harbor_means_the_same_to_both_readers(
    tmp_path: Path, toml: str, megabytes: int | None, network: bool, seconds: float | None
) -> None:
    """Network, memory, time and variables of a task of many and of one that is the task itself."""
    own = '[verifier.env]\nA = "${NO_SUCH_NAME:-y}"\n'
    folder = write(tmp_path / "a", {**harbor_task(), "task.toml": f"{toml}{own}"})
    of_many, alone = read_task(folder), harbor.read_folder(folder)
    setting = json.loads(alone.evaluator.program[2])
    assert (of_many.memory_mb, setting["memory_mb"] or None) == (megabytes, megabytes)
    assert (of_many.network, setting["network"]) == (network, network)
    limit = LONGEST_SECONDS if seconds is None else seconds
    assert (of_many.agent_seconds, setting["solve"], alone.limits.seconds) == (limit, limit, limit)
    assert of_many.verifier_variables == setting["verifier_variables"] == {"A": "y"}


def test_harbor_splits(tmp_path: Path) -> None:
    """Folders train, val and test, a key in the task, or a deal by the names' hashes.

    The deal repeats.
    """
    free = harbor_task()
    free["task.toml"] = f"version = '1.0'\n{PLAIN}"
    for name in ("train/a", "val/b", "test/c", *(f"t{number}" for number in range(20))):
        write(tmp_path / name, free)
    tasks = {task.name: task.split for task in read_tasks(tmp_path)}
    assert (tasks["a"], tasks["b"], tasks["c"]) == ("train", "val", "test")
    dealt = [tasks[f"t{number}"] for number in range(20)]
    assert [dealt.count(split) for split in ("train", "val", "test")] == [12, 4, 4]
    assert tasks == {task.name: task.split for task in read_tasks(tmp_path)}
    for nothing, message in (
        (tmp_path / "train" / "a" / "tests", "no Harbor task"),
        (tmp_path / "no", "no folder"),
    ):
        with pytest.raises(TaskError, match=message):
            read_tasks(nothing)
    write(tmp_path / "val" / "a", free)
    with pytest.raises(TaskError, match="two tasks are called 'a'"):
        read_tasks(tmp_path)


def test_harbor_skill_and_its_places(tmp_path: Path) -> None:
    write(
        tmp_path / "s",
        {"SKILL.md": f"{HEAD}x\n", "references/a.md": "a\n", ".git/x": "", "__pycache__/y": "y"},
    )
    skill = read_skill(tmp_path / "s")
    assert skill.name == "worker" and set(skill.parts) == {"SKILL.md", "references/a.md"}
    assert (
        places(skill, "claude") == places(skill, "acp:claude") == (("", ".claude/skills/worker"),)
    )
    assert places(skill, "codex") == (("", ".agents/skills/worker"),)
    assert prompt_for(skill, "opencode", "do it") == "do it"
    assert prompt_for(skill, "cmd: x", "do it").startswith("Read /skills/worker/SKILL.md before")
    memory = read_skill(write(tmp_path / "m", {"CLAUDE.md": "be kind\n"}) / "CLAUDE.md")
    assert places(memory, "claude") == (("CLAUDE.md", ".claude/CLAUDE.md"),)
    assert places(memory, "codex") == (("CLAUDE.md", ".codex/AGENTS.md"),)
    for files, message in (
        ({"README.md": "x"}, "no SKILL.md"),
        ({"SKILL.md": "---\nname: Not A Name\n---\n"}, "cannot be a skill's name"),
        ({"SKILL.md": f"{HEAD}x", "empty.md": ""}, "the file is empty"),
    ):
        with pytest.raises(TaskError, match=message):
            read_skill(write(tmp_path / message.replace(" ", "-"), files))


def test_harbor_heads_as_the_reference_library_reads_them(tmp_path: Path) -> None:
    """Comments, small letters of the file and letters of any language; faults are notes."""
    commented = "---\nname: my-skill  # the name\ndescription: x\n---\n"
    found = read_skill(write(tmp_path / "a", {"skill.md": commented, "references/skill.md": "x"}))
    assert found.name == "my-skill" and "SKILL.md" in found.parts and found.faults == ()
    named = read_skill(
        write(tmp_path / "b", {"SKILL.md": commented.replace("my-skill", "prüfung")})
    )
    assert named.name == "prüfung" and named.faults == ()
    extra = "---\nname: worker\ndescription: Use when: x\n---\n"
    loose = read_skill(write(tmp_path / "c", {"SKILL.md": extra}))
    assert loose.name == "worker" and "no strict YAML" in loose.faults[0]
    task = skill_task(tmp_path / "d")
    assert not any("skills-ref" in note for note in task.notes)
    write(tmp_path / "d", {"skill/SKILL.md": extra})
    task = read_skill_folder(tmp_path / "d")
    assert any("skills-ref" in note for note in task.notes)
    # a fault that the initial skill has is no reason to reject a candidate
    again = Candidate.of({**task.seeds[0], "SKILL.md": f"{extra}more\n"})
    assert surface_fault(task, again) == ""


def test_harbor_surface_of_a_skill(tmp_path: Path) -> None:
    """The frontmatter stays and the length is bounded; both may be asked for otherwise."""
    task = skill_task(tmp_path / "a", skill="max_tokens = 50\n")
    seed = task.seeds[0]

    def fault(text: str) -> str:
        return surface_fault(task, Candidate.of({**seed, "SKILL.md": text}))

    assert fault(f"{HEAD}anything else\n") == ""
    assert (
        fault("no head\n")
        == fault(f"{HEAD.replace('worker', 'other')}x\n")
        == "immutable_text_changed"
    )
    assert fault(f"{HEAD}{'x' * 200}\n") == "too_long"
    free = skill_task(tmp_path / "b", skill='frontmatter = "free"\n')
    for head, fault_of_it in (
        ("no head\n", "bad_skill"),
        ("---\nname: worker  # still\ndescription: Other.\n---\n", ""),
        ("---\nname: worker\ndescription: Use when: x\n---\n", "bad_skill"),
        ("---\nname: worker\nname: worker\ndescription: x\n---\n", "bad_skill"),
        ('---\nname: worker\ndescription: "a --- b"\n---\n', "bad_skill"),
    ):
        assert surface_fault(free, Candidate.of({**seed, "SKILL.md": head})) == fault_of_it, head
    with pytest.raises(TaskError, match="more than max_tokens = 5"):
        skill_task(tmp_path / "c", skill="max_tokens = 5\n")


def test_harbor_tasks_that_cannot_run_are_left_out(tmp_path: Path) -> None:
    skill_task(tmp_path)
    gone = harbor_task()
    gone["task.toml"] = 'version = "1.0"\n'
    write(tmp_path / "tasks" / "two", gone)
    task = read_skill_folder(tmp_path)
    assert [case.id for case in task.cases] == ["one"]
    assert task.notes[0].startswith("1 tasks are left out (two), for they need its container")
    with pytest.raises(TaskError, match="none of the tasks can run here"):
        write(tmp_path / "tasks" / "one", gone)
        read_skill_folder(tmp_path)
    assert (
        len(ROLLOUT.task_from_files(tmp_path / "skill", tmp_path / "tasks", None, "better").cases)
        == 2
    )
    for name in ("one", "two"):
        (tmp_path / "tasks" / name / "tests" / "test.sh").unlink()
    with pytest.raises(TaskError, match="without tests/test") as stopped:
        ROLLOUT.task_from_files(tmp_path / "skill", tmp_path / "tasks", None, "better")
    assert "plain" not in stopped.value.fix  # no environment gives a task its tests


def test_harbor_example_and_its_digest(tmp_path: Path) -> None:
    """The example reads; task.toml may be named itself; a changed test is another evaluator."""
    folder = write_new(tmp_path / "example", "skill")[0].parent
    task = load(folder)
    assert task.evaluator.form == "rollout" and len(task.cases) == 15
    assert load(folder / "task.toml").digest == task.digest
    assert not task.evaluator.is_python
    before = skill_task(tmp_path)
    write(tmp_path, {"tasks/one/tests/expected.txt": "other"})
    after = read_skill_folder(tmp_path)
    assert before.digest != after.digest
    with pytest.raises(CulmenError, match="there is no agent 'clod'"):
        ROLLOUT.with_agent(after, "clod")
    asked = ROLLOUT.with_agent(after, "claude").evaluator.options
    assert (asked["agent"], asked["roles"]) == ("claude", ["agent"])


@pytest.mark.parametrize("value", ["-5", "0", "1e300", "nan", "inf", "true", '"long"', "[1]"])
@pytest.mark.parametrize("table", ["agent", "verifier"])
def test_a_time_limit_that_none_can_be_is_refused(value: str, table: str, tmp_path: Path) -> None:
    folder = one(tmp_path / "a", task_DOT_toml=f"[{table}]\ntimeout_sec = {value}\n")
    for read in (read_task, harbor.read_folder):
        with pytest.raises(TaskError, match=rf"(?s)time limit must be.*{table}\.timeout_sec.*600"):
            read(folder)


@pytest.mark.parametrize("text", ["agent = 5", "[environment]\ncpus = -1", "task = []"])
def test_a_table_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no table|cpus must be above 0"):
        harbor.read_folder(one(tmp_path / "a", task_DOT_toml=f"{text}\n"))
