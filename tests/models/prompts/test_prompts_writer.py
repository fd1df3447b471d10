"""Golden prompts: a model's input, word by word. CULMEN_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from culmen.core.brief import UNREAD, Attempt, Brief, Exhibit, Measured
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Evaluator, Objective, Surface, Task
from culmen.core.wording import clip_middle, fence_text, indent_fences, indent_text
from culmen.models.prompts.formats import FORMATS, SEVERAL, ReplyFormat
from culmen.models.prompts.template import Templates, read_folder, shipped_templates
from culmen.models.prompts.writer import Prompt, PromptWriter
from culmen.strategies.pacevolve.advisor import STEPS

GOLDEN = Path(__file__).parent / "golden"


def check(name: str, prompt: Prompt) -> None:
    text = f"=== system ===\n{prompt.system}\n\n=== user ===\n{prompt.user}"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("CULMEN_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def full_brief(parent: Candidate) -> Brief:
    return Brief(
        parent=parent,
        observations=(
            Observation(
                parent.id,
                Status.OK,
                1.25,
                "a",
                metrics={"sum": 1.25, "gap": 0.5},
                feedback="Gap at the left.",
            ),
            Observation(
                parent.id,
                Status.TIMEOUT,
                None,
                "b",
                reason="wall_clock",
                seconds=60.04,
                feedback="too slow",
            ),
            Observation(
                parent.id,
                Status.ERROR,
                None,
                "",
                feedback="ValueError: n",
                artifacts={"trace": "line 1\nline 2"},
            ),
        ),
        reward=1.25,
        inspirations=(
            Exhibit(
                Candidate.of({"main.py": "def run(n):\n    return []\n"}),
                0.75,
                "Empty.",
                metrics={"gap": 1.0},
            ),
            Exhibit(parent, 1.25),
        ),
        context="Hexagonal starts did better than grids.",
        measured=Measured(7, 1, 0.041),
        attempts=(
            Attempt("Radii halved.", 0.6, Measured(2, 0, 0.07)),
            Attempt("Rows moved by a tenth.", 1.27, Measured(3, 0, 0.06)),
            Attempt("2 lines in, 1 out: while True:", fault="timeout (wall_clock)"),
            Attempt("Larger circles first."),
        ),
    )


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_improving(form: str, task: Task, parent: Candidate) -> None:
    check(f"improve_{form}", PromptWriter(task).brief_prompt(full_brief(parent), FORMATS[form]))


def test_why_the_last_reply_could_not_be_read_stands_below_the_form(
    task: Task, parent: Candidate
) -> None:
    said = "diff_mismatch: the lines under SEARCH are not in main.py: they begin with `x = 1`"
    brief = Brief(parent, attempts=(Attempt("More rows.", 0.5), Attempt(said, fault=UNREAD)))
    check("improve_unread", PromptWriter(task).brief_prompt(brief, FORMATS["diff"]))
    first = PromptWriter(task).brief_prompt(Brief(attempts=brief.attempts[1:]), FORMATS["rewrite"])
    assert said in first.user and "tried" not in first.user


def test_texts_with_fences_are_asked_for_between_longer_ones() -> None:
    seed = {"p.md": "Answer so:\n\n```\nDEBIT\n```\n"}
    task = Task("p", "Clerk.", (seed,), surface=Surface(language="text"))
    user = PromptWriter(task).brief_prompt(Brief(task.initial_candidates()[0]), FORMATS["rewrite"])
    assert "with a line of four backticks" in user.user and "````p.md\n" in user.user


def test_bare_brief(task: Task, parent: Candidate) -> None:
    check("improve_bare", PromptWriter(task).brief_prompt(Brief(parent=parent), FORMATS["rewrite"]))


def test_several_parts_downwards(pair: Task) -> None:
    import msgspec

    task = msgspec.structs.replace(
        pair, objective=Objective("min"), system="You are a careful editor."
    )
    parent = task.initial_candidates()[0]
    brief = Brief(parent=parent, reward=-3.5)  # a reward is the score turned round
    check("improve_parts", PromptWriter(task).brief_prompt(brief, FORMATS["diff"]))


def test_markers() -> None:
    seed = {"p.rs": "// EVOLVE-BLOCK-START\nfn f() {}\n// EVOLVE-BLOCK-END\n"}
    evaluator = Evaluator(form="command", command=("cargo", "run", "{p.rs}"))
    task = Task(
        "m", "Faster.", (seed,), evaluator, surface=Surface(markers="enforced", language="rust")
    )
    check(
        "improve_markers",
        PromptWriter(task).brief_prompt(
            Brief(parent=task.initial_candidates()[0]), FORMATS["diff"]
        ),
    )


def test_seedless(task: Task) -> None:
    check("seedless", PromptWriter(task).brief_prompt(Brief(), FORMATS["rewrite"]))


def test_summarizer(task: Task) -> None:
    trace = {
        "case": "a",
        "score": 0.9,
        "status": "ok",
        "input": '{"n": 3}',
        "feedback": "well\nspread",
    }
    pairs = [
        {
            "id": "aa",
            "mean score": 0.4,
            "count": 3,
            "failures": 1,
            "program": "x = 1\ny = 2\n",
            "success": trace,
            "failure": None,
        },
        {
            "id": "bb",
            "mean score": 0.1,
            "count": 1,
            "failures": 0,
            "program": "x = 2",
            "success": None,
            "failure": trace,
        },
    ]
    check(
        "summarizer",
        PromptWriter(task).text_prompt(
            "summarizer", {"goal": "g", "success": "a score above 0.5", "pairs": pairs}
        ),
    )


def test_a_role_without_a_template(task: Task) -> None:
    check(
        "write",
        PromptWriter(task).text_prompt(
            "critic", {"question": "Why?", "numbers": [1, 2.5], "none": None}
        ),
    )


def test_hidden_cases_and_answers_are_never_shown(task: Task, parent: Candidate) -> None:
    import msgspec

    cases = (
        Case("a", {"n": 3}, info="ANSWER-A"),
        Case("t", "HIDDEN-INPUT", info="ANSWER-T", split="test"),
    )
    task = msgspec.structs.replace(task, cases=cases)
    for brief in (Brief(), full_brief(parent)):
        user = PromptWriter(task).brief_prompt(brief, FORMATS["rewrite"]).user
        assert "ANSWER" not in user and "HIDDEN" not in user


FENCED = "```python main.py\nx = 1\n```"
FORMS = {**FORMATS, **SEVERAL}


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("k", [1, 3])
def test_only_what_is_to_be_improved_is_fenced_and_it_comes_last(
    form: str, k: int, task: Task, parent: Candidate
) -> None:
    import msgspec

    task = msgspec.structs.replace(
        task, goal=f"Beat this:\n\n{FENCED}", surface=Surface(frozen=("given.py",))
    )
    parent = Candidate.of({"given.py": FENCED, "main.py": parent.parts["main.py"]})
    other = Exhibit(Candidate.of({"main.py": "def run(n):\n    return []\n"}), 0.75, FENCED)
    seen = Observation(
        parent.id, Status.ERROR, None, "b", feedback=FENCED, artifacts={"log": FENCED}
    )
    brief = Brief(
        parent,
        (seen,),
        inspirations=(other,),
        context=f"A lesson:\n{FENCED}",
        k=k,
        hypothesis=f"Try this:\n{FENCED}",
    )
    user = PromptWriter(task).brief_prompt(brief, FORMS[form]).user
    heading, text = (
        "\n# Current candidate (improve this one)\n",
        fence_text(parent.parts["main.py"], "python main.py"),
    )
    assert re.findall(r"^ {0,3}`{3}.*", user, re.M) == ["```python main.py", "```"]
    before, found, end = user.partition(heading)
    assert found and heading not in before + end and end.startswith(f"\n{text}\n\nNow write ")
    assert len(end.removeprefix(f"\n{text}").split("\n\n")) == 2 and "format given above" in end
    assert ("3 changed candidates" in end) == (k == 3 and form in SEVERAL)


def test_every_part_is_the_last_in_some_requests_and_the_first_in_some(task: Task) -> None:
    names = [f"{name}.py" for name in "abc"]
    parent = Candidate.of({name: f"{name[0]} = 1\n" for name in names})
    for place in (0, -1):
        seen = list[str]()
        for attempts in range(3):
            brief = Brief(parent, attempts=(Attempt("Once more."),) * attempts)
            user = PromptWriter(task).brief_prompt(brief, FORMATS["rewrite"]).user
            found = re.findall(r"^```python (.*)$", user, re.M)
            assert sorted(found) == names
            seen.append(found[place])
        assert sorted(seen) == names
    parents = [Candidate.of({name: f"{name[0]} = {n}\n" for name in names}) for n in range(20)]
    texts = [
        PromptWriter(task).brief_prompt(Brief(each), FORMATS["rewrite"]).user for each in parents
    ]
    assert {re.findall(r"^```python (.*)$", text, re.M)[-1] for text in texts} == set(names)


def test_templates_of_users_that_show_the_candidate_elsewhere_still_have_all_of_it(
    pair: Task,
) -> None:
    own = Templates({"improve": "$rules\n\n$parent\n\n$observations\n\n$reply"})
    user = (
        PromptWriter(pair, own)
        .brief_prompt(Brief(pair.initial_candidates()[0]), FORMATS["rewrite"])
        .user
    )
    assert all(text in user for name, text in pair.initial_candidates()[0].parts.items())


def test_fenced_blocks_become_indented_ones() -> None:
    assert indent_fences("a\n```py\nx\n\n  y\n```\nb ``c``") == "a\n    x\n\n      y\nb ``c``"
    assert (
        indent_fences("````\n```\nx\n```\n````\n~~~\nopen") == "    ```\n    x\n    ```\n    open"
    )
    assert indent_text("a\n\nb\n") == "    a\n\n    b"


def test_user_templates(tmp_path: Path, task: Task, parent: Candidate) -> None:
    (tmp_path / "improve.md").write_text("$goal! Costs $$5.\n\n$context\n\n$reply")
    (tmp_path / "critic.md").write_text("Critic of $goal: $question")
    writer = PromptWriter(task, Templates(read_folder(tmp_path)))
    user = writer.brief_prompt(Brief(parent=parent), FORMATS["rewrite"]).user
    assert user.startswith(f"{task.goal}! Costs $5.\n\n# Format")
    assert (
        writer.text_prompt("critic", {"question": "$goal?"}).user
        == f"Critic of {task.goal}: $goal?\n"
    )
    with pytest.raises(UserError, match="nobody"):
        PromptWriter(task, Templates({"improve": "$nobody"})).brief_prompt(
            Brief(parent=parent), FORMATS["rewrite"]
        )


def test_a_folder_of_templates_is_read_with_care(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_folder(tmp_path / "missing")
    with pytest.raises(UserError, match="no template"):
        read_folder(tmp_path)
    for text, said in (("$nobody", "nobody"), ("costs $5", "begins no slot")):
        (tmp_path / "improve.md").write_text(text)
        with pytest.raises(UserError, match=said):
            read_folder(tmp_path)
    for name, text in shipped_templates().items():
        (tmp_path / f"{name}.md").write_text(text)
    assert read_folder(tmp_path) == shipped_templates()


def test_long_texts_are_cut_in_the_middle_and_fences_cannot_be_closed() -> None:
    assert clip_middle("abc", 3) == "abc"
    cut = clip_middle("a" * 100 + "b" * 100, 60)
    assert cut.startswith("a" * 40) and cut.endswith("b" * 20) and "140 characters left out" in cut
    assert fence_text("```\nx\n```").startswith("````\n")


def test_every_shipped_template_is_used(task: Task) -> None:
    import culmen.models.prompts

    names = {
        p.stem for p in (Path(culmen.models.prompts.__file__).parent / "templates").glob("*.md")
    }
    forms: list[ReplyFormat] = [*FORMATS.values(), *SEVERAL.values()]
    shared = {"verbalized_diff"}  # fills the template of `verbalized`
    steps = {f"advisor.{step}" for step in STEPS} | {"advisor.system"}
    steps |= {"advisor.implement", "advisor.implement.system"}  # a policy in training that writes
    assert names == {
        "improve",
        "seedless",
        "system",
        "summarizer",
        "summarizer.system",
        "write",
    } | steps | ({f.name for f in forms} - shared)


LINES = "".join(f"row_{n} = {n}\n" for n in range(40))


def shown(task: Task, *others: str, parent: str = LINES) -> str:
    exhibits = tuple(Exhibit(Candidate.of({"main.py": text}), 0.5) for text in others)
    brief = Brief(Candidate.of({"main.py": parent}), inspirations=exhibits)
    return PromptWriter(task).brief_prompt(brief, FORMATS["rewrite"]).user


def test_a_near_copy_of_the_parent_is_shown_as_a_diff_and_a_copy_not_at_all(task: Task) -> None:
    user = shown(task, LINES.replace("row_7 = 7", "row_7 = 8"), LINES)
    assert "differs from the candidate at the end" in user and "-row_7 = 7\n    +row_7 = 8" in user
    assert user.count("row_30 = 30") == 1 and "Example 2" not in user
    assert "# Examples" not in shown(task, LINES)


def test_a_near_copy_of_another_inspiration_is_shown_as_a_diff_from_that(task: Task) -> None:
    other = LINES.replace("row", "col")
    user = shown(task, other, other + "last = 1\n")
    assert (
        user.count("col_30 = 30") == 1 and "differs from example 1" in user and "+last = 1" in user
    )


def test_the_worst_cases_come_first_by_score(task: Task, parent: Candidate) -> None:
    import msgspec

    seen = tuple(
        Observation(parent.id, Status.OK, score, case)
        for score, case in ((0.2, "a"), (0.9, "b"), (0.5, "c"))
    )
    failed = Observation(parent.id, Status.ERROR, None, "d")
    for objective, order in ((Objective("max"), "dacb"), (Objective("min"), "dbca")):
        turned = msgspec.structs.replace(task, objective=objective)
        user = (
            PromptWriter(turned)
            .brief_prompt(Brief(parent, (*seen, failed)), FORMATS["rewrite"])
            .user
        )
        places = [user.index(f"## Case {case}:") for case in order]
        assert places == sorted(places)


def test_what_a_candidate_printed_is_shown_for_each_case_but_nothing_twice(
    task: Task, parent: Candidate
) -> None:
    feedback = "The last two rows of the layout are empty, although there is room for six more circles there."
    seen = [
        Observation(
            parent.id,
            Status.OK,
            0.5,
            "a",
            feedback=feedback,
            artifacts={"log": "best so far 0.5\n"},
        ),
        Observation(
            parent.id, Status.OK, 0.6, "b", feedback=feedback, artifacts={"certificate": "1/3"}
        ),
        Observation(
            parent.id,
            Status.ERROR,
            None,
            "b",
            feedback="at the end:\nboom",
            artifacts={"log": "boom\n"},
        ),
    ]
    user = PromptWriter(task).brief_prompt(Brief(parent, tuple(seen)), FORMATS["rewrite"]).user
    assert "It printed:\n    best so far 0.5\n" in user and user.count("boom") == 1
    assert (
        user.count(feedback) == 1 and "Feedback: the same as above." in user and "1/3" not in user
    )


def rules_task() -> Task:
    seed = {"rules.txt": "a -> b\n"}
    return Task(
        "r", "Route.", (seed,), Evaluator(form="call", entry=""), surface=Surface(language="text")
    )


def test_a_task_that_runs_nothing_has_no_rule_about_a_function() -> None:
    task = rules_task()
    improving = (
        PromptWriter(task)
        .brief_prompt(Brief(task.initial_candidates()[0]), FORMATS["rewrite"])
        .user
    )
    first = PromptWriter(task).brief_prompt(Brief(), FORMATS["rewrite"]).user
    for user in (improving, first):
        assert (
            "``" not in user.replace("```", "")
            and "function" not in user
            and "nothing of it is run" in user
        )
        assert "60 s" not in user


def test_texts_are_asked_for_facts_of_the_domain_not_for_copies_of_cases(
    task: Task, parent: Candidate
) -> None:
    texts = rules_task()
    prompt = Task(
        "p", "Answer.", ({"candidate": "You are a helpful clerk.\n"},), Evaluator(form="function")
    )
    for each in (texts, prompt):
        for brief in (Brief(each.initial_candidates()[0]), Brief()):
            user = PromptWriter(each).brief_prompt(brief, FORMATS["rewrite"]).user
            assert (
                "facts and rules of the domain" in user
                and "Do not copy cases" in user
                and "python" not in user
            )
    code = Task("c", "Faster.", ({"candidate": "x = 1\n"},), Evaluator(form="function"))
    for each, candidate in ((task, parent), (code, code.initial_candidates()[0])):
        assert (
            "facts"
            not in PromptWriter(each).brief_prompt(Brief(candidate), FORMATS["rewrite"]).user
        )
