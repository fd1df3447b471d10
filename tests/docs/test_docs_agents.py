"""What coding agents read: llms.txt, AGENTS.md and the skill."""

from __future__ import annotations

import re

import yaml

from tests.docs.pages import ROOT


def test_llms_txt_lists_every_page_of_the_site_and_no_other():
    text = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# culmen\n\n> ")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.M)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    inner = ("coming_from/", "decisions/", "strategies/")  # their index stands for them
    wanted = {page for page in pages if not page.startswith(inner)} | {f"{folder}index.md" for folder in inner}
    assert set(listed) == wanted - {"index.md"}


def test_the_skill_says_when_it_is_for():
    folder = ROOT / "skills/culmen"
    _, head, body = (folder / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert (
        about["name"] == folder.name and 100 < len(about["description"]) < 1024 and "Use when" in about["description"]
    )
    assert len(body.splitlines()) < 100


def test_agents_md_names_commands_that_the_makefile_has():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"`make (\w+)`", text)) <= set(targets)
