"""Every place of the four papers is held by code and by tests that are there."""

from __future__ import annotations

import pytest

from tests.docs import fidelity

PAPERS = ("cato", "pacevolve_plus_plus", "polca", "turboevolve")


def text(name: str) -> str:
    return (fidelity.PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_each_paper_has_a_page_and_its_strategys_page_leads_there() -> None:
    assert tuple(path.stem for path in sorted(fidelity.PAGES.glob("*.md"))) == PAPERS
    for name in PAPERS:
        page = fidelity.ROOT / "docs" / "strategies" / f"{name}.md"
        assert f"(../fidelity/{name}.md)" in page.read_text(encoding="utf-8"), page


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_page_names_is_there(name: str) -> None:
    assert len(list(fidelity.rows(text(name)))) >= 10
    assert fidelity.faults(text(name)) == []


def test_every_line_of_algorithm_1_stands_in_the_margin() -> None:
    source = (fidelity.ROOT / "src/culmen/strategies/polca.py").read_text(encoding="utf-8")
    assert [n for n in range(1, 11) if f"# line {n}\n" not in source] == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "| A | b | `strategies/polca.py:1` `Polca.gone` | `docs/fidelity.py` `main` | |",
            "there is no src/culmen",
        ),
        (
            "| A | b | `strategies/gone.py:1` | `docs/fidelity.py` `main` | |",
            "there is no src/culmen/strategies/gone.py",
        ),
        (
            "| A | b | `strategies/polca.py:1` `Polca` | `docs/fidelity.py` `gone` | |",
            "there is no tests/docs",
        ),
        ("| A | b | `strategies/polca.py:1` `Polca` | none | |", "no test"),
        ("| A | b | none | none | |", "neither code nor a reason"),
    ],
)
def test_what_is_not_there_is_found(row: str, said: str) -> None:
    (fault,) = fidelity.faults(row)
    assert said in fault


def test_line_numbers_are_brought_up_to_date() -> None:
    row = "| A | b | `strategies/polca.py:99999` `Polca.run_lane` | |"
    line = fidelity.names(fidelity.ROOT / "src/culmen/strategies/polca.py")["Polca.run_lane"]
    assert fidelity.renumbered(row) == row.replace("99999", str(line))
