"""Pictures of candidates, and their answers case by case, on the pages."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.extensions.web.pages.candidates import candidate_detail_page
from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from culmen.store import views
from tests.extensions.web.conftest import Tab, served
from tests.extensions.web.test_web_pages import rows


def square(shade: int) -> bytes:
    """A PNG file of eight by eight pixels of one shade."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    pixels = b"".join(b"\0" + bytes([shade] * 8) for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def shade_of(text: str) -> int:
    return max(1, min(250, int(float(text) * 10)))


def drawing(text: str) -> tuple[float, dict[str, Any]]:
    """The number that a candidate is, with a picture of its shade."""
    return float(text), {"images": {"shade.png": square(shade_of(text))}}


def grown(prompt: str) -> str:
    """A model whose n-th answer is n."""
    grown.asked += 1  # type: ignore[attr-defined]
    return f"```\n{grown.asked}\n```"  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every evaluation draws."""
    folder = tmp_path_factory.mktemp("drawn")
    grown.asked = 1  # type: ignore[attr-defined]
    culmen.optimize(
        "1.0", drawing, budget=12, model=grown, run_dir=folder / "drawn", progress=False
    )
    return folder / "drawn"


def test_the_bests_pictures_stand_beside_the_initial_programs(drawn: Path) -> None:
    best = views.best_result(drawn)
    assert best is not None and best.initial is not None and best.score > best.initial.score
    parts = views.candidate_detail(drawn, best.id).parts
    text = next(iter(parts.values()))
    (shown,) = overview_page(Digest(drawn), {})["pictures"]
    assert shown == {
        "name": "shade.png",
        "initial": data_url(square(shade_of("1.0"))),
        "best": data_url(square(shade_of(text))),
    }


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


@pytest.mark.browser
def test_pictures_are_drawn_on_the_first_page_and_on_a_candidates(drawn: Path, tab: Tab) -> None:
    best = views.best_result(drawn)
    assert best is not None
    site = served(drawn.parent)
    page = tab.open(site, "/r/drawn/overview")
    assert page.locator("[data-picture] img").count() == 2
    page = tab.open(site, f"/r/drawn/candidate?id={best.id}")
    image = page.locator("figure.picture img").first
    image.wait_for()
    assert image.get_attribute("alt") == "shade.png"
    assert image.evaluate("img => img.naturalWidth") == 8


CASES = [culmen.Case(f"case {n}", {"x": n}, n * n) for n in range(4)]


def doubled(text: str, case: culmen.Case) -> tuple[float, dict[str, Any]]:
    """True if twice the input is its square: for 0 and 2 alone."""
    answer = int(text) * case.input["x"]
    return float(answer == case.info), {"artifacts": {"output": str(answer)}}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a data set whose candidates answer with a number."""
    folder = tmp_path_factory.mktemp("answered")
    culmen.optimize(
        "2",
        doubled,
        cases=CASES,
        budget=12,
        model=lambda prompt: "```\n2\n```",
        run_dir=folder / "answered",
        progress=False,
    )
    return folder / "answered"


def test_cases_are_told_in_words_the_worst_first(answered: Path) -> None:
    initial = views.initial_program(answered)
    told = candidate_detail_page(Digest(answered), {"id": initial})["cases"]
    assert [row["mean"] for row in told] == sorted(row["mean"] for row in told)
    for row in told:
        n = int(row["case"].split()[1])
        assert (row["input"], row["target"], row["answer"]) == (str(n), str(n * n), str(2 * n))
        assert row["mean"] == float(n * n == 2 * n)


def test_the_scores_of_others_on_each_case_stand_beside_a_candidates(tmp_path: Path) -> None:
    numbers, run = itertools.count(3), tmp_path / "several"
    culmen.optimize(
        "2",
        doubled,
        cases=CASES,
        budget=24,
        model=lambda prompt: f"```\n{next(numbers) % 6}\n```",
        run_dir=run,
        progress=False,
    )
    means: dict[tuple[str, str], list[float]] = {}
    for seen in views.stream_observations(run):
        means.setdefault((seen.candidate, seen.case), []).append(seen.score or 0.0)
    initial, best = views.initial_program(run), views.best_result(run)
    told = candidate_detail_page(Digest(run), {"id": initial})
    assert best is not None and len(told["beside"]) > 1 and initial not in told["beside"]
    for row in told["cases"]:
        for name in told["beside"]:
            scores = means.get((name, row["case"]))
            assert row["others"][name] == (sum(scores) / len(scores) if scores else None)
    other = candidate_detail_page(Digest(run), {"id": next(iter(told["beside"]))})
    assert other["beside"][initial] in ("start", "best")


@pytest.mark.browser
def test_a_candidates_page_has_one_table_of_cases(answered: Path, tab: Tab) -> None:
    site, initial = served(answered.parent), views.initial_program(answered)
    page = tab.open(site, f"/r/answered/candidate?id={initial}")
    told = candidate_detail_page(Digest(answered), {"id": initial})["cases"]
    found = [row[:4] for row in rows(page, "Cases, the worst first")]
    assert found == [[row["case"], row["input"], row["target"], row["answer"]] for row in told]
    assert page.get_by_label("Evaluations one by one").count() == 0
