"""Tables that people have: of promptfoo, DSPy and GEPA, JSON arrays, files of spreadsheets."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import TaskError
from culmen.extensions.prompt.cases import LabelledCases, read_labelled_cases
from culmen.tasks.schema import read_cases
from culmen.tasks.tables import read_table

TICKETS = [
    ("I was charged twice", "billing"),
    ("the app crashes", "technical"),
    ("my refund is late", "billing"),
    ("cannot log in", "technical"),
]


def cases_of(path: Path, data: str, label: str) -> LabelledCases:
    path.write_text(data)
    return read_labelled_cases(read_table(path), label, "Name the team.")


@pytest.mark.parametrize("kind", ["icontains", "contains", "equals"])
def test_an_assertion_of_promptfoo_is_its_answer(kind: str, tmp_path: Path) -> None:
    lines = [f"{text},{kind}: {team},note" for text, team in TICKETS]
    data = "\n".join(["ticket,__expected,__description", *lines]) + "\n"
    cases = cases_of(tmp_path / "t.csv", data, "__expected")
    assert cases.labels == [team for _, team in TICKETS]
    assert cases.inputs == ("ticket",)
    assert cases.metric == ("" if kind == "equals" else "contains")


def test_an_answer_may_have_a_colon(tmp_path: Path) -> None:
    data = "ticket,__expected\na,icontains:billing: late\nb,team: other\n"
    assert cases_of(tmp_path / "t.csv", data, "__expected").labels == [
        "billing: late",
        "team: other",
    ]


def test_assertions_of_any_column_are_known_if_all_rows_have_one(tmp_path: Path) -> None:
    lines = [f"{text},icontains: {team}" for text, team in TICKETS]
    cases = cases_of(tmp_path / "t.csv", "\n".join(["ticket,team", *lines]) + "\n", "team")
    assert cases.labels[0] == "billing" and cases.metric == "contains"
    plain = ["ticket,team", *(f"{text},{team}" for text, team in TICKETS), "x,re: billing"]
    assert cases_of(tmp_path / "p.csv", "\n".join(plain) + "\n", "team").labels[-1] == "re: billing"


@pytest.mark.parametrize(
    "assertion",
    [
        *("llm-rubric: is polite", "javascript: output.length < 9", "not-contains: x"),
        *("similar(0.8): x", "similar:cosine(0.8): x", "contains-any: a, b", "is-json: {}"),
    ],
)
def test_an_assertion_that_is_no_answer_is_refused(assertion: str, tmp_path: Path) -> None:
    data = f'ticket,__expected\na,billing\nb,"{assertion}"\n'
    with pytest.raises(TaskError, match="an assertion of promptfoo, not an answer") as caught:
        cases_of(tmp_path / "t.csv", data, "__expected")
    assert caught.value.where.endswith("t.csv:3 (column __expected)")


def test_tests_of_promptfoo_as_json(tmp_path: Path) -> None:
    rows = [
        {"vars": {"ticket": text}, "assert": [{"type": "icontains", "value": team}]}
        for text, team in TICKETS
    ]
    cases = cases_of(tmp_path / "t.json", json.dumps(rows), "__expected")
    assert cases.inputs == ("ticket",) and cases.labels[1] == "technical"


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
@pytest.mark.parametrize("around", ["{}", '{{"examples": {}}}'])
def test_a_json_array_is_a_table(name: str, around: str, tmp_path: Path) -> None:
    rows = [{"ticket": text, "team": team} for text, team in TICKETS]
    data = around.format(json.dumps(rows, indent=1))
    cases = cases_of(tmp_path / name, data, "team")
    assert [case.input["ticket"] for case in cases.cases] == [text for text, _ in TICKETS]


def test_json_lines_in_a_json_file_and_what_is_no_table(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"ticket": text, "team": team}) for text, team in TICKETS)
    assert len(cases_of(tmp_path / "t.json", lines, "team").cases) == 4
    for data, words in (
        ('{"ticket": {"0": "a"}, "team": {"0": "b"}}', "one object, and no list of rows"),
        ('["a", "b"]', "row 1 must be a JSON object"),
    ):
        with pytest.raises(TaskError, match=words):
            cases_of(tmp_path / "w.json", data, "team")
    with pytest.raises(TaskError, match="no table"):
        cases_of(tmp_path / "w.yaml", "- a: b\n", "team")


def test_examples_of_dspy_and_gepa(tmp_path: Path) -> None:
    rows = [
        {"question": text, "answer": team, "dspy_uuid": str(n), "dspy_split": split}
        for n, ((text, team), split) in enumerate(
            zip(TICKETS, ("train", "train", "dev", "test"), strict=True)
        )
    ]
    cases = cases_of(tmp_path / "d.json", json.dumps(rows), "answer")
    assert cases.inputs == ("question",)
    assert [case.split for case in cases.cases] == ["train", "train", "val", "test"]
    stored = [{"_store": {"question": text, "answer": team}} for text, team in TICKETS]
    assert cases_of(tmp_path / "s.json", json.dumps(stored), "answer").inputs == ("question",)
    gepa = [
        {"input": text, "additional_context": {"day": str(n)}, "answer": f"### {team}"}
        for n, (text, team) in enumerate(TICKETS)
    ]
    cases = cases_of(tmp_path / "g.json", json.dumps(gepa), "answer")
    assert cases.inputs == ("input", "additional_context") and cases.labels[0] == "### billing"


@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\r\n', "SEP=;\n"])
def test_a_first_line_that_names_the_delimiter(first: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes((first + "ticket;team\na, b;x\nc;y\n").encode())
    table = read_table(path)
    assert table.columns == ("ticket", "team")
    assert [(row.line, row.values["team"]) for row in table.rows] == [(3, "x"), (4, "y")]


def test_a_json_array_is_the_cases_of_a_task(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([{"input": {"n": 3}, "info": 1}, {"input": {"n": 4}, "info": 2}]))
    assert [(case.id, case.input, case.info) for case in read_cases(path)] == [
        ("1", {"n": 3}, 1),
        ("2", {"n": 4}, 2),
    ]


@pytest.mark.parametrize(("said", "hint"), [("It is {}, I think.", True), ("{}", False)])
def test_answers_that_contain_their_label_propose_the_other_metric(
    said: str, hint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tried = itertools.count()

    def answer(prompt: str) -> str:
        return said.format("billing" if "charged" in prompt else "technical")

    rows = [
        {"ticket": f"I was charged {n} times" if n % 2 else f"it crashes {n} times", "team": team}
        for n in range(24)
        for team in (("technical", "billing")[n % 2],)
    ]
    study = culmen.optimize_prompt(
        "Name the team.",
        rows,
        "team",
        model={
            "answer": answer,
            "proposer": lambda prompt: f"```\nName the team, try {next(tried)}.\n```",
        },
        budget=60,
        run_dir=tmp_path / "run",
        progress=False,
    )
    assert ("--metric contains" in str(study.report)) == hint
    assert bool(study.report.hint) == hint
