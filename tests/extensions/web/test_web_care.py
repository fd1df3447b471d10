"""Hostile texts stay texts; pages can be read, heard and used without a mouse.

They are light and dark, wide and narrow.
"""

from __future__ import annotations

from typing import Any

import pytest

from culmen.store import views
from tests.extensions.web.conftest import PAGES, Site, Tab
from tests.extensions.web.worlds import EVERYTHING

pytestmark = pytest.mark.browser

EVERY = [
    "/",
    "/compare",
    *(f"/r/hostile/{page}" for page in PAGES),
    *(f"/r/polca-1/{page}" for page in PAGES),
    *(f"/r/turboevolve-1/{page}" for page in ("memory", "mechanism")),
    *(f"/r/{name}/{page}" for name in ("advisor", "pace") for page in ("memory", "mechanism")),
    *("/r/gepa-1/memory", "/r/agents/sessions", "/r/polca-1/candidate?id=best&against=parent"),
    *(f"/r/empty/{page}" for page in PAGES if page != "candidate"),
]


@pytest.mark.slow
def test_nothing_a_candidate_or_a_model_says_becomes_markup(site: Site, tab: Tab):
    """Texts, names of parts, operators, models, feedback, metrics, and all other texts.

    The others are artifacts, prompts, notes, hints, settings.
    """
    seen = ""
    for name in PAGES:
        page = tab.open(site, f"/r/hostile/{name}")
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true })")
        for chart in page.locator("c-chart").all():
            chart.focus()
            page.keyboard.press("ArrowRight")
        assert page.evaluate("() => window.pwned") is None, name
        odd = "main img, main script, main style, main iframe, main [onerror], main [onload], main a[href^='javascript']"  # noqa: E501
        assert page.locator(odd).count() == 0, name
        seen += page.evaluate("() => document.body.textContent")
    child = views.candidate_rows(site.run("hostile"), "new", limit=1)[0].id
    page = tab.open(site, f"/r/hostile/candidate?id={child}&against=parent")
    assert (
        page.evaluate("() => window.pwned") is None
        and page.locator(".code.diff li.add").count() == 1
    )
    assert seen.count(EVERYTHING) > 20  # they are all there to read
    for path in ("/", "/compare"):
        assert tab.open(site, path).evaluate("() => window.pwned") is None


def test_the_policy_is_in_force(site: Site, tab: Tab):
    """Even a mistake of the pages could not turn a text into markup or run a script in the page."""
    page = tab.open(site, "/")
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } }"
    )
    assert refused
    page.evaluate(
        "() => { const made = document.createElement('a'); document.body.append(made);"
        " try { made.setAttribute('onclick', 'window.pwned = 1') } catch {} made.click(); made.remove() }"
    )
    assert page.evaluate("() => window.pwned") is None
    assert tab.complaints  # the browser says what it refused
    tab.complaints.clear()


def test_an_empty_run_says_why_there_is_nothing(site: Site, tab: Tab):
    for name in PAGES:
        if name == "candidate":
            continue
        page = tab.open(site, f"/r/empty/{name}")
        text = page.locator("main").inner_text()
        assert len(text) > 30 and not any(
            odd in text for odd in ("undefined", "NaN", "null", "[object")
        ), name
        for card in page.locator("main .card:has(h2):visible").all():
            assert len(card.inner_text()) > len(card.locator("h2").first.inner_text()) + 10, name


def test_what_is_not_there_is_said(site: Site, tab: Tab):
    page = tab.open(site, "/")
    page.evaluate("() => { location.hash = '/r/polca-1/candidate?id=ffff' }")
    page.wait_for_selector("main .empty")
    assert "there is no candidate" in page.locator("main").inner_text()
    page.evaluate("() => { location.hash = '/r/nowhere/overview' }")
    page.wait_for_function(
        "() => document.querySelector('main').innerText.includes('there is no run')"
    )
    page.goto("about:blank")  # whatever is still asked for is over
    tab.complaints[:] = [
        text
        for text in tab.complaints
        if "status of 404" not in text and "status of 400" not in text
    ]


CONTRAST = """() => {
  const parse = text => { const c = document.createElement('canvas'); c.width = c.height = 1;
    const g = c.getContext('2d', { willReadFrequently: true }); g.fillStyle = text; g.fillRect(0, 0, 1, 1);
    return [...g.getImageData(0, 0, 1, 1).data]; };
  const memo = new Map(); const colour = t => memo.get(t) || memo.set(t, parse(t)).get(t);
  const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const light = ([r, g, b]) => {
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b) };
  const ground = e => { for (; e; e = e.parentElement) { const c = colour(getComputedStyle(e).backgroundColor);
    if (c[3] > 250) return c } return [255, 255, 255, 255] };
  const bad = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim(); const e = walk.currentNode.parentElement;
    if (!text || !e.checkVisibility() || e.closest('.hidden, noscript, title, option')) continue;
    const style = getComputedStyle(e); const ink = colour(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x); const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize); const large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    const what = `${text.slice(0, 30)} ${e.className.baseVal ?? e.className} ${ratio.toFixed(2)}`;
    if (ratio < (large ? 3 : 4.5) - 0.01) bad.add(what);
  }
  return [...bad];
}"""

NAMES = """() => {
  const named = e => (e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || e.title || '').trim();
  const bad = [];
  for (const e of document.querySelectorAll(
    'a, button, input, select, textarea, [role=region], .scroll, c-chart, svg[role]'))
    if (e.checkVisibility() && !named(e)) bad.push(e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) bad.push(e.outerHTML);
  for (const e of document.querySelectorAll('table')) if (!e.caption) bad.push('a table without a caption');
  for (const e of document.querySelectorAll('th')) if (!e.scope) bad.push(e.outerHTML);
  for (const e of document.querySelectorAll('[id]')) if (document.querySelectorAll('#' + CSS.escape(e.id)).length > 1)
    bad.push('twice #' + e.id);
  if (document.querySelectorAll('h1').length !== 1) bad.push('not one h1');
  if (!document.documentElement.lang) bad.push('no language');
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth + 1) bad.push('the page is too wide: ' + wide);
  return bad;
}"""


@pytest.mark.slow
def test_every_page_is_legible_named_and_fits(site: Site, tab: Tab):
    """Light and dark; on a desk, and on a telephone.

    On a telephone only tables may scroll sideways inside their boxes.
    """
    for path in EVERY:
        page = tab.open(site, path)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            assert page.evaluate(CONTRAST) == [], f"{path}, {theme}"
        assert page.evaluate(NAMES) == [], path
        tab.resize(390)
        tab.resize(1280, 900)


def test_the_theme_is_chosen_and_kept(site: Site, tab: Tab):
    tab.page.emulate_media(color_scheme="light")
    page = tab.open(site, "/")
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    bright = page.evaluate(ground)
    for _ in range(2):  # as the system, light, dark
        page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(ground)
    assert dark != bright
    page.reload()
    page.wait_for_selector("[data-ready]")
    assert page.evaluate(ground) == dark


@pytest.mark.slow
def test_everything_can_be_reached_by_keyboard(site: Site, tab: Tab):
    page = tab.open(site, "/r/polca-1/overview")
    focused: Any = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText?.trim() || ''"  # noqa: E501
    page.reload()
    page.wait_for_selector("c-chart svg")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the page"
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(focused))
        if reached[-1].startswith("Scores against"):
            break
    for wanted in ("Candidates", "Can I trust it", "All runs", "Evaluations", "Late half"):
        assert any(wanted in name for name in reached), wanted
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").inner_text().startswith(("Evaluations: ", "evaluation "))
    page.keyboard.press("Tab")
    assert not page.locator(".tip").is_visible()
    page.get_by_role("link", name="Candidates").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector('main[data-key="polca-1/candidates"]')
    page.wait_for_function(
        "() => document.activeElement.tagName === 'H1'"
    )  # where a screen reader goes on


def test_the_pointer_is_told_what_it_is_on(site: Site, tab: Tab):
    page = tab.open(site, "/r/polca-1/overview")
    box = page.locator("c-chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator(".tip").inner_text()
    assert tip.startswith(("Evaluations:", "evaluation ")) and "expected of the leader" in tip
    assert "confirmed" not in tip
    page.mouse.move(0, 0)
    page.wait_for_function("() => document.querySelector('.tip').hidden")
