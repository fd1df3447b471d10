"""The chart component: a part of it, logarithms, lines left out, and things taken away.

All of it is in the address.
"""

from __future__ import annotations

import csv
import io
import math
from statistics import median
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from culmen.extensions.web.pages.overview import overview_page
from culmen.extensions.web.runs import Digest
from tests.extensions.web.conftest import Site, Tab
from tests.report.arithmetic import Arithmetic

PATH = "/r/polca-1/overview"
POSITIVE = "/r/polca-1/calls"  # a chart whose heights are all above zero
DOMAIN = "axis => document.querySelector('c-chart').plot[axis].domain"


def brush(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw from one place of the first chart's plot to another.

    Places are shares of its width and height.
    """
    box = page.locator("c-chart svg").first.bounding_box()
    plot = page.evaluate("() => document.querySelector('c-chart').plot.box")
    at = [
        (
            box["x"] + plot["left"] + x * (plot["right"] - plot["left"]),
            box["y"] + plot["top"] + y * (plot["bottom"] - plot["top"]),
        )
        for x, y in (start, end)
    ]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=3)
    assert page.locator(".brush").is_visible()
    page.mouse.up()


def test_a_brush_shows_a_part_and_the_address_keeps_it(site: Site, tab: Tab):
    page = tab.open(site, PATH)
    whole = page.evaluate(DOMAIN, "x")
    heights = page.evaluate(DOMAIN, "y")
    brush(page, (0.25, 0.5), (0.5, 0.5))
    low, high = page.evaluate(DOMAIN, "x")
    span = whole[1] - whole[0]
    assert (
        abs(low - whole[0] - 0.25 * span) < 0.02 * span
        and abs(high - whole[0] - 0.5 * span) < 0.02 * span
    )
    assert page.evaluate(DOMAIN, "y") == heights  # along the heights the brush went nowhere
    brush(page, (0.1, 0.2), (0.9, 0.7))  # and again, of both
    part = page.evaluate(DOMAIN, "y")
    assert heights[0] < part[0] < part[1] < heights[1]
    assert "view.score-by-evaluations=" in page.url
    page.reload()
    page.wait_for_selector("c-chart svg")
    again = page.evaluate(DOMAIN, "y")
    assert all(abs(a - b) < 1e-4 for a, b in zip(again, part))
    page.get_by_role("button", name="Show all").click()
    assert page.evaluate(DOMAIN, "x") == whole and "view." not in page.url
    brush(page, (0.2, 0.2), (0.8, 0.8))
    box = page.locator("c-chart svg").first.bounding_box()
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.evaluate(DOMAIN, "x") == whole


def test_keys_do_the_same(site: Site, tab: Tab):
    page = tab.open(site, POSITIVE)
    page.locator("c-chart").first.focus()
    whole = page.evaluate(DOMAIN, "x")
    page.keyboard.press("+")
    part = page.evaluate(DOMAIN, "x")
    assert abs((part[1] - part[0]) / (whole[1] - whole[0]) - 0.7) < 0.01
    page.keyboard.press("l")
    assert page.evaluate("() => document.querySelector('c-chart').shown.log")
    assert page.evaluate(DOMAIN, "x") == whole  # everything, on another scale
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    assert page.evaluate(DOMAIN, "x") == whole
    assert page.url.endswith("log")


def test_logarithms_lie_where_they_should(site: Site, tab: Tab):
    page = tab.open(site, "/r/map_elites-1/overview")
    assert page.locator("c-chart svg").count() > 0
    assert page.get_by_role("button", name="Log", exact=True).count() == 0  # a score there is 0
    page = tab.open(site, POSITIVE)
    page.get_by_role("button", name="Log", exact=True).click()
    near: list[float] = page.evaluate(
        "() => { const { y } = document.querySelector('c-chart').plot; const [low, high] = y.domain;"
        " return [y(Math.sqrt(low * high)) - (y(low) + y(high)) / 2, y.invert(y(0.5)) - 0.5] }"
    )
    assert all(abs(each) < 1e-6 for each in near)
    marks = page.evaluate("() => document.querySelector('c-chart').plot.yMarks")
    assert len(marks) >= 2 and all(mark > 0 for mark in marks)


def test_signed_logarithms_show_scores_far_off_beside_the_others(site: Site, tab: Tab):
    page = tab.open(site, "/r/map_elites-1/overview")
    values = [*(0.2 + n / 100 for n in range(9)), 0.0, -5000.0]
    unit, marks, places = page.evaluate(
        """values => {
          const element = document.querySelector("c-chart");
          element.spec = { ...element.spec, refs: [], y: { label: "score" },
            series: [{ name: "a", kind: "dots", points: values.map((y, x) => [x, y]) }] };
          element.change({ log: true, zoom: null });
          const { y, yMarks } = element.plot;
          const [from, to] = [y(0), y(1)];
          return [element.shown.unit, yMarks, values.map((value) => (y(value) - from) / (to - from))];
        }""",
        values,
    )
    assert unit == pytest.approx(median(map(abs, values)) / 10)
    whole = math.log10(1 + 1 / unit)
    true = [math.copysign(math.log10(1 + abs(each) / unit), each) / whole for each in values]
    assert places == pytest.approx(true)
    assert marks == sorted(marks) and 0 in marks and -100 in marks and len(marks) <= 8
    assert page.get_by_role("button", name="Log", exact=True).count() == 1


def test_gain_per_dollar_is_the_gain_over_the_dollars_until_then(site: Site, tab: Tab):
    page = tab.open(site, "/r/polca-1/overview?y=paid")
    shown = page.evaluate("() => document.querySelector('c-chart').spec.series[0].points")
    sums = Arithmetic(site.run("polca-1"))
    told = msgspec.to_builtins(overview_page(Digest(site.run("polca-1")), {}))
    first, true = told["lines"]["initial"], []
    for point in told["course"]:
        spent = sums.dollars_to(sums.seen[point["evaluations"] - 1].seq)
        true += [(point["evaluations"], (point["score"] - first) / spent)] if spent else []
    assert len(true) > 5
    assert [tuple(each) for each in shown] == [pytest.approx(each) for each in true]


def test_a_series_can_be_left_out_with_its_band(site: Site, tab: Tab):
    page = tab.open(site, PATH)
    drawn = "() => document.querySelectorAll('c-chart path.line, c-chart path.band').length"
    before = page.evaluate(drawn)
    name = page.get_by_role("button", name="expected of the leader")
    name.click()
    assert page.evaluate(drawn) == before - 2 and name.get_attribute("aria-pressed") == "false"
    assert "off%3Dexpected" in page.url or "off=expected" in page.url
    assert page.evaluate("() => document.querySelectorAll('c-chart path.dots').length") >= 1
    name.click()
    assert page.evaluate(drawn) == before and "view." not in page.url


def test_numbers_and_pictures_are_taken_away(site: Site, tab: Tab):
    page = tab.open(site, PATH)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def taken(item: str) -> tuple[str, bytes]:
        page.locator(".chart-menu summary").first.click()
        with page.expect_download() as waiting:
            page.get_by_role("button", name=item).click()
        return waiting.value.suggested_filename, waiting.value.path().read_bytes()

    name, data = taken("Numbers (CSV)")
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    given = page.evaluate("() => document.querySelector('c-chart').spec.series")
    assert name == "scores-against-evaluations.csv" and len(rows) == sum(
        len(each["points"]) for each in given
    )
    first = next(each for each in given if each["name"] == "expected of the leader")["points"][0]
    mine = [
        row for row in rows if row["series"] == "expected of the leader" and row["kind"] == "step"
    ]
    assert (float(mine[0]["Evaluations"]), float(mine[0]["score"])) == tuple(map(float, first))
    name, data = taken("Picture (SVG)")
    drawn = ElementTree.fromstring(data.decode())
    assert (
        drawn.tag.endswith("svg")
        and "var(" not in data.decode()
        and "expected of the leader" in data.decode()
    )
    name, data = taken("Picture (PNG)")
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 3000
    page.locator(".chart-menu summary").first.click()
    page.get_by_role("button", name="Copy link").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == page.url


def test_the_late_half_fills_the_picture_and_labels_lie_above_dots(site: Site, tab: Tab):
    page = tab.open(site, "/r/map_elites-1/overview?y=late")
    low, high = page.evaluate(DOMAIN, "x")
    assert low == high / 2 > 0
    after = "() => { const [dots, label] = ['path.dots', '.ref text'].map(at => document.querySelector(at));"
    assert page.evaluate(after + " return Boolean(dots.compareDocumentPosition(label) & 4) }")


def test_axes_of_little_data_have_marks_that_tell_a_scale(site: Site, tab: Tab):
    page = tab.open(site, "/")
    counts, narrow, zeros = page.evaluate(
        "async () => { const { ticks, extent } = await import('/static/scale.js');"
        " return [ticks([0, 2], 12, 'count'), ticks([0.61, 0.69], 1), extent([0, 0, 0])] }"
    )
    assert counts == [0, 1, 2] and len(narrow) >= 2 and all(0.61 <= mark <= 0.69 for mark in narrow)
    assert zeros == [0, 1]


def test_replies_in_json_are_read_by_their_fields(site: Site, tab: Tab):
    page = tab.open(site, "/")
    told = page.evaluate(
        r"""async () => {
          const { readable } = await import("/static/message.js");
          const text = JSON.stringify({ idea: "wider <b>ring</b>", code: "import math\nx = 1\n", tried: [1, 2] });
          const shown = text => [readable(text)].flat(2).map(each => each.textContent);
          return [shown("```json\n" + text + "\n```"), shown("no {JSON}"), shown("")];
        }"""
    )
    assert told[0][0] == "{3 fields}idea: wider <b>ring</b>code: import math\nx = 1\ntried: [1, 2]"
    assert told[0][1].startswith("As it was written```json")
    assert told[1:] == [["no {JSON}", "As it was writtenno {JSON}"], ["(empty)"]]
