"""Files for coding agents: llms.txt, AGENTS.md, and the plugins with skill and server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT

PLUGIN = ROOT / "plugins/culmen"


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_llms_txt_lists_every_page_of_the_site_and_no_other():
    text = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# culmen\n\n> ")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.M)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    inner = ("coming_from/", "decisions/", "strategies/")  # their index stands for them
    wanted = {page for page in pages if not page.startswith(inner)} | {
        f"{folder}index.md" for folder in inner
    }
    assert set(listed) == wanted - {"index.md"}


def test_the_skill_says_when_it_is_for():
    folder = PLUGIN / "skills/culmen"
    _, head, body = (folder / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert (
        about["name"] == folder.name
        and 100 < len(about["description"]) < 1024
        and "Use when" in about["description"]
    )
    assert len(body.splitlines()) < 100


def test_agents_md_names_commands_that_the_makefile_has():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"`make (\w+)`", text)) <= set(targets)


def test_the_skill_names_verbs_that_there_are():
    text = (PLUGIN / "skills/culmen/SKILL.md").read_text(encoding="utf-8")
    shown = subprocess.run(
        [sys.executable, "-m", "culmen.cli.main", "help", "--all"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    verbs = set(re.findall(r"`culmen (\w+)", text))
    assert len(verbs) > 8 and verbs <= set(re.findall(r"\w+", shown))


@pytest.mark.parametrize("folder", [".claude-plugin", ".codex-plugin"])
def test_plugin_manifests_have_what_their_format_requires(folder: str):
    """A name in small letters that is the folder's, the product's version, and paths that exist."""
    about = read_json(PLUGIN / folder / "plugin.json")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert about["name"] == PLUGIN.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert about["version"] == project["version"] and about["license"] == project["license"]
    assert about["author"]["name"] and about["description"]
    assert [path.name for path in (PLUGIN / folder).iterdir()] == ["plugin.json"]
    for key in ("skills", "mcpServers"):
        assert key not in about or (about[key].startswith("./") and (PLUGIN / about[key]).exists())
    if folder == ".codex-plugin":
        assert {"skills", "mcpServers"} <= set(about)
        needed = {
            "displayName",
            "shortDescription",
            "longDescription",
            "developerName",
            "category",
            "capabilities",
        }
        assert needed <= set(about["interface"])


def test_marketplaces_lead_to_the_plugin():
    claude = read_json(ROOT / ".claude-plugin/marketplace.json")
    codex = read_json(ROOT / ".agents/plugins/marketplace.json")
    assert claude["name"] == codex["name"] == "culmen" and claude["owner"]["name"]
    (one,), (other,) = claude["plugins"], codex["plugins"]
    assert one["name"] == other["name"] == PLUGIN.name
    assert (ROOT / one["source"]).resolve() == PLUGIN and (
        ROOT / other["source"]["path"]
    ).resolve() == PLUGIN
    assert other["source"]["source"] == "local" and other["category"]
    assert other["policy"] == {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}


def test_the_plugins_server_starts_and_lists_its_tools(tmp_path: Path):
    """The command of both formats, as a client starts it: in the folder it works in."""
    sdk = pytest.importorskip("mcp", reason="the extra 'mcp' is not installed")
    stdio = pytest.importorskip("mcp.client.stdio")
    server = read_json(PLUGIN / ".mcp.json")["culmen"]
    opencode = read_json(PLUGIN / "opencode.json")["mcp"]["culmen"]
    assert opencode["command"] == [server["command"], *server["args"]]
    assert (opencode["type"], opencode["enabled"]) == ("local", True)
    where = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))

    async def session() -> list[str]:
        line = stdio.StdioServerParameters(
            **server, cwd=str(tmp_path), env={**os.environ, "PATH": where}
        )
        async with sdk.Client(line) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    tools = asyncio.run(session())
    listed = re.search(
        r"`culmen mcp` \((.+?)\)", (PLUGIN / "skills/culmen/SKILL.md").read_text(), re.DOTALL
    )
    assert listed is not None and tools == listed[1].split(", ")
