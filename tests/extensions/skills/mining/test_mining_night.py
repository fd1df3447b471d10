"""A night with real git, real rollouts and a scripted model.

The changes that are staged, and the files that are left alone.
"""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.bench_mining import Said

from culmen.core.errors import RunLocked, UserError
from culmen.core.result import RunResult, Score
from culmen.extensions.skills.mining.nightly import NightReport, reason_against, spend_night
from culmen.extensions.skills.mining.proposals import accept_proposals, mine_sessions, read_record
from culmen.extensions.skills.mining.staging import find_checkout, stage_skill
from culmen.extensions.skills.rollouts.form import tasks_path
from culmen.run.request import RunRequest
from tests.cli.conftest import Place
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.mining.test_mining_proposals import FAULT, PIP, write
from tests.servers.model_script import Asked, Turn
from tests.servers.model_server import ModelServer

HEAD = "---\nname: house\ndescription: How we work.\n---\n"
KEY = "sk-proj-Zq8wTr5Lm2Xc9Vb4Nk7Jh"
KINDS = {  # by a word of the request: what fails, and what works
    "package": ("pip install", "uv add"),
    "service": ("docker-compose up", "docker compose up"),
    "layout": ("black", "ruff format"),
}
FAULTS = (FAULT, "use-docker-compose-up-not-docker-compose-up", "use-ruff-format-not-black")
# uses the right command if its skill names it
AGENT = f"""
import sys
skill, request = (open(name).read() for name in (sys.argv[1] + "/SKILL.md", sys.argv[2]))
for word, (wrong, right) in {KINDS!r}.items():
    if word in request:
        open("commands.sh", "w").write((right if f"`{{right}}`" in skill else wrong) + " it\\n")
"""


def git(folder: Path, *words: str) -> str:
    """The output of git."""
    name = ["-c", "user.name=Me", "-c", "user.email=me@example.com"]
    return subprocess.run(
        ["git", "-C", str(folder), *name, *words], capture_output=True, text=True, check=True
    ).stdout


def answer(asked: Asked) -> Turn:
    """A skill made of the commands that worked after failed tests.

    They stand beside the rules that the request shows.
    """
    right = {
        *re.findall(r"what worked: `([^`]+)`", asked.text),
        *re.findall(r"- Use `([^`]+)`\\.", asked.text),
    }
    rules = "".join(f"- Use `{each}`.\n" for each in sorted(right)) or "- Be careful.\n"
    return Turn(f"```markdown\n{HEAD}{rules}```\n")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A committed skill in a repository with other work under way.

    With eight sessions with each of three faults.
    """
    root = tmp_path / "repo"
    house = root / "tools" / "house"
    (house / "skill").mkdir(parents=True)
    (house / "skill" / "SKILL.md").write_text(f"{HEAD}- Be careful.\n")
    (house / "agent.py").write_text(AGENT)
    (house / "task.toml").write_text(
        f'[skill]\nagent = "cmd: {sys.executable} {{folder}}/agent.py {{skill}} {{prompt_file}}"\n'
        '[defaults]\nbudget = "evaluations=60,calls=10"\n'
    )
    (root / "other.txt").write_text("one\n")
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "First")
    (root / ".git" / "hooks" / "reference-transaction").write_text(
        f"#!/bin/sh\ntouch {tmp_path}/hooked\n"
    )
    (root / ".git" / "hooks" / "reference-transaction").chmod(0o755)
    (root / "other.txt").write_text("two\n")
    (root / "staged.txt").write_text("three\n")
    git(root, "add", "staged.txt")
    sessions = [
        [
            Said("user", f"the {word} number {n}; the key is {KEY}"),
            Said("agent", "", f"{wrong} p{n}", f"{PIP} {KEY}", 1),
            Said("agent", "", f"{right} p{n}", "ok"),
        ]
        for word, (wrong, right) in KINDS.items()
        for n in range(8)
    ]
    write(tmp_path / "logs", sessions)
    return house


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """The proposer's model."""
    monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream-key")
    with ModelServer(answer) as made:
        yield made


def night(house: Path, server: ModelServer | None = None) -> NightReport:
    """A night with this model."""
    request = RunRequest()
    if server is not None:
        models = house.parent.parent.parent / "models.toml"
        models.write_text(
            f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
            '[models.big]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
        )
        request = RunRequest(model=["big", "agent=none"], models=models)
    return spend_night(house, [house.parent.parent.parent / "logs"], request)


def confirm(house: Path) -> None:
    """Confirm the faults."""
    mine_sessions([house.parent.parent.parent / "logs"], house)
    accept_proposals(house, FAULTS)


@pytest.mark.slow
@pytest.mark.jail
def test_night_stages_a_better_skill_and_touches_nothing_else(
    house: Path, server: ModelServer, tmp_path: Path
) -> None:
    need_confinement()
    first = night(house, server)
    assert (first.outcome, first.run, len(server.asked)) == ("no confirmed cases", "", 0)
    accept_proposals(house, FAULTS)
    root = house.parent.parent
    before = [
        git(root, *words)
        for words in (("status", "--porcelain"), ("rev-parse", "HEAD"), ("branch",))
    ]
    index = (root / ".git" / "index").read_bytes()
    second = night(house, server)
    assert second.outcome == "staged", second.why
    assert second.staged is not None and second.staged.branch.startswith("culmen/house-")
    status = git(root, "status", "--porcelain")
    assert [line for line in status.splitlines() if "tools/house/" not in line] == [
        line for line in before[0].splitlines() if "tools/house/" not in line
    ]
    assert git(root, "rev-parse", "HEAD") == before[1] and "* main" in git(root, "branch")
    assert (root / ".git" / "index").read_bytes() == index and not (tmp_path / "hooked").exists()
    assert "`uv add`" not in (house / "skill" / "SKILL.md").read_text()
    branch = second.staged.branch
    assert git(root, "diff", "--name-only", "main", branch) == "tools/house/skill/SKILL.md\n"
    assert "- Use `uv add`." in git(root, "show", f"{branch}:tools/house/skill/SKILL.md")
    assert git(root, "for-each-ref", "refs/culmen") == ""
    told = git(root, "log", "-1", "--format=%B", branch)
    assert "`uv add`, not `pip install`: 8 sessions" in told and "6 test cases" in told
    git(root, "apply", "--check", second.staged.patch)
    asked = [json.dumps(each.body) for each in server.asked]
    assert asked and any("what worked" in each for each in asked)
    assert not any(KEY[8:] in each for each in asked)
    third = night(house, server)
    assert third.outcome == "nothing new" and len(server.asked) == len(asked)


@pytest.mark.slow
@pytest.mark.jail
def test_night_without_a_gain_stages_nothing(house: Path, tmp_path: Path) -> None:
    need_confinement()
    (house / "agent.py").write_text(
        "open('commands.sh', 'w').write('uv add x; docker compose up x; ruff format x')"
    )
    git(house, "commit", "--quiet", "-am", "An agent that needs no skill")
    confirm(house)
    report = night(house)
    assert report.outcome == "no better skill" and report.staged is None and report.why
    assert not (house / "staged").exists() and git(house, "branch", "--list", "culmen/*") == ""


def test_night_refuses_uncommitted_changes_before_it_spends(
    house: Path, server: ModelServer
) -> None:
    confirm(house)
    (house / "skill" / "SKILL.md").write_text(f"{HEAD}- Half a thought\n")
    with pytest.raises(UserError, match=r"not committed: SKILL\.md"):
        night(house, server)
    assert not server.asked and not (house / "runs").exists()


def test_night_excludes_a_second_one(house: Path, tmp_path: Path) -> None:
    with (house / ".nightly.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunLocked):
            night(house)
        done = Place(tmp_path).culmen(
            "skill", "nightly", str(house), "--sessions", str(tmp_path / "logs"), "--json"
        )
        assert (done.code, done.document["error"]["kind"]) == (3, "run_locked")
    assert night(house).outcome == "no confirmed cases"


@pytest.mark.slow
def test_night_on_the_command_line_needs_no_terminal(house: Path, tmp_path: Path) -> None:
    """One document, exit code 0; without logs of coding agents it searches all the same."""
    done = Place(tmp_path).culmen("skill", "nightly", str(house), "--json")
    assert (done.code, done.err) == (0, "")
    assert (
        done.document["outcome"] == "no confirmed cases"
        and done.document["mining"]["sessions"] == {}
    )
    words = Place(tmp_path).culmen(
        "skill", "nightly", str(house), "--sessions", str(tmp_path / "logs")
    )
    assert words.code == 0 and "24 sessions since the last time" in words.out and FAULT in words.out
    assert KEY[8:] not in words.out
    assert Place(tmp_path).culmen("skill", "nightly", str(tmp_path)).code == 2


SHOWN = RunResult(
    "b",
    0.9,
    40,
    confirmed=True,
    split="test",
    cases=4,
    initial=Score("a", 0.1, 40),
    gain=0.8,
    gain_margin=0.2,
)


def test_only_a_gain_on_test_cases_is_staged() -> None:
    import msgspec

    def changed(**values: object) -> str:
        return reason_against(msgspec.structs.replace(SHOWN, **values))

    assert reason_against(SHOWN) == ""
    assert changed(gain_margin=None) == ""
    assert "no rollout" in reason_against(None)
    assert "test cases" in changed(split="val") and "test cases" in changed(confirmed=False)
    assert "better than the present" in changed(kept_initial=True)
    assert "within noise" in changed(gain_margin=0.9) and "within noise" in changed(gain_margin=0.8)


def test_staging_adds_removes_and_keeps_modes(house: Path) -> None:
    skill = house / "skill"
    (skill / "old.md").write_text("old\n")
    (skill / "run.sh").write_text("#!/bin/sh\ntrue\n")
    (skill / "run.sh").chmod(0o755)
    git(house, "add", "--all")
    git(house, "commit", "--quiet", "-m", "More")
    before = {name: (skill / name).read_text() for name in ("SKILL.md", "old.md", "run.sh")}
    after = {"SKILL.md": before["SKILL.md"], "run.sh": "#!/bin/sh\nfalse\n", "new.md": "new\n"}
    checkout = find_checkout(skill, before)
    staged = stage_skill(
        checkout, before, after, "Subject\n\nBody\n", "one", 1_700_000_000, house / "staged"
    )
    assert git(house, "diff", "--name-status", "main", staged.branch).split() == [
        *(
            "A",
            "tools/house/skill/new.md",
            "D",
            "tools/house/skill/old.md",
            "M",
            "tools/house/skill/run.sh",
        )
    ]
    assert "100755" in git(house, "ls-tree", staged.branch, "skill/run.sh")
    assert git(house, "log", "-1", "--format=%an %s", staged.branch) == "culmen Subject\n"


def test_staging_without_git_is_a_patch(tmp_path: Path) -> None:
    skill = tmp_path / "AGENTS.md"
    skill.write_text("a\n")
    assert find_checkout(skill, {"AGENTS.md": "a\n"}) is None
    staged = stage_skill(
        None, {"AGENTS.md": "a\n"}, {"AGENTS.md": "b\n"}, "Why\n", "one", 1, tmp_path / "staged"
    )
    assert staged.branch == ""
    subprocess.run(["git", "apply", staged.patch], cwd=tmp_path, check=True)
    assert skill.read_text() == "b\n"


def test_night_patch_outside_git_applies_without_a_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("one\ntwo")
    staged = stage_skill(
        None,
        {"SKILL.md": "one\ntwo"},
        {"SKILL.md": "one\nthree"},
        "why\n",
        "n",
        0,
        tmp_path / "out",
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", staged.patch], cwd=tmp_path, check=True)
    assert (tmp_path / "SKILL.md").read_text() == "one\nthree"


def repository_with(folder: Path, skill: bytes) -> Path:
    """A repository whose skill has these bytes."""
    (folder / "skill").mkdir(parents=True)
    (folder / "skill" / "SKILL.md").write_bytes(skill)
    git(folder, "init", "--quiet")
    git(folder, "config", "core.autocrlf", "false")
    git(folder, "add", "--all")
    git(
        folder,
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.org",
        "commit",
        "--quiet",
        "-m",
        "The skill",
    )
    return folder


def test_night_keeps_line_ends_and_marks_of_the_committed_skill(tmp_path: Path) -> None:
    root = repository_with(tmp_path / "house", b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    before, after = {"SKILL.md": "one\ntwo\nthree\n"}, {"SKILL.md": "one\n2\nthree\n"}
    checkout = find_checkout(root / "skill", before)
    staged = stage_skill(checkout, before, after, "why\n", "n", 0, tmp_path / "out")
    assert git(root, "diff", "--numstat", f"HEAD..{staged.branch}").split()[:2] == ["1", "1"]
    assert git(root, "for-each-ref", "refs/culmen") == ""


def test_night_takes_an_ignored_skill_for_one_outside_git(tmp_path: Path) -> None:
    root = repository_with(tmp_path / "house", b"one\n")
    (root / ".gitignore").write_text("mine/\n")
    (root / "mine").mkdir()
    (root / "mine" / "SKILL.md").write_text("one\n")
    assert find_checkout(root / "mine", {"SKILL.md": "one\n"}) is None
    (root / "other").mkdir()
    (root / "other" / "SKILL.md").write_text("one\n")
    with pytest.raises(UserError, match="not committed"):
        find_checkout(root / "other", {"SKILL.md": "one\n"})


def test_mining_waits_for_no_night(house: Path, tmp_path: Path) -> None:
    with (house / ".nightly.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = Place(tmp_path).culmen("skill", "mine", str(tmp_path), "--out", str(house), "--json")
        assert (done.code, done.document["error"]["kind"]) == (3, "run_locked")
    lost = Place(tmp_path).culmen("skill", "mine", str(tmp_path / "nowhere"), "--json")
    assert lost.code == 2 and "no such file" in lost.document["error"]["what"]


@pytest.mark.slow
@pytest.mark.jail
def test_night_searches_the_cases_that_the_task_names(house: Path) -> None:
    need_confinement()
    confirm(house)
    assert tasks_path(house) == house / "tasks"
    (house / "tasks").rename(house / "cases")
    toml = house / "task.toml"
    toml.write_text(toml.read_text().replace("[skill]", '[skill]\ntasks = "cases"'))
    assert tasks_path(house) == house / "cases"
    git(house, "add", "--all")
    git(house, "commit", "--quiet", "-m", "Cases of another name")
    assert night(house).outcome != "no confirmed cases"


@pytest.mark.jail
def test_where_no_patch_can_be_written_nothing_is_spent(house: Path, server: ModelServer) -> None:
    """A file is where the folder of patches is to be."""
    need_confinement()
    confirm(house)
    (house / "staged").write_text("in the way")
    with pytest.raises(UserError, match="folder of patches") as caught:
        night(house, server)
    assert "mv " in (caught.value.fix or "")
    assert read_record(house).searched == "" and not list(house.glob("runs/*"))
