"""Finding and starting programs: nothing here runs an agent."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.extensions.agents.adapters import AgentJob, programs
from culmen.extensions.agents.adapters.catalog import (
    KNOWN,
    NATIVE,
    TESTED,
    adapter_by_name,
    survey_agents,
    version_drift,
)
from culmen.extensions.agents.cato import Cato
from tests.extensions.agents.adapters.install import pinned

URL, TOKEN = "http://127.0.0.1:4180", "sk-culmen-token"
PROMPT = "-improve 'it' {model}\nand \"more\""
ALL = [
    *NATIVE,
    *(f"acp:{name}" for name in KNOWN),
    "acp:my-agent --fast",
    "cmd: my-agent -p {prompt}",
]


@pytest.fixture
def everything_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program for every adapter, the only one on PATH."""
    folder = tmp_path / "some" / "bin"
    folder.mkdir(parents=True)
    for name in {*(adapter_by_name(kind).program for kind in ALL)}:
        (folder / name).write_text(
            f"#!{sys.executable}\nprint('{name} version v1.2.3, of today')\n"
        )
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _job(**fields: object) -> AgentJob:
    return AgentJob(
        "/repo",
        "/home/agent",
        PROMPT,
        **{"model": "big", "base_url": URL, "token": TOKEN, **fields},
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL)
def test_a_plan_leads_to_the_relay_and_holds_no_key_of_ours(
    everything_installed: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "CURSOR_API_KEY"):
        monkeypatch.setenv(name, f"sk-real-{name}")
    adapter = adapter_by_name(kind)
    plan = adapter.plan(_job())
    given = json.dumps([plan.argv, plan.environment, plan.files])
    assert (
        plan.argv[0] == str(everything_installed / adapter.program)
        and plan.network != adapter.metered
    )
    assert all(not os.path.isabs(path) and ".." not in path for path in plan.files)
    if adapter.metered:
        assert TOKEN in given and URL in given and "sk-real" not in given
        assert adapter.wires and set(adapter.wires) <= {"chat", "responses", "messages", "gemini"}
    else:
        assert (
            given.count("sk-real") == given.count("sk-real-CURSOR_API_KEY") == 1
            and TOKEN not in given
        )
    assert plan.stdin == (kind == "opencode" or kind.startswith("acp:"))
    assert (PROMPT in plan.argv) != plan.stdin


def test_a_plan_names_the_server_of_the_tools(everything_installed: Path) -> None:
    """Each program by its own settings; none without the tools.

    A program that takes none reports that.
    """
    line = ("/bin/python3", "-I", "/skills/.server/serving.py")

    def given(kind: str, tools: tuple[str, ...] = line) -> str:
        plan = adapter_by_name(kind).plan(replace(_job(), tools=tools))
        return json.dumps([plan.argv, plan.environment, plan.files])

    for kind in ("claude", "codex", "opencode", "gemini", "cmd: claude {tools}"):
        assert "serving.py" in given(kind), kind
        assert not any(word in given(kind, ()) for word in ("serving.py", "mcp", "CULMEN_TOOLS")), (
            kind
        )
    codex = adapter_by_name("codex").plan(replace(_job(), tools=line)).files[".codex/config.toml"]
    table = tomllib.loads(codex)["mcp_servers"]["tools"]
    assert [table["command"], *table["args"]] == list(line)
    assert "serving.py" not in given("acp:opencode")  # its session brings them
    for kind in ("cursor", "mini"):
        with pytest.raises(UserError, match="is not given an MCP server"):
            given(kind)


@pytest.mark.parametrize("kind", [kind for kind in NATIVE if adapter_by_name(kind).resumes])
def test_a_plan_resumes_a_session(everything_installed: Path, kind: str) -> None:
    plan = adapter_by_name(kind).plan(_job(resume="session-7"))
    assert "session-7" in plan.argv and (PROMPT in plan.argv or plan.stdin)
    assert "session-7" not in adapter_by_name(kind).plan(_job()).argv


@pytest.mark.parametrize(
    "kind", [kind for kind in ALL if adapter_by_name(kind).metered and not kind.startswith("cmd")]
)
def test_without_a_relay_nothing_is_redirected(everything_installed: Path, kind: str) -> None:
    plan = adapter_by_name(kind).plan(_job(base_url="", token="", model=""))
    assert URL not in json.dumps([plan.argv, plan.environment, plan.files])


def test_settings_are_what_their_programs_read(everything_installed: Path) -> None:
    job = _job(model='odd "name"')
    codex = tomllib.loads(adapter_by_name("codex").plan(job).files[".codex/config.toml"])
    assert (
        codex["model"] == job.model
        and codex["model_providers"]["culmen"]["base_url"] == f"{URL}/v1"
    )
    assert adapter_by_name("acp:codex").plan(job).files == adapter_by_name("codex").plan(job).files
    opencode = json.loads(
        adapter_by_name("opencode").plan(job).files[".config/opencode/opencode.json"]
    )
    assert (
        opencode["model"] == f"culmen/{job.model}"
        and job.model in opencode["provider"]["culmen"]["models"]
    )


def test_opencode_cannot_do_without_a_model(everything_installed: Path) -> None:
    for kind in ("opencode", "acp:opencode"):
        with pytest.raises(UserError, match="name of a model"):
            adapter_by_name(kind).plan(_job(model=""))


def test_a_template_is_filled_in(everything_installed: Path) -> None:
    kind = "cmd: my-agent --file={prompt_file} '{model} {tree}' {home} {base_url} {token} {other} {{prompt}}"
    plan = adapter_by_name(kind).plan(_job())
    assert plan.argv[1:] == (
        "--file=/home/agent/prompt.md",
        "big /repo",
        "/home/agent",
        URL,
        TOKEN,
        "{other}",
        f"{{{PROMPT}}}",
    )
    assert plan.files == {"prompt.md": PROMPT + "\n"}
    assert adapter_by_name("cmd: my-agent").plan(_job()).argv[1:] == (PROMPT,)


@pytest.mark.parametrize("kind", ["nothing", "cmd:", "cmd: 'open", "acp:", "acp: 'open", ""])
def test_what_names_no_agent_is_refused(kind: str) -> None:
    with pytest.raises(UserError) as error:
        adapter_by_name(kind)
    assert error.value.where or error.value.fix


def test_a_program_shows_the_folder_it_was_installed_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "node_modules" / "@maker" / "tool"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(
        '{"name": "@maker/tool", "version": "4.5.6", "bin": {"tool": "bin/x.js"}}'
    )
    script = package / "bin" / "x.js"
    script.write_text("#!/usr/bin/env -S node --quiet\n")
    script.chmod(0o755)
    for folder, target in (("bin", script), ("elsewhere", tmp_path / "bin" / "tool")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").symlink_to(os.path.relpath(target, tmp_path / folder))
    node = tmp_path / "engines" / "node-20" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.write_bytes(b"\x7fELF")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'elsewhere'}:{node.parent}")
    found = programs.find_program("tool")
    assert found.command == (str(node), "--quiet", str(tmp_path / "elsewhere" / "tool"))
    assert found.visible == (
        str(tmp_path),
    )  # its links go through a bin folder: all that it was installed with
    assert found.path == (str(tmp_path / "elsewhere"), str(node.parent))
    assert programs.program_version(found) == "4.5.6"


def test_a_lone_program_shows_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".local" / "bin"
    folder.mkdir(parents=True)
    (folder / "tool").write_text("#!/bin/sh\necho 1.0\n")
    (folder / "tool").chmod(0o755)
    found = programs.find_program(str(folder / "tool"))
    assert found.visible == (str(folder / "tool"),) and found.command == (str(folder / "tool"),)
    assert programs.program_version(found) == "1.0"


def test_a_python_of_its_own_does_not_take_the_place_of_ours(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    for path in ("bin/tool", "bin/python3"):
        (environment / path).parent.mkdir(parents=True, exist_ok=True)
        (environment / path).write_text(f"#!{environment}/bin/python3\n")
        (environment / path).chmod(0o755)
    points = (
        environment
        / "lib"
        / "python3.99"
        / "site-packages"
        / "some_tool-7.8.dist-info"
        / "entry_points.txt"
    )
    points.parent.mkdir(parents=True)
    points.write_text("[console_scripts]\ntool = some.tool:main\n")
    found = programs.find_program(str(environment / "bin" / "tool"))
    assert found.visible == (str(environment),) and found.path == ()
    assert programs.program_version(found) == "7.8"


def test_a_shim_is_looked_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real" / "bin" / "tool"
    shims = tmp_path / ".nodenv" / "shims"
    manager = tmp_path / "nodenv"
    for file, text in ((real, ""), (shims / "tool", ""), (manager, f"echo {real}\n")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{tmp_path}:/bin:/usr/bin")
    assert programs.find_program("tool").command == (str(real),)
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env tool\n")
    script.chmod(0o755)
    assert programs.find_program("script").command == (str(real), str(script))
    manager.rename(manager.with_name("elsewhere"))  # not on PATH, but where it is installed
    home = tmp_path / ".nodenv" / "bin"
    home.mkdir()
    (tmp_path / "elsewhere").rename(home / "nodenv")
    assert programs.find_program("tool").command == (str(real),)


def test_a_shim_with_nothing_behind_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / ".pyenv" / "shims"
    for file, text in (
        (shims / "tool", ""),
        (tmp_path / "pyenv", "echo 'version 9.9 is not installed' >&2\nexit 1\n"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{tmp_path}:/bin:/usr/bin")
    with pytest.raises(UserError, match=r"is a shim.*version 9.9 is not installed"):
        adapter_by_name("cmd: tool").plan(_job())


def test_what_a_command_line_names_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    script = tmp_path / "me" / "agents" / "mine.py"
    script.parent.mkdir(parents=True)
    script.touch()
    words = [
        str(script),
        "relative.py",
        str(tmp_path / "missing"),
        "/",
        "/home",
        "/usr/bin/env",
        str(tmp_path / "me"),
    ]
    assert programs.mentioned_paths(words) == (str(script),)
    assert programs.mentioned_paths([str(script), str(script.parent)]) == (str(script.parent),)


def test_a_program_that_is_missing_is_said() -> None:
    with pytest.raises(UserError, match="'no-such-agent' is not installed"):
        adapter_by_name("cmd: no-such-agent").plan(_job())


def test_a_missing_extra_is_named_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(UserError, match=r"pip install 'culmen\[agents\]'"):
        Cato.require_agent("acp:opencode")
    assert adapter_by_name("opencode").program == "opencode"
    assert {f"acp:{name}" for name in KNOWN} <= {row["name"] for row in survey_agents()}


def test_all_known_agents_are_surveyed(everything_installed: Path) -> None:
    rows = {row["name"]: row for row in survey_agents()}
    assert set(rows) == {*NATIVE, *(f"acp:{name}" for name in KNOWN)}
    assert all(row["installed"] and row["version"] == "1.2.3" for row in rows.values())
    assert rows["claude"]["state"] == "older" and rows["codex"]["state"] == "newer"
    assert rows["cursor"]["state"] == "untested" and not rows["cursor"]["metered"]
    assert (
        rows["claude"]["nudge"] == "by resuming" and rows["acp:claude"]["nudge"] == "in its session"
    )
    (everything_installed / "codex").unlink()
    rows = {row["name"]: row for row in survey_agents()}
    assert rows["codex"]["state"] == "missing" and "@openai/codex" in rows["codex"]["install"]


def test_versions_are_compared_by_number() -> None:
    assert [
        version_drift("opencode", v) for v in ("1.18.33", "1.18.4", "1.18.100", "2.0.0-beta.1", "")
    ] == [
        "tested",
        "older",
        "newer",
        "newer",
        "untested",
    ]
    assert all(
        kind.program in TESTED
        for kind in (adapter_by_name(name) for name in (*NATIVE, *(f"acp:{n}" for n in KNOWN)))
    )


def test_pinned_versions_are_printed_for_npm() -> None:
    assert pinned("codex", "opencode") == ["@openai/codex@0.171.0", "opencode-ai@1.18.33"]


def test_the_page_on_agents_names_what_is_known_and_was_tried() -> None:
    page = (Path(__file__).parents[4] / "docs" / "agents.md").read_text()
    rows = {row.split("|")[1].strip(): row for row in page.splitlines() if row.startswith("| `")}
    for kind in (*NATIVE, *(f"acp:{name}" for name in KNOWN)):
        adapter, row = adapter_by_name(kind), rows[f"`{kind}`"]
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        nudged = "in its session" if adapter.nudges else "by resuming" if adapter.resumes else "no"
        assert cells[6] == (", ".join(TESTED[adapter.program].versions) or "none"), row
        assert cells[3:6] == [
            "yes" if adapter.metered else "no",
            nudged,
            "yes" if adapter.resumes else "no",
        ], row
        assert adapter.program in cells[1] and cells[2] == (
            ", ".join(adapter.wires) or "its maker's service"
        ), row
