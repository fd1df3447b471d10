"""Tables, columns, duplicates, splits and metrics: what a user's file may hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import TaskError, UserError
from culmen.core.usage import Budget
from culmen.extensions.prompt.cases import (
    LabelledCases,
    choose_inputs,
    parse_shares,
    propose_budget,
    read_labelled_cases,
    shown_gain,
)
from culmen.extensions.prompt.form import case_messages
from culmen.extensions.prompt.metrics import (
    Metric,
    choose_metric,
    parse_number,
    read_verdict,
    score_answer,
)
from culmen.tasks.tables import read_table, table_of_rows
from tests.extensions.prompt.world import tickets


def rows_of(path: Path, data: str | bytes, **more: str) -> list[dict[str, object]]:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return [row.values for row in read_table(path, **more).rows]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path: Path, mark: str) -> None:
    text = f'ticket{mark}team\n"a{mark} b, c; d"{mark}x\n"one\ntwo ""three"""{mark}y\n\n'
    assert rows_of(tmp_path / "t.csv", text) == [
        {"ticket": f"a{mark} b, c; d", "team": "x"},
        {"ticket": 'one\ntwo "three"', "team": "y"},
    ]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"1\n2\n3",x\n\n4,y\n')
    assert [row.line for row in read_table(path).rows] == [2, 6]


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ("\ufeffa,b\nGrüße,x\n".encode(), ""),
        ("a,b\r\nGrüße,x\r\n".encode("utf-16"), ""),
        ("a,b\nGrüße,x\n".encode("latin-1"), "Windows-1252"),
        ("a,b\nGrüße,x\n\x81,y\n".encode("latin-1"), "Latin-1"),
    ],
)
def test_encodings_are_found(tmp_path: Path, data: bytes, note: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    table = read_table(path)
    assert table.rows[0].values == {"a": "Grüße", "b": "x"} and note in " ".join(table.notes)


@pytest.mark.parametrize(
    ("name", "text", "place", "what"),
    [
        ("t.csv", "a,b\n1,2,3\n", ":2 (after column b)", "3 values"),
        ("t.csv", "a,b,c\n1,2,3\n1,2\n", ":3 (column c)", "2 values"),
        ("t.csv", 'a,b\n1,x\n"2,y\n', ":3", "never closed"),
        ("t.csv", "a,a\n1,2\n", ":1 (column a)", "two columns"),
        ("t.csv", "", "", "empty"),
        ("t.csv", "a,b\n", "", "no rows"),
        ("t.csv", "a,b\n\0,2\n", ":2", "NUL"),
        ("t.jsonl", '{"a": 1}\n{"a": 1 2}\n', ":2:9", "not valid JSON"),
        ("t.jsonl", '{"a": 1}\n[1]\n', ":2", "JSON object"),
    ],
)
def test_mistakes_have_line_and_column(
    tmp_path: Path, name: str, text: str, place: str, what: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TaskError, match=what) as raised:
        read_table(path)
    assert raised.value.where == f"{path}{place}"


def test_parquet_is_read_and_a_broken_one_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(
        pyarrow.table({"ticket": ["a", "b"], "stars": [1, 5], "tags": [["x"], []]}), path
    )
    assert [row.values for row in read_table(path).rows] == [
        {"ticket": "a", "stars": 1, "tags": ["x"]},
        {"ticket": "b", "stars": 5, "tags": []},
    ]
    path.write_bytes(b"PAR1 and more")
    with pytest.raises(TaskError, match="not a parquet file"):
        read_table(path)


def labelled(
    rows: list[dict[str, str]], prompt: str = "Which team?", **more: object
) -> LabelledCases:
    return read_labelled_cases(table_of_rows(rows), "team", prompt, **more)  # pyright: ignore[reportArgumentType]


def test_empty_labels_duplicates_and_clashes_are_named_by_line() -> None:
    rows = [{"ticket": "a", "team": "x"}, {"ticket": "b", "team": " "}, {"ticket": "c", "team": ""}]
    with pytest.raises(TaskError, match="in lines 2 and 3") as raised:
        labelled(rows)
    assert raised.value.where == "cases:2 (column team)"
    rows = [
        *tickets(3),
        {"ticket": " " + tickets(3)[0]["ticket"], "team": "Billing"},
        {**tickets(3)[1], "team": "x"},
    ]
    found = labelled(rows)
    assert len(found.cases) == 3
    assert found.notes == (
        "duplicates are left out: line 4",
        "left out, for an earlier row has the same input and another label: line 5",
    )


@given(st.integers(20, 300), st.integers(2, 5), st.integers(0, 9))
def test_the_split_keeps_the_proportions_of_the_labels(count: int, labels: int, skew: int) -> None:
    rows = [
        {"t": f"text {n}", "team": str(0 if n % 10 < skew else n % labels)} for n in range(count)
    ]
    found = labelled(rows)
    sizes = Counter(case.split for case in found.cases)
    assert sizes["test"] == min(count // 4, 90) and sizes["val"] == sizes["test"]
    for label, size in Counter(found.labels).items():
        tested = sum(case.info == label and case.split == "test" for case in found.cases)
        assert abs(tested - size * sizes["test"] / count) < 2
    assert labelled(rows[::-1]).cases != found.cases  # the order of the file is kept
    by_text = {case.input["t"]: case.split for case in found.cases}
    assert by_text == {case.input["t"]: case.split for case in labelled(rows[::-1]).cases}


def test_splits_by_column_by_wish_and_none_for_few() -> None:
    rows = [{**row, "split": ("train", "dev", "test")[n % 3]} for n, row in enumerate(tickets(30))]
    assert Counter(case.split for case in labelled(rows).cases) == {
        "train": 10,
        "val": 10,
        "test": 10,
    }
    few = labelled(tickets(19))
    assert {case.split for case in few.cases} == {"train"} and shown_gain(
        few, propose_budget(few, None)
    ) is None
    wished = labelled(tickets(10), shares=parse_shares("40/20/40"))
    assert Counter(case.split for case in wished.cases) == {"train": 4, "val": 2, "test": 4}
    for text in ("50/50", "0/50/50", "a/b/c", "-1/1/1"):
        with pytest.raises(UserError, match="cannot read the split"):
            parse_shares(text)


def test_power_is_that_of_the_test_cases_that_the_budget_reaches() -> None:
    cases = labelled(tickets(240))
    budget = propose_budget(cases, None)
    assert budget.evaluations == 600 and budget.final == pytest.approx(0.24)
    gain = shown_gain(cases, budget)
    assert (
        gain is not None
        and gain.cases == 60
        and gain.gain == pytest.approx(2.8016 * 0.5 / 60**0.5, abs=1e-4)
    )
    small = shown_gain(cases, propose_budget(cases, Budget(evaluations=100)))
    assert small is not None and small.cases < 10
    assert propose_budget(cases, Budget(seconds=60.0)).evaluations == 600


def test_no_evaluations_are_proposed_beside_a_budget_that_limits_what_answers_cost() -> None:
    cases = labelled(tickets(240))
    for budget in (Budget(dollars=0.02), Budget(tokens=9_000), Budget(calls=50)):
        assert propose_budget(cases, budget) == budget


def test_placeholders_are_filled_once_and_missing_ones_follow() -> None:
    values = {"ticket": "about {team} and {name}", "name": "Ada"}
    assert case_messages("T: {ticket} N: {{ name }} {json}", values) == [
        {"role": "user", "content": "T: about {team} and {name} N: Ada {json}"}
    ]
    assert case_messages("T: {ticket}", values)[0]["content"] == "T: about {team} and {name}\n\nAda"
    assert case_messages("Which team?", values) == [
        {"role": "system", "content": "Which team?"},
        {"role": "user", "content": "ticket: about {team} and {name}\nname: Ada"},
    ]


def test_inputs_are_those_of_the_prompt_else_all_and_never_the_label() -> None:
    table = table_of_rows([{"id": "1", "ticket": "a", "from": "b", "team": "x"}])
    assert choose_inputs(table, "team", "P {from}")[0] == ("from",)
    assert choose_inputs(table, "team", "P")[0] == ("ticket", "from")
    assert choose_inputs(table, "team", 'P {"a": 1}', ["ticket"])[0] == ("ticket",)
    with pytest.raises(TaskError, match=r"names \{tickt\}"):
        choose_inputs(table, "team", "P {tickt}")
    with pytest.raises(TaskError, match="cannot be an input"):
        choose_inputs(table, "team", "P {team}")
    code = [{"t": str(n), "code": str(n % 2), "team": "ab"[n % 2]} for n in range(8)]
    assert (
        "'code' tells the label of every row"
        in choose_inputs(table_of_rows(code), "team", "P")[1][0]
    )


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["a", "b"] * 9, "exact"),
        (["1", "2", "3"] * 9, "exact"),
        ([str(n * 1.5) for n in range(30)], "numeric"),
        (["Group 1", "Group 2"] * 9, "exact"),
        ([f"name{n}" for n in range(30)], "exact"),
        ([f"the answer is in chapter {n}" for n in range(30)], "f1"),
        ([f"{n} " + "word " * 50 for n in range(30)], "judge"),
    ],
)
def test_the_metric_suits_the_labels(labels: list[str], name: str) -> None:
    assert choose_metric(labels).metric.name == name


@pytest.mark.parametrize(
    ("metric", "answer", "label", "value", "predicted"),
    [
        ("exact", ' "Billing". ', "billing", 1, "billing"),
        ("exact", "billing team", "billing", 0, "other"),
        ("exact", "2.0", "2", 1, "other"),
        ("contains", "It is billing, I think", "billing", 1, "billing"),
        ("contains", "billing or account", "billing", 0, "other"),
        ("contains", "prebilling", "billing", 0, "other"),
        ("contains", "account and access", "account and access", 1, "account and access"),
        ("f1", "the red car", "a red car", pytest.approx(2 / 3), ""),
        ("f1", "", "a", 0, ""),
        ("numeric", "It costs $1,234.50.", "1234.5", 1, ""),
        ("numeric", "3,14", "3.14", 1, ""),
        ("numeric", "3.2", "3.14", 0, ""),
        ("numeric", "none", "3", 0, ""),
    ],
)
def test_scores(metric: str, answer: str, label: str, value: float, predicted: str) -> None:
    classes = (
        ("account", "account and access", "billing") if metric in ("exact", "contains") else ()
    )
    found = score_answer(Metric(metric, classes=classes), answer, label)  # pyright: ignore[reportArgumentType]
    assert (found.value, found.predicted) == (value, predicted)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 1.5e3.", 1500),
        ("1.5 × 10³", 1500),
        ("$1.5 \\times 10^{-3}$", 0.0015),
        ("1/4", 0.25),
        ("\N{MINUS SIGN}5", -5),
        ("- 5", -5),
        ("\N{MINUS SIGN}$5", -5),
        ("Steps:\n- 5", 5),
        ("1, 2, 3", 3),
        ("In 2020 500 people", 500),
        ("1,234,567.89", 1234567.89),
        ("1.500,5", 1500.5),
        ("about 1,5 metres", 1.5),
        ("2*3 = 6", 6),
        ("-0.5 kg", -0.5),
    ],
)
def test_the_number_of_an_answer(text: str, number: float) -> None:
    assert parse_number(text) == pytest.approx(number)


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e290, max_value=1e290),
    st.sampled_from(["{!r}", "{:g}", "{:,}", "{:e}", "{:+.3f}"]),
    st.sampled_from(["{}", "**{}**", "It is {}.", "({})", "x={}", "{} units"]),
)
def test_a_number_as_python_prints_it_is_read(number: float, form: str, text: str) -> None:
    printed = form.format(number)
    assert parse_number(text.format(printed)) == pytest.approx(float(printed.replace(",", "")))


@pytest.mark.parametrize(
    "text",
    [
        *("12:30", "2024-01-05", "3-5", "3 \N{EN DASH} 5", "10^3", "10**3", "5²", "1 1/2", "1/0"),
        *("3+4i", "1.2.3", "1,000,00", "v2", "0x10", "1_000", "1e400", "9" * 400, "inf", "none"),
    ],
)
def test_what_is_in_doubt_is_no_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("**Right**", True),
        ("Yes, it is correct", True),
        ("right or wrong? Right.", True),
        ("RIGHT\n\nI found no mistake", True),
        ("wrong\n\nThe right answer is 5", False),
        ("Verdict: wrong. The correct answer is 5.", False),
        ("incorrect", False),
        ("The answer is not correct.", None),
        ("It isn't wrong", None),
        ("Neither right nor wrong", None),
        ("No, it is right", None),
        ("right\n\nwrong", None),
        ("I cannot say", None),
    ],
)
def test_a_judge_in_doubt_gives_no_verdict(reply: str, verdict: bool | None) -> None:
    assert read_verdict(reply) is verdict


def test_a_tolerance_is_for_numbers() -> None:
    assert score_answer(Metric("numeric", 0.1), "3.2", "3.14").value == 1
    with pytest.raises(UserError, match="has no tolerance"):
        choose_metric(["a", "b"] * 3, "exact", 0.5)
    with pytest.raises(UserError, match="'a' is not a number"):
        choose_metric(["a", "b"] * 3, "numeric")
