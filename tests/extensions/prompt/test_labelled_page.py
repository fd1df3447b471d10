"""The page of a prompt over labelled cases.

It has the terminal's last words, in dashboard and report.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import culmen
from culmen.extensions.prompt.page import prompt_page
from culmen.extensions.prompt.report import read_report
from culmen.extensions.web.pages.overview import head_page
from culmen.extensions.web.report import gather_report
from culmen.extensions.web.runs import Digest
from culmen.models.spec import ModelSpec, Price, Provider
from tests.extensions.prompt.world import PROMPT, scripted, tickets
from tests.servers.model_server import ModelServer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("prompt")
    with pytest.MonkeyPatch.context() as patch, ModelServer(scripted) as server:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        provider = Provider("mine", f"{server.url}/v1", base=0.001, cap=0.002)
        model = ModelSpec(provider, "small", max_tokens=200, price=Price(input=0.2, output=0.8))
        study = culmen.optimize_prompt(
            PROMPT,
            tickets(60),
            "team",
            model=model,
            budget=200,
            run_dir=folder / "runs" / "tickets",
            progress=False,
        )
    yield study.path


def test_the_page_has_what_the_terminal_shows(run: Path) -> None:
    report = read_report(run)
    blocks = {block["heading"]: block for block in prompt_page(Digest(run), {})["blocks"]}
    assert list(blocks) == [
        "Result",
        "Confusion after",
        "Confusion before",
        "Prompt, before and after",
    ] + [f"Worst {report.split} cases"] * bool(report.worst)
    facts = dict(blocks["Result"]["pairs"])
    assert {"before", "after", "gain", "measured on", "metric", "spent"} <= facts.keys()
    assert facts["measured on"] == f"{report.cases} test cases" and facts["spent"] == report.spent
    table = blocks["Confusion after"]
    assert [row[1:] for row in table["rows"]] == [
        list(counts) for counts in report.confusion.counts
    ]  # pyright: ignore
    diff = blocks["Prompt, before and after"]
    assert diff["before"] == PROMPT and diff["after"] == report.after.text != PROMPT


def test_the_page_is_offered_to_such_runs_alone_and_is_in_the_report(
    run: Path, tmp_path: Path
) -> None:
    offered = {each["name"]: each["place"] for each in head_page(Digest(run), {})["added"]}
    assert offered["prompt"] == "result"
    other = culmen.optimize(
        "1", evaluator=float, budget=5, run_dir=tmp_path / "other", progress=False
    ).path
    assert "prompt" not in {each["name"] for each in head_page(Digest(other), {})["added"]}
    assert prompt_page(Digest(other), {}) == {"blocks": []}
    assert gather_report(Digest(run)).documents["pages"]["prompt"]["blocks"]
