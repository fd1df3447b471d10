"""Labelled rows as cases: columns, duplicates, splits, budget, and the gain that they show.

The split is a function of the rows alone: each label's cases, in the order of a hash of their
inputs, are dealt to train, val and test in proportion.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import msgspec

from culmen.core.errors import TaskError, UserError
from culmen.core.evaluation import Case
from culmen.core.usage import Budget
from culmen.evaluate.misleading_cases import how_it_tells
from culmen.extensions.prompt.metrics import normalize_text
from culmen.tasks.reading import closest_name
from culmen.tasks.tables import CaseTable, TableRow, list_lines

SPLIT_COLUMN = "split"
_DSPY = "dspy_split"  # the column of its datasets; train, dev or test
_NO_INPUTS = (SPLIT_COLUMN, _DSPY, "id", "dspy_uuid")
_SPLITS = {"train": "train", "val": "val", "dev": "val", "validation": "val", "test": "test"}
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\n]{1,80}?)\s*\}\}|\{([^{}\n]{1,80}?)\}")
_WORD = re.compile(r"[A-Za-z_][\w .-]*")

MINIMUM = 20  # cases from which on some are held out
_PROPOSED = (200, 900)  # evaluations of a proposed budget: least and most
_TESTED = 0.12  # test cases for each evaluation, at most: both prompts are tried on all of them
_CHOOSING = (0.04, 16)  # evaluations that choose among the finalists: share, and least
# share of the evaluations kept for the final choice if all test cases do not fit, and the part of
# it that confirms (engine.ledger, engine.finale)
_TENTH, _CONFIRMING = 0.1, 0.6
_WORST_VARIANCE = 0.25  # of a score between 0 and 1
_FACTOR = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)

Item = TypeVar("Item")


class LabelledCases(msgspec.Struct, frozen=True):
    """Cases with their label column and input columns; `lines` are those of the table, by case.

    `split_reason` describes the origin of the split.
    """

    cases: tuple[Case, ...]
    label: str
    inputs: tuple[str, ...]
    split_reason: str
    notes: tuple[str, ...] = ()
    metric: str = ""  # the one that the labels name

    def count_split(self, name: str) -> int:
        """Number of cases of a split."""
        return sum(case.split == name for case in self.cases)

    @property
    def labels(self) -> list[str]:
        """The label of every case."""
        return [str(case.info) for case in self.cases]


class SplitShares(NamedTuple):
    """Shares of train, val and test; `named` if the user chose them."""

    train: float
    val: float
    test: float
    named: bool = False


USUAL_SHARES = SplitShares(0.5, 0.25, 0.25)


class ShownGain(msgspec.Struct, frozen=True):
    """Gains that `cases` test cases can show, and what half of that gain takes.

    A gain is shown with probability .8 at the 5 % level, for new cases of the kind, at the largest
    variance of a score between 0 and 1.
    """

    cases: int
    gain: float
    other_gain: float
    other_cases: int
    other_evaluations: int


def read_labelled_cases(
    table: CaseTable,
    label: str,
    prompt: str,
    wanted: Sequence[str] = (),
    shares: SplitShares = USUAL_SHARES,
    evaluations: int | None = None,
) -> LabelledCases:
    """The cases of a table for a prompt; raise `TaskError` with line and column for mistakes.

    `wanted` are the input columns, () for those that the prompt names or else all but the label.
    """
    if not label:
        raise UserError(
            "which column holds the right answer is not said",
            where="--label",
            fix=f"add --label COLUMN, one of: {', '.join(table.columns)}",
        )
    answer = table.require_column(label, f"--label {label}")
    table, metric = _without_assertions(table, answer)
    inputs, notes = choose_inputs(table, answer, prompt, wanted)
    _check_labels(table, answer)
    rows, more = _without_duplicates(table.rows, answer, inputs)
    notes = [*table.notes, *notes, *more]
    splits, reason = _split_rows(table, rows, answer, shares, evaluations)
    cases = tuple(
        Case(str(row.line), {name: row.values.get(name) for name in inputs}, text, split)
        for row, split in zip(rows, splits, strict=True)
        for text in (_label_text(row.values[answer]),)
    )
    return LabelledCases(cases, answer, inputs, reason, tuple(notes), metric)


# -- columns


def choose_inputs(
    table: CaseTable, label: str, prompt: str, wanted: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """The input columns in the order of the table, and notes.

    Raises `TaskError` for a placeholder that is nearly a column's name, and for the label itself.
    """
    if wanted:
        named = {table.require_column(name, f"--input {name}") for name in wanted}
    else:
        named = {name for name in placeholders_of(prompt) if name in table.columns}
        _check_placeholders(table, prompt)
    if label in named:
        raise TaskError(
            f"the label column '{label}' cannot be an input: it is the answer",
            where=f"the prompt's {{{label}}}" if not wanted else f"--input {label}",
            fix="take it out",
        )
    others = [name for name in table.columns if name not in (label, *_NO_INPUTS)]
    if label.startswith(_PROMPTFOO):
        others = [name for name in others if not name.startswith("__")]
    if not named and not others:
        raise TaskError(
            f"{table.name} has no column beside the label",
            where=table.place_of(1),
            fix="add a column with the input, for instance the text to be classified",
        )
    chosen = tuple(name for name in table.columns if name in named) or tuple(others)
    notes = [
        f"column '{name}' tells the label of every row, so it may hold the answer: leave it out "
        "with --input"
        for name in chosen
        if _gives_away(table, label, name)
    ]
    return chosen, notes


def placeholders_of(prompt: str) -> list[str]:
    """Names in single or double braces, in their order."""
    return list(dict.fromkeys(one or two for one, two in _PLACEHOLDER.findall(prompt)))


def fill_placeholders(prompt: str, values: Mapping[str, object]) -> tuple[str, list[str]]:
    """The prompt with values in place of their names, and the names that it lacks."""
    used: set[str] = set()

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            return match[0]
        used.add(name)
        return text_of(values[name])

    filled = _PLACEHOLDER.sub(value_of, prompt)
    return filled, [name for name in values if name not in used]


def text_of(value: object) -> str:
    """A value as a prompt shows it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check_placeholders(table: CaseTable, prompt: str) -> None:
    for name in placeholders_of(prompt):
        near = closest_name(name, table.columns)
        if name not in table.columns and near and _WORD.fullmatch(name):
            raise TaskError(
                f"the prompt names {{{name}}}, and {table.name} has no such column",
                where=f"{{{name}}} in the prompt",
                fix=f"did you mean {{{near}}}? columns: {', '.join(table.columns)}",
            )


def _gives_away(table: CaseTable, label: str, name: str) -> bool:
    """True if a column is the label, or if each of its values goes with one label alone."""
    values = [text_of(row.values.get(name)) for row in table.rows]
    labels = [text_of(row.values.get(label)) for row in table.rows]
    return len(set(labels)) > 1 and bool(how_it_tells(values, labels))


# -- rows

_PROMPTFOO = "__expected"  # begins the names of its columns of assertions
_PLAIN = {"equals": "", "contains": "contains", "icontains": "contains"}  # metrics by assertion
# the other types of assertion of promptfoo 0.121
_ASSERTION = re.compile(
    r"(not-)?(equals|i?contains(?:-\w+)?|javascript|fn|eval|python|ruby|file|grade|webhook|regex"
    r"|(?:llm|agent|search)-rubric|similar(?::\w+)?|starts-with|factuality|classifier|is-[\w-]+|cost"
    r"|model-graded-\w+|answer-relevance|con(?:text|versation)-\w+|levenshtein|rouge-n|bleu|gleu"
    r"|meteor|latency|g-eval|pi|perplexity(?:-score)?|moderation|guardrails|finish-reason"
    r"|word-count|skill-used|tool-call-f1|tra(?:jectory|ce)[\w:-]*)(?:\([\d.]+\))?:",
    re.IGNORECASE,
)


def _without_assertions(table: CaseTable, label: str) -> tuple[CaseTable, str]:
    """The table with answers in place of promptfoo's assertions, and the metric that these name.

    Raises `TaskError` for an assertion that is no answer.
    """
    found = [_assertion_of(row, label) for row in table.rows]
    is_all = all(kind for kind, _ in found)
    if not any(kind for kind, _ in found) or not (is_all or label.startswith(_PROMPTFOO)):
        return table, ""
    rows: list[TableRow] = []
    for row, (kind, value) in zip(table.rows, found, strict=True):
        if kind and kind not in _PLAIN:
            raise TaskError(
                f"'{_label_text(row.values.get(label))[:80]}' is an assertion of promptfoo, "
                "not an answer",
                where=table.place_of(row.line, label),
                fix="write the right answer there (equals: or icontains: may stand before it), "
                "for a rubric with --metric judge",
            )
        rows.append(row._replace(values={**row.values, label: value} if kind else row.values))
    metrics = {_PLAIN.get(kind, "") for kind, _ in found}
    return table._replace(rows=tuple(rows)), max(metrics)


def _assertion_of(row: TableRow, label: str) -> tuple[str, str]:
    """The kind of an assertion, "" for a plain answer, and its value."""
    text = _label_text(row.values.get(label))
    match = _ASSERTION.match(text)
    if match is None:
        return "", text
    return f"{match[1] or ''}{match[2].lower()}", text[match.end() :].strip()


def _label_text(value: object) -> str:
    return text_of(value).strip()


def _check_labels(table: CaseTable, label: str) -> None:
    empty = [row.line for row in table.rows if not _label_text(row.values.get(label))]
    if empty:
        many = f"in {list_lines(empty)}" if len(empty) > 1 else f"in line {empty[0]}"
        raise TaskError(
            f"the label is empty {many}",
            where=table.place_of(empty[0], label),
            fix="write the right answer there, or remove the row",
        )


def _without_duplicates(
    rows: Sequence[TableRow], label: str, inputs: Sequence[str]
) -> tuple[list[TableRow], list[str]]:
    """The rows without repeats of an input with its label, and notes on these and on clashes."""
    seen: dict[str, TableRow] = {}
    kept: list[TableRow] = []
    doubled: list[int] = []
    clashes: list[int] = []
    for row in rows:
        first = seen.setdefault(_input_key(row, inputs), row)
        if first is row:
            kept.append(row)
        elif normalize_text(_label_text(first.values[label])) == normalize_text(
            _label_text(row.values[label])
        ):
            doubled.append(row.line)
        else:
            clashes.append(row.line)
    notes: list[str] = []
    if doubled:
        notes.append(f"duplicates are left out: {list_lines(doubled)}")
    if clashes:
        notes.append(
            f"left out, for an earlier row has the same input and another label: "
            f"{list_lines(clashes)}"
        )
    return kept, notes


def _input_key(row: TableRow, inputs: Sequence[str]) -> str:
    pieces = [" ".join(text_of(row.values.get(name)).split()) for name in inputs]
    return hashlib.sha256(json.dumps(pieces).encode("utf-8", "replace")).hexdigest()


# -- the split


def parse_shares(text: str) -> SplitShares:
    """`60/20/20` as shares; raise `UserError` for anything else."""
    pieces = text.split("/")
    try:
        numbers = [float(piece) for piece in pieces]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or min(numbers) < 0 or not numbers[0] or not sum(numbers) < math.inf:
        raise UserError(
            f"cannot read the split '{text}'",
            where="--split",
            fix="write TRAIN/VAL/TEST in per cent: 50/25/25",
        )
    train, val, test = (number / sum(numbers) for number in numbers)
    return SplitShares(train, val, test, True)


def _split_rows(
    table: CaseTable,
    rows: Sequence[TableRow],
    label: str,
    shares: SplitShares,
    evaluations: int | None,
) -> tuple[list[str], str]:
    """The split of each row, and its origin in words."""
    column = next((name for name in (SPLIT_COLUMN, _DSPY) if name in table.columns), "")
    given = [text_of(row.values.get(column)).strip().lower() for row in rows]
    if not shares.named and column and set(given) <= _SPLITS.keys():
        splits = [_SPLITS[each] for each in given]
        if "train" not in splits:
            raise TaskError(
                "no row belongs to the split train",
                where=table.place_of(1, column),
                fix="a search needs training cases",
            )
        return splits, f"by the column {column}"
    if len(rows) < MINIMUM and not shares.named:
        return ["train"] * len(rows), f"fewer than {MINIMUM} cases: none are held out"
    val, test = (math.floor(share * len(rows) + 1e-9) for share in (shares.val, shares.test))
    if not shares.named:
        most = _most_test_cases(evaluations)
        val, test = min(val, most), min(test, most)
    return _deal_rows(rows, label, val, test), "by label, in the order of a hash"


def _most_test_cases(evaluations: int | None) -> int:
    # test cases of a proposed budget, at most
    return 90 if evaluations is None else max(5, int(evaluations * _TESTED))


def _deal_rows(rows: Sequence[TableRow], label: str, val: int, test: int) -> list[str]:
    """`val` and `test` of the rows, each label in proportion; the others are train."""
    sizes = Counter(_label_text(row.values[label]) for row in rows)

    def order(index: int) -> tuple[int, str, str]:
        text = _label_text(rows[index].values[label])
        return sizes[text], text, _input_key(rows[index], sorted(rows[index].values))

    ordered = sorted(range(len(rows)), key=order)
    tested, rest = _every_nth(ordered, test)
    validated, _ = _every_nth(rest, val)
    splits = dict.fromkeys(tested, "test") | dict.fromkeys(validated, "val")
    return [splits.get(index, "train") for index in range(len(rows))]


def _every_nth(items: Sequence[Item], count: int) -> tuple[list[Item], list[Item]]:
    """`count` items at equal distances, and the others."""
    size = max(1, len(items))
    taken = [(i + 1) * count // size > i * count // size for i in range(len(items))]
    chosen = [item for item, take in zip(items, taken, strict=True) if take]
    return chosen, [item for item, take in zip(items, taken, strict=True) if not take]


# -- budget and power


def propose_budget(cases: LabelledCases, given: Budget | None) -> Budget:
    """The budget of a run: the given limits, and a final choice that fits the evaluations.

    Evaluations are proposed unless calls, tokens or dollars already limit what answers cost.
    The final choice evaluates both prompts on every test case, if that takes at most a third.
    """
    tested = cases.count_split("test")
    budget = given or Budget()
    evaluations = budget.evaluations
    if evaluations is None and (budget.calls or budget.tokens or budget.dollars):
        return budget
    if evaluations is None:
        least, most = _PROPOSED
        # evaluations of a proposed budget for each test case
        evaluations = max(least, min(most, 10 * (tested or len(cases.cases))))
    final = budget.final
    if final is None and tested:
        share, few = _CHOOSING
        wanted = (2 * tested + max(few, share * evaluations)) / evaluations
        final = round(wanted, 3) if wanted <= 0.4 else None
    return msgspec.structs.replace(budget, evaluations=evaluations, final=final)


def shown_gain(cases: LabelledCases, budget: Budget) -> ShownGain | None:
    """The gain that the test cases can show; None without any."""
    tested = cases.count_split("test")
    kept = int((budget.evaluations or 0) * (_TENTH if budget.final is None else budget.final))
    if budget.evaluations is not None and kept < 2 * tested:
        tested = int(kept * _CONFIRMING / 2)
    if not tested:
        return None
    gain = _FACTOR * math.sqrt(_WORST_VARIANCE / tested)
    other = float(f"{gain / 2:.1g}")
    needed = math.ceil(_WORST_VARIANCE * (_FACTOR / other) ** 2)
    return ShownGain(tested, gain, other, needed, math.ceil(needed / _TESTED / 10) * 10)
