"""Sets of skills: reading, limits of a candidate, places where agents find it.

Also a search that drops what hurts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random

import pytest

import culmen
from culmen.core.candidate import Candidate, frontmatter, skill_names
from culmen.core.errors import TaskError
from culmen.core.task import Surface, Task
from culmen.core.usage import Budget
from culmen.extensions.skills.rollouts.form import read_skill_folder
from culmen.extensions.skills.rollouts.skill import places, prompt_for, read_skill
from culmen.models.call import Tokens
from culmen.models.offline.tools import change_skills, vary_candidate
from culmen.models.prompts.formats import FORMATS, SEVERAL, Completion, parse_completion
from culmen.store import views
from culmen.tasks import surface_fault
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.rollouts.folders import ANSWER, harbor_task, write
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer


def skill(name: str, body: str, description: str = "What to do.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"


# writes what the skills say, those that doubt last
AGENT = """import pathlib, re, sys
texts = [file.read_text() for file in pathlib.Path(sys.argv[1]).glob("*/SKILL.md")]
lines = sorted(line for text in texts for line in re.findall(r"^(?:write|then) .*$", text, re.M))
pathlib.Path("answer.txt").write_text("".join(line.split(" ", 1)[1] for line in reversed(lines)))
print(sorted(path.parent.name for path in pathlib.Path.home().glob(".agents/skills/*/SKILL.md")))
"""
SET = {
    "answer/SKILL.md": skill("answer", f"write {ANSWER}"),
    "doubt/SKILL.md": skill("doubt", "then  or 43"),
    "doubt/references/more.md": "perhaps 44\n",
    "idle/SKILL.md": skill("idle", "Be kind."),
}
CHEAP = 'echo "$(cmp -s /app/answer.txt /tests/expected.txt && echo 1 || echo 0)" > /logs/verifier/reward.txt\n'


def set_task(folder: Path, more: str = "") -> Task:
    agent = f"cmd: {sys.executable} {{folder}}/agent.py {{skill}}"
    files = {
        "task.toml": f'goal = \'work\'\n[skill]\npath = "skills"\nagent = "{agent}"\n{more}',
        "agent.py": AGENT,
        **{f"skills/{name}": text for name, text in SET.items()},
        **{f"tasks/one/{name}": text for name, text in harbor_task(test=CHEAP).items()},
    }
    return read_skill_folder(write(folder, files))


def test_sets_are_read_and_mounted_by_name(tmp_path: Path) -> None:
    found = read_skill(write(tmp_path / "skills", SET))
    assert found.is_set and found.place == "/skills" and found.parts == SET
    assert places(found, "claude") == tuple(
        (name, f".claude/skills/{name}") for name in ("answer", "doubt", "idle")
    )
    assert places(found, "cmd: x")[0] == ("answer", ".agents/skills/answer")
    assert "/skills/answer/SKILL.md, /skills/doubt/SKILL.md" in prompt_for(found, "cmd: x", "do it")
    for files, message in (
        ({"one/SKILL.md": skill("two", "x")}, "its folder's name"),
        ({"one/SKILL.md": skill("one", "x", "")}, "a description"),
        ({"one/SKILL.md": skill("one", "x"), "two/notes.md": "x"}, "its folder's name"),
        ({"one/SKILL.md": skill("one", "x"), "README.md": "x"}, "README.md lies beside"),
    ):
        with pytest.raises(TaskError, match=message):
            read_skill(write(tmp_path / message.replace(" ", "-") / str(len(files)), files))
    with pytest.raises(TaskError, match="3 skills, more than max_skills = 2"):
        set_task(tmp_path / "many", "max_skills = 2\n")


def test_sets_candidates_are_valid_skills(tmp_path: Path) -> None:
    """Skills come and go within the limits; what agents could not load is no candidate."""
    task = set_task(tmp_path, "max_skills = 4\nmax_tokens = 600\n")
    assert task.surface.skills == 4

    def fault(changes: dict[str, str | None], base: Task = task) -> str:
        parts = {name: text for name, text in {**SET, **changes}.items() if text is not None}
        return surface_fault(base, Candidate.of(parts))

    gone: dict[str, str | None] = {"doubt/SKILL.md": None, "doubt/references/more.md": None}
    assert fault({}) == fault(gone) == fault({"new-1/SKILL.md": skill("new-1", "x")}) == ""
    assert fault({"answer/SKILL.md": skill("answer", "x", "Another.")}) == "immutable_text_changed"
    free = set_task(tmp_path / "free", 'frontmatter = "free"\n')
    assert fault({"answer/SKILL.md": skill("answer", "x", "Another.")}, free) == ""
    assert fault({"answer/SKILL.md": skill("other", "x")}, free) == "bad_skill"
    assert (
        fault({f"n{number}/SKILL.md": skill(f"n{number}", "x") for number in range(2)})
        == "too_many_skills"
    )
    assert fault({"notes.md": "x"}) == "unknown_part"
    assert fault(dict.fromkeys(SET)) == "part_missing"
    # a name that is the folder of another cannot be written, nor can any number of files
    assert fault({"answer/SKILL.md/x": "y"}) == fault({"doubt/references": "y"}) == "unknown_part"
    assert fault({f"answer/{number}.md": "" for number in range(60)}) == ""
    assert fault({f"answer/{number}.md": "" for number in range(61)}) == "unknown_part"
    assert fault({"new/SKILL.md": skill("new", "x" * 2400)}) == "too_long"
    long = "a" * 65
    for name, text in (
        ("new/SKILL.md", "no head\n"),
        ("new/other.md", "x"),
        ("New/SKILL.md", skill("New", "x")),
        ("a--b/SKILL.md", skill("a--b", "x")),
        (f"{long}/SKILL.md", skill(long, "x")),
        ("new/SKILL.md", skill("new", "x", "")),
        ("new/SKILL.md", skill("new", "x", "d" * 1025)),
    ):
        assert fault({name: text}) == "bad_skill", name
    folded = skill("new", "x", f">\n  {'d' * 500}\n  {'d' * 522}")
    assert fault({"new/SKILL.md": folded}) == "" and fault(
        {"new/SKILL.md": folded.replace("ddd", "dddd")}
    )
    assert fault({"new/SKILL.md": skill("'new'", "x", '"quoted"')}) == ""


NEW = skill("new", "more")
EMPTY = "```doubt/SKILL.md\n```\n"
REPLIES = {
    "rewrite": f"I drop one.\n\n{EMPTY}\n```new/SKILL.md\n{NEW}```\n",
    "diff": (
        "=== answer/SKILL.md ===\n<<<<<<< SEARCH\nwrite the answer is 42\n=======\nwrite 42\n>>>>>>> REPLACE\n\n"
        f"{EMPTY}\n```new/SKILL.md\n{NEW}```\n"
    ),
    "json": json.dumps({"hypothesis": "x", "parts": {"doubt/SKILL.md": "", "new/SKILL.md": NEW}}),
    "verbalized": json.dumps(
        {"responses": [{"parts": {"doubt/SKILL.md": "", "new/SKILL.md": NEW}, "probability": 0.5}]}
    ),
    "blocks": f"=== CANDIDATE 1 ===\n{EMPTY}\n```new/SKILL.md\n{NEW}```\n",
}


@pytest.mark.parametrize("form", REPLIES)
def test_sets_replies_add_and_drop(form: str) -> None:
    """Every format: an empty SKILL.md drops a skill with its files, a new name adds one.

    A fixed set stays.
    """
    task = Task("t", seeds=(SET,), surface=Surface(language="markdown", skills=5))
    parent, format = task.initial_candidates()[0], {**FORMATS, **SEVERAL}[form]
    parsed = parse_completion(Completion(REPLIES[form], "stop"), format, task, parent)
    assert not parsed.fault and len(parsed.drafts) == 1
    parts = parsed.drafts[0].parts
    assert skill_names(parts) == ["answer", "idle", "new"] and parts["new/SKILL.md"] == NEW
    assert ("write 42" in parts["answer/SKILL.md"]) == (form == "diff")
    assert surface_fault(task, Candidate.of(parts)) == ""
    fixed = Task("t", seeds=(SET,), surface=Surface(language="markdown"))
    still = parse_completion(Completion(REPLIES[form], "stop"), format, fixed, parent)
    assert all(
        "new/SKILL.md" not in each.parts and len(each.parts) == len(SET) for each in still.drafts
    )


def test_sets_a_new_skill_may_say_search() -> None:
    """In the format of edits only a line <<<<<<< SEARCH makes a fenced block an edit."""
    task = Task("t", seeds=(SET,), surface=Surface(language="markdown", skills=5))
    told = skill("new", "SEARCH the files, all of them.")
    reply = f"{REPLIES['diff'].partition(EMPTY)[0]}```new/SKILL.md\n{told}```\n"
    parsed = parse_completion(
        Completion(reply), FORMATS["diff"], task, task.initial_candidates()[0]
    )
    assert not parsed.fault and parsed.drafts[0].parts["new/SKILL.md"] == told
    assert "write 42" in parsed.drafts[0].parts["answer/SKILL.md"]


def test_sets_changes_without_a_model() -> None:
    """Each change drops, adopts or merges whole skills.

    The limit holds, and other tasks have none of it.
    """
    parent = Candidate.of(SET)
    mate = Candidate.of({"extra/SKILL.md": skill("extra", "Be quick.")})
    made = [change_skills(parent, [mate], 4, Random(seed)) or {} for seed in range(80)]
    names = {tuple(skill_names(parts)) for parts in made}
    assert names == {
        ("answer", "doubt"),
        ("answer", "idle"),
        ("doubt", "idle"),
        (*skill_names(SET), "extra"),
    }
    merged = next(parts for parts in made if "or 43" in parts.get("idle/SKILL.md", ""))
    assert merged["idle/SKILL.md"] == f"{SET['idle/SKILL.md']}\nthen  or 43\n" and len(merged) == 2
    assert all(
        len(skill_names(change_skills(parent, [mate], 3, Random(n)) or {})) < 4 for n in range(40)
    )
    headless = Candidate.of(
        {**SET, "loose/notes.md": "x", "idle/SKILL.md": "---\nBe kind.\n---\nBe quick.\n"}
    )
    every = [change_skills(headless, [], 9, Random(seed)) or {} for seed in range(80)]
    whole = next(parts for parts in every if parts.get("answer/SKILL.md", "").endswith("quick.\n"))
    assert (
        whole["answer/SKILL.md"] == f"{SET['answer/SKILL.md']}\nBe quick.\n"
        and "loose/notes.md" in whole
    )
    alone = Candidate.of({"answer/SKILL.md": SET["answer/SKILL.md"]})
    assert change_skills(alone, [], 4, Random(1)) is None
    options = {"weights": {"skills": 1.0}, "count": 1}
    assert vary_candidate((parent,), options, Random(1)).fault == "inapplicable"
    assert vary_candidate((parent,), options | {"skills": 4}, Random(1)).notes == ("skills",)


def test_sets_edits_without_a_model_leave_heads_alone() -> None:
    parent = Candidate.of({"answer/SKILL.md": skill("answer", "one two three.\nfour five 6.")})
    options = {"weights": {"lines": 1.0, "numbers": 1.0}, "count": 3, "headed": True}
    made = [
        parts
        for seed in range(30)
        for parts in vary_candidate((parent,), options, Random(seed)).parts
    ]
    assert made and all(
        frontmatter(parts["answer/SKILL.md"]) == skill("answer", "")[:-1] for parts in made
    )
    free = [
        vary_candidate((parent,), options | {"headed": False}, Random(seed)) for seed in range(30)
    ]
    assert any(
        frontmatter(parts["answer/SKILL.md"]) != skill("answer", "")[:-1]
        for each in free
        for parts in each.parts
    )


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.parametrize("model", ["offline", "scripted"])
def test_sets_a_search_drops_what_hurts(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_confinement()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UPSTREAM_KEY", "sk-x")
    set_task(tmp_path / "task")
    with ModelServer([Turn(EMPTY, tokens=Tokens(30, 10))]) as server:
        (tmp_path / "models.toml").write_text(
            f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
            '[models.scripted]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
        )
        study = culmen.Study.create(
            tmp_path / "task",
            strategy="best_of_n",
            model=model,
            models_file=str(tmp_path / "models.toml"),
            budget=Budget(evaluations=60),
            workers=2,
            random_seed=1,
            run_dir=tmp_path / "run",
        )
        study.run(progress=False)
        asked = json.dumps(server.asked, default=str)
    best = study.best
    assert best is not None and best.score == 1.0
    names = skill_names(best.parts)
    seen = [one for one in views.stream_observations(study.path) if one.score == 1.0]
    assert "answer" in names and any(
        one.metrics["skills"] < 3 for one in seen
    )  # others lost the line
    if model == "scripted":
        assert names == ["answer", "idle"] and "doubt/references/more.md" not in best.parts
        assert "set of 1 to 12 skills" in asked and "to drop one, give an empty text" in asked
