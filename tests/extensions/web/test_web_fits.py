"""Pages show what one came for: the run beside far outliers, all of a prompt, every column."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import culmen
from culmen.core.task import Way
from culmen.extensions.web.pages.lineage import score_domain
from culmen.models.spec import ModelSpec, Provider
from tests.extensions.prompt.world import PROMPT, scripted, tickets
from tests.extensions.web.conftest import Site, Tab, served
from tests.report.test_story import SEED, Planted
from tests.servers.model_server import ModelServer

FAR = (160.0, 390.0, 250.0)  # three scores that are far worse than the others
RULES = PROMPT + " Read the whole ticket, and weigh what is wanted against what it says." * 8


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("ruins", [0.0, 0.03, 0.3])
def test_most_scores_have_most_of_the_axis(sign: int, ruins: float) -> None:
    chance = Random(8)
    sound = [sign * chance.gauss(10.0, 1.0) for _ in range(100)]
    far = [-sign * chance.uniform(100.0, 1e6) for _ in range(round(100 * ruins))]
    low, high = score_domain([*sound, *far], (), sign)
    assert low < min(sound) and max(sound) < high
    assert max(sound) - min(sound) > 0.5 * (high - low)
    low, high = score_domain([*sound, *far], [-sign * 400.0], sign)
    assert low <= -sign * 400.0 <= high, "lines are never off the axis"


def test_few_scores_and_equal_ones_are_all_on_the_axis() -> None:
    assert score_domain([], (), 1) == (0.0, 1.0)
    for scores in ([1.0, 500.0], [3.0] * 30, [0.0] * 20 + [1.0] * 30):
        low, high = score_domain(scores, (), 1)
        assert low < min(scores) and max(scores) < high


def outlying(folder: Path, direction: Way) -> None:
    """A run that climbs slowly, with `FAR` among its scores."""
    run, chance, level = Planted(folder, direction, exact=False), Random(4), -14.5
    for _ in range(4):
        run.scored(SEED, level + chance.gauss(0.0, 0.5))
    for number in range(60):
        child = run.made(number, SEED)
        level += 0.1
        is_far = number % 20 == 10
        run.scored(child, -FAR[number // 20] if is_far else level + chance.gauss(0.0, 0.5))


@pytest.mark.browser
@pytest.mark.parametrize("direction", ["min", "max"])
def test_three_outliers_do_not_flatten_the_chart(tmp_path: Path, tab: Tab, direction: Way) -> None:
    outlying(tmp_path, direction)
    page = tab.open(served(tmp_path), "/r/planted/overview")
    low, high = page.evaluate("() => document.querySelector('c-chart').plot.y.domain")
    assert high - low < 20
    heads = page.locator("c-chart path.edge").get_attribute("d")
    assert heads is not None and heads.count("Z") == len(FAR)
    note = "3 evaluations with a score far from the others lie on the edge."
    below = page.locator("c-chart .below").first
    assert note in below.inner_text()
    page.get_by_role("button", name="Log", exact=True).click()
    page.locator("c-chart path.edge").wait_for(state="detached")
    assert "on the edge" not in below.inner_text() and "The line is" in below.inner_text()


@pytest.mark.browser
@pytest.mark.slow
def test_all_of_a_prompt_is_on_its_page(
    tmp_path: Path, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ModelServer(scripted) as server:
        provider = Provider("mine", f"{server.url}/v1", base=0.001, cap=0.002)
        model = ModelSpec(provider, "small", max_tokens=200)
        folder = tmp_path / "runs" / "tickets"
        culmen.optimize_prompt(
            RULES, tickets(60), "team", model=model, budget=120, run_dir=folder, progress=False
        )
    page = tab.open(served(folder.parent), "/r/tickets/prompt")
    assert page.locator(".code.diff").count() == 1
    for each in (".code.diff", ".scroll"):
        sizes = page.locator(each).evaluate_all(
            "all => all.map(e => e.scrollWidth - e.clientWidth)"
        )
        assert sizes and max(sizes) <= 0, each


@pytest.mark.browser
def test_the_list_of_runs_is_whole_on_a_small_screen(site: Site, tab: Tab) -> None:
    page = tab.open(site, "/")
    for width in (1280, 1440):
        tab.resize(width, 800)
        over = page.locator(".scroll").evaluate("e => e.scrollWidth - e.clientWidth")
        assert over <= 0, width
