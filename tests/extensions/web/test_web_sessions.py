"""The Sessions page over runs of the real strategy.

A program, the offline agent, and a model on a script.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from culmen.core.brief import Text
from culmen.core.usage import Budget
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.page import sessions_page
from culmen.extensions.web.runs import Digest
from culmen.extensions.web.server import encode_document
from culmen.report.figures import number_text
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.testing.virtual import simulate
from tests.extensions.agents.team.test_team_builtin import climber
from tests.extensions.agents.team.test_team_runs import PROGRAM, Place
from tests.extensions.agents.team.worlds import EXACT, Desks
from tests.extensions.web import worlds
from tests.extensions.web.conftest import Site, Tab, served
from tests.extensions.web.test_web_pages import rows

pytestmark = [pytest.mark.browser, pytest.mark.jail]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A run in which a program worked, and one of the offline agent."""
    folder = tmp_path_factory.mktemp("sessions")
    place = Place(folder)
    (folder / "agent.py").write_text(
        "print('I look at the best one first.', flush=True)\n" + PROGRAM
    )
    command = f"cmd: {sys.executable} {folder / 'agent.py'}"
    for name, agent in (("program", command), ("offline", "offline")):
        place.search(
            f"runs/{name}", "--agent", agent, "--set", "agents=1", "--budget", "evaluations=40"
        )
    scripted(folder / "runs")
    yield place


@pytest.fixture(scope="module")
def own(place: Place) -> Site:
    return served(place.root / "runs")


def scripted(folder: Path) -> None:
    """Two built-in agents in turn, their model a script, everything else in memory."""
    strategy, budget = Cato(agents=2, agent="builtin"), Budget(evaluations=60, calls=200)
    with SqlJournal.create(
        folder / "scripted",
        RunMeta("scripted", EXACT, catalog.strategy_config(strategy), budget=budget),
    ) as journal:
        simulate(strategy, EXACT, Desks(model=climber), budget, seed=1, workers=2, journal=journal)


def experiments(run: Path, agent: int) -> list[dict[str, object]]:
    """The journal's notes of an agent's experiments."""
    bodies = [note.entry.body for note in views.note_events(run, "experiment")]
    return [body for body in bodies if body["agent"] == agent]


def read(page: Any, agent: int) -> Any:
    """Unfold an agent and all its messages; its card."""
    page.get_by_role("button", name=f"Read agent {agent}").click()
    card = page.locator(f"[data-key='agent-{agent}']")
    card.get_by_role("button", name="Unfold these", exact=True).click()
    card.locator(".message [aria-expanded=true]").first.wait_for()
    return card


def test_a_program_its_transcript_reports_and_what_it_left(
    place: Place, own: Site, tab: Tab
) -> None:
    run = place.root / "runs/program"
    page = tab.open(own, "/r/program/sessions")
    assert page.locator("h2").nth(1).inner_text().startswith("Agent 0: cmd")
    assert page.locator(".message").count() == 0  # folded at first
    card = read(page, 0)
    tried = experiments(run, 0)
    table = rows(page, "Experiments of agent 0")
    assert [row[1] for row in table] == [one["path"] for one in tried] and len(table) == 3
    assert [row[2] for row in table] == [str(one["candidate"])[:8] for one in tried]
    scores = [None if row[3] == "–" else float(row[3].replace("−", "-")) for row in table]
    assert scores == [pytest.approx(one["score"]) for one in tried] and any(
        score is not None for score in scores
    )
    text = card.inner_text()
    assert (
        "the numbers are given away" in text and "evaluator.py" in text
    )  # a report, and what may not be merged
    commit = place.git("runs/program", "rev-parse", "HEAD").strip()
    assert commit[:12] in text
    added = [
        line
        for line in place.git("runs/program", "show", "--format=", commit).splitlines()
        if line[:1] == "+"
    ]
    drawn = page.locator(".patch li.add").evaluate_all("lines => lines.map(l => l.textContent)")
    assert [line for line in drawn if line[:3] != "+++"] == [
        line for line in added if line[:3] != "+++"
    ]
    (file,) = (run / "transcripts").iterdir()
    said = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert any("I look at the best one first." in each for each in said)
    assert all(each.strip() in text for each in said)  # its own words, among the messages
    assert page.get_by_role("link", name=str(tried[0]["candidate"])[:8]).count() >= 1


def test_the_offline_agent_step_by_step(place: Place, own: Site, tab: Tab) -> None:
    run = place.root / "runs/offline"
    page = tab.open(own, "/r/offline/sessions")
    steps = [
        event
        for event in views.effect_results(run, "session.")
        if event.entry.body.get("agent") == 0
    ]
    card = read(page, 0)
    assert card.locator(".message").count() == len(steps)
    assert page.locator("[data-key='agent--1']").count() == 0
    told = [
        event.entry.result.data["text"] for event in steps if event.entry.effect == "session.tool"
    ]  # pyright: ignore
    shown = card.locator(".message.tool .plain").all_inner_texts()
    assert [text.strip() for text in shown] == [str(text).strip() for text in told if text]
    assert len(rows(page, "Experiments of agent 0")) == len(experiments(run, 0)) > 0
    assert "Agent a00 (offline)" in (place.git("runs/offline", "show", "HEAD:reflections.md"))
    page.locator("summary", has_text="Reflections").click()
    assert "Agent a00 (offline)" in page.locator("details", has_text="Reflections").inner_text()


def test_what_the_model_of_a_built_in_agent_said(place: Place, own: Site, tab: Tab) -> None:
    run = place.root / "runs/scripted"
    page = tab.open(own, "/r/scripted/sessions")
    said = [event.entry.result for event in views.effect_results(run, "write")]
    texts = [result.text for result in said if isinstance(result, Text)]
    assert len(texts) == 10 and all(texts)
    assert page.locator(".message").count() == 0
    bodies = [read(page, agent).locator(".message.agent .message-body") for agent in (0, 1)]
    assert [each.count() for each in bodies] == [5, 5]  # each to the one whose turn it was
    for body, text in zip([each for some in bodies for each in some.all()], texts, strict=True):
        shown = body.inner_text()
        for line in text.splitlines():
            call = json.loads(line) if line[:1] == "{" else {}
            wanted = call.values() if call else [] if line[:3] == "```" else [line.strip()]
            texts_in = [
                each for value in wanted for each in (value if isinstance(value, list) else [value])
            ]
            assert all(str(each) in shown for each in texts_in), (line, shown)
        assert '{"tool"' not in shown and "```" not in shown
    tokens = page.locator("[data-key='agent-0'] .facts").inner_text()
    assert "550" in tokens
    table = rows(page, "Experiments of agent 1")
    assert [row[4] for row in table] == [
        number_text(one["certified"], 1) for one in experiments(run, 1)
    ]  # pyright: ignore


def test_a_long_session_is_read_by_outline_keys_and_links(tmp_path: Path, tab: Tab) -> None:
    """Thousands of messages: a page of them at a time, texts when they are unfolded."""
    run = worlds.conversation(tmp_path)
    worlds.agents(tmp_path)
    doc = sessions_page(Digest(run), {"brief": "1"})
    steps = doc["agents"][0]["steps"]
    assert len(steps) == 4 * worlds.TURNS + 2 and len(encode_document(doc)) < 1_200_000
    (one, *_) = sessions_page(Digest(run), {"agent": "0", "from": "1"})["steps"]
    assert (
        "def radius()" in one["text"]
        and "text" not in steps[1]
        and steps[1]["chars"] == len(one["text"])
    )
    site = served(tmp_path)
    page = tab.open(site, "/r/conversation/sessions")
    card, body = page.locator("[data-key='agent-0']"), page.locator("[aria-current] .message-body")
    assert page.locator(".message").count() == 0 and "1,000" in card.locator(".facts").inner_text()
    page.get_by_role("button", name="Read agent 0").click()
    assert card.locator(".message").count() == 100 and card.locator(".message-body").count() == 0
    assert card.locator(".outline li").count() == 26
    turn = card.locator("[data-key='turn-5']").inner_text()
    assert turn.split("\n") == [
        "Turn 5 1 error",
        "$0.0320",
        "Turn 5: I widen `RADIUS`.",
        "agent culmen write command 1 experiment",
    ]
    assert "write 1,000, command 1,000" in card.locator(".facts").inner_text()
    card.get_by_role("button", name="Next").click()
    card.get_by_text("1 of 4,002").wait_for()
    page.keyboard.press("j")
    card.get_by_text("2 of 4,002").wait_for()
    assert (
        body.locator(".k-keyword", has_text="def").count() == 1
        and body.locator(".json").count() == 1
    )
    assert "two lines\nof a note" in body.locator(".json .plain").inner_text()
    page.keyboard.press("j")
    page.keyboard.press("j")
    card.get_by_text("4 of 4,002").wait_for()
    json_box = body.locator(".json").first
    assert (
        json_box.locator("> summary").inner_text() == "{3 fields}"
        and "\\n" not in json_box.inner_text()
    )
    assert body.locator(".plain").inner_text() == "first\nsecond of 1"
    page.keyboard.press("k")
    card.get_by_text("3 of 4,002").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.locator(".message[aria-current]").get_by_role("button", name="Copy").click()
    assert page.evaluate("() => navigator.clipboard.readText()") == "written"
    colours = {
        who: card.locator(f".message.{who} strong").first.evaluate("e => getComputedStyle(e).color")
        for who in ("agent", "tool", "culmen")
    }
    assert len(set(colours.values())) == 3
    # a link to a message far down
    page = tab.open(site, "/r/conversation/sessions?agent=0&at=2005")
    card.get_by_text("2,004 of 4,002").wait_for()
    assert "second of 501" in body.inner_text() and card.locator(".message").count() == 100
    card.locator(".outline button", has_text="Turn 510").click()
    page.locator("[aria-current] .message-body", has_text="Turn 510: I widen RADIUS.").wait_for()
    took = page.evaluate(
        "async () => { const begun = performance.now();"
        " document.querySelector('.talk-bar button:nth-child(2)').click();"
        " await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
        " return performance.now() - begun; }"
    )
    assert took < 2_000
    page = tab.open(site, "/r/conversation/sessions?text=turn 777:")
    page.locator(".message-head", has_text="Turn 777: I widen").wait_for()
    assert card.locator(".message").count() == 1 and "4,001 steps left out" in card.inner_text()
    tab.resize(390)


def test_rollouts_are_read_as_sessions_are(tmp_path: Path, tab: Tab) -> None:
    worlds.rollouts(tmp_path)
    page = tab.open(served(tmp_path), "/r/rollouts/sessions")
    assert page.locator(".rollout").count() == 2 and page.locator(".message").count() == 0
    page.get_by_role("button", name="failed", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.rollout').length === 1")
    page.get_by_role("button", name="Read the rollout on two").click()
    messages = page.locator(".message-head")
    shown = [" ".join(text.split()) for text in messages.all_inner_texts()]
    assert shown == [
        "0:00 user Write the answer.",
        "0:02 agent thinks It is in the hint.",
        "0:02 agent I look.",
        "0:02 tool read path: hint.txt",
        "0:02 tool result 42",
        "0:03 system 3 events left out",
    ]
    outline = page.locator(".outline").inner_text()
    assert "agent ×2" in outline and "read" in outline and "system" in outline
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.locator("[aria-current] .message-body", has_text="It is in the hint.").wait_for()
    assert page.get_by_text("the answer is wrong").is_visible()


def test_hostile_sessions_are_shown_as_text(tmp_path: Path, tab: Tab) -> None:
    worlds.hostile(tmp_path)
    page = tab.open(served(tmp_path), "/r/hostile/sessions")
    tab.resize(390)
    card = read(page, 0)
    assert worlds.HOSTILE[0] in card.locator(".message-body").first.inner_text()
    assert page.evaluate(
        "() => [window.pwned, document.querySelectorAll('main img, main script, main style').length]"
    ) == [
        None,
        0,
    ]
    tab.resize(390)
