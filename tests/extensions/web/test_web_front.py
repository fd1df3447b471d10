"""The Pareto front on the first page: drawings of two, three and four objectives.

Also the default choice.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

import culmen
from culmen.store import views
from tests.extensions.web.conftest import Site, Tab, served

NAMES = ("accuracy", "latency", "memory", "price")
# accuracy, latency, memory, price: eight trade-offs, one far out, two that are dominated
POINTS = [
    *((n / 10, 1.0 + n * n / 8, 100.0 - 9 * n, n % 3) for n in range(1, 9)),
    (0.95, 60.0, 300.0, 9.0),
]
POINTS += [(0.1, 6.0, 120.0, 5.0), (0.2, 7.0, 130.0, 6.0)]


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Runs with two, three and four objectives, and with two of which one program is best."""
    folder = tmp_path_factory.mktemp("fronts")
    for name, objectives in {"two": 2, "three": 3, "four": 4, "one": 2}.items():
        points = POINTS if name != "one" else [(0.9, 1.0, 0.0, 0.0), *POINTS[:3]]
        goals: dict[str, Any] = dict(
            zip(NAMES[:objectives], ("max", "min", "min", "min"), strict=False)
        )

        def judge(text: str, names: tuple[str, ...] = NAMES[:objectives]) -> dict[str, Any]:
            return {"metrics": dict(zip(names, map(float, text.split()), strict=False))}

        culmen.optimize(
            [" ".join(map(str, point)) for point in points],
            judge,
            objectives=goals,
            constraints=["latency <= 8", "accuracy >= 0.05"] if name == "two" else [],
            budget=culmen.Budget(evaluations=len(points), final=0),
            run_dir=folder / name,
            deterministic=True,
            progress=False,
        )
    return served(folder)


def plotted(page: Any, series: str = "path.dots:not(.faint)") -> list[tuple[float, float]]:
    found = page.locator(f'c-chart[aria-label^="Pareto front: latency"] {series}')
    text = " ".join(found.nth(n).get_attribute("d") for n in range(found.count()))
    return [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)", text)]


def test_a_front_of_two_has_steps_limits_and_an_axis_that_no_outlier_squeezes(
    fronts: Site, tab: Tab
) -> None:
    page = tab.open(fronts, "/r/two/overview")
    front = views.pareto_front(fronts.run("two"))
    assert front is not None and front.choice == front.choose().id
    told = page.locator('[data-role="choice"]').inner_text()
    assert front.choice[:8] in told and "nearest to the best value of every objective" in told
    assert page.get_by_text("Best score").count() == 0
    labels = page.locator(".ref-limit text").all_text_contents()
    assert (
        any(label.startswith("latency ≤ 8") for label in labels)
        and page.locator(".forbidden").count()
    )
    # the program that takes 60 is an arrowhead at the edge, and the page says so
    assert page.locator("path.edge").count() == 1
    assert "1 candidate beyond the axes" in page.locator("c-chart .below").inner_text()
    spots, box = plotted(page), page.locator("c-chart").first.bounding_box()
    assert max(x for x, _ in spots) - min(x for x, _ in spots) > 0.5 * box["width"]
    assert max(y for _, y in spots) - min(y for _, y in spots) > 0.45 * box["height"]
    page.get_by_role("button", name="Everything").click()
    page.locator("path.edge").wait_for(state="detached")
    squeezed = plotted(page)
    assert max(y for _, y in squeezed) - min(y for _, y in squeezed) < 0.2 * box["height"]
    page.get_by_role("button", name="Front", exact=True).click()
    page.wait_for_selector("path.edge")
    # a corner between any two neighbours, worse than both
    path = page.locator("path.line").first.get_attribute("d")
    corners = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    assert len(corners) == 2 * len(front.members) + 1
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
    # a press on a trade-off shows its text
    chart = page.locator("c-chart").first
    chart.scroll_into_view_if_needed()
    place, (x, y) = chart.bounding_box(), plotted(page)[0]
    page.mouse.move(place["x"] + x, place["y"] + y)
    page.wait_for_selector(".tip:not([hidden])")
    shown = page.locator(".tip:not([hidden])").inner_text()
    page.mouse.click(place["x"] + x, place["y"] + y)
    page.wait_for_selector('main[data-key="two/candidate"]:not([aria-busy])')
    accuracy = re.search(r"accuracy ([\d.]+)", shown)
    assert accuracy and f"{accuracy[1]} " in page.locator("main").inner_text()


def test_more_objectives_are_colours_with_words_and_parallel_axes(fronts: Site, tab: Tab) -> None:
    page = tab.open(fronts, "/r/three/overview")
    assert page.locator('c-chart[aria-label="Pareto front: all 3 objectives"]').count() == 1
    legend = " ".join(page.locator(".legend").all_inner_texts())
    assert (
        all(f"({third} third)" in legend for third in ("best", "middle", "worst"))
        and "memory 28" in legend
    )
    page = tab.open(fronts, "/r/four/overview")
    figure = page.locator('c-chart[aria-label="Pareto front: all 4 objectives"]')
    text = figure.text_content()
    assert all(name in text for name in NAMES) and "worst" in text and "default choice" in text
    tab.resize(390)
    page = tab.open(fronts, "/r/one/overview")
    ticks = page.locator("c-chart .axes text").all_text_contents()
    assert (
        len(set(ticks)) == len(ticks)
        and "only member" in page.locator('[data-role="choice"]').inner_text()
    )
    page = tab.open(fronts, "/")
    listed = {row.split()[0]: row for row in page.locator("table.runs tbody tr").all_inner_texts()}
    assert "front of 1" in listed["one"] and len(listed) == 4
