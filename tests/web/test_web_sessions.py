"""The Sessions page over runs of the real strategy: a program, the offline agent, and a model on a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.agents.cato import Cato
from culmen.core.brief import Text
from culmen.core.usage import Budget
from culmen.observe.figures import number_text
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog
from culmen.testing.virtual import simulate
from tests.agents.team.test_team_builtin import climber
from tests.agents.team.test_team_runs import PROGRAM, Place
from tests.agents.team.worlds import EXACT, Desks
from tests.web.conftest import Site, Tab, served
from tests.web.test_web_pages import rows

pytestmark = [pytest.mark.browser, pytest.mark.jail]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A run in which a program worked, and one of the offline agent."""
    folder = tmp_path_factory.mktemp("sessions")
    place = Place(folder)
    (folder / "agent.py").write_text("print('I look at the best one first.', flush=True)\n" + PROGRAM)
    command = f"cmd: {sys.executable} {folder / 'agent.py'}"
    for name, agent in (("program", command), ("offline", "offline")):
        place.search(f"runs/{name}", "--agent", agent, "--set", "agents=1", "--budget", "evaluations=40")
    scripted(folder / "runs")
    yield place


@pytest.fixture(scope="module")
def own(place: Place) -> Site:
    return served(place.root / "runs")


def scripted(folder: Path) -> None:
    """Two built-in agents in turn, their model a script, everything else in memory."""
    strategy, budget = Cato(agents=2, agent="builtin"), Budget(evaluations=60, calls=200)
    with SqlJournal.create(
        folder / "scripted", RunMeta("scripted", EXACT, catalog.strategy_config(strategy), budget=budget)
    ) as journal:
        simulate(strategy, EXACT, Desks(model=climber), budget, seed=1, workers=2, journal=journal)


def experiments(run: Path, agent: int) -> list[dict[str, object]]:
    """What the journal says of an agent's experiments."""
    bodies = [note.entry.body for note in views.note_events(run, "experiment")]
    return [body for body in bodies if body["agent"] == agent]


def test_a_program_its_transcript_reports_and_what_it_left(place: Place, own: Site, tab: Tab) -> None:
    run = place.root / "runs/program"
    page = tab.open(own, "/r/program/sessions")
    card = page.locator("[data-key='agent-0']")
    assert page.locator("h2").nth(1).inner_text().startswith("Agent 0: cmd")
    tried = experiments(run, 0)
    table = rows(page, "Experiments of agent 0")
    assert [row[1] for row in table] == [one["path"] for one in tried] and len(table) == 3
    assert [row[2] for row in table] == [str(one["candidate"])[:8] for one in tried]
    scores = [None if row[3] == "–" else float(row[3].replace("−", "-")) for row in table]
    assert scores == [pytest.approx(one["score"]) for one in tried] and any(score is not None for score in scores)
    text = card.inner_text()
    assert "the numbers are given away" in text and "evaluator.py" in text  # a report, and what may not be merged
    commit = place.git("runs/program", "rev-parse", "HEAD").strip()
    assert commit[:12] in text
    added = [line for line in place.git("runs/program", "show", "--format=", commit).splitlines() if line[:1] == "+"]
    drawn = page.locator(".patch li.add").evaluate_all("lines => lines.map(l => l.textContent)")
    assert [line for line in drawn if line[:3] != "+++"] == [line for line in added if line[:3] != "+++"]
    (file,) = (run / "transcripts").iterdir()
    said = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert any("I look at the best one first." in each for each in said)
    page.get_by_text("Transcript of its program").click()
    shown = page.locator("details", has=page.get_by_text("Transcript of its program")).locator(".plain").inner_text()
    assert all(each.strip() in shown for each in said)
    assert page.get_by_role("link", name=str(tried[0]["candidate"])[:8]).count() >= 1


def test_the_offline_agent_step_by_step(place: Place, own: Site, tab: Tab) -> None:
    run = place.root / "runs/offline"
    page = tab.open(own, "/r/offline/sessions")
    steps = [event for event in views.effect_results(run, "session.") if event.entry.body.get("agent") == 0]
    assert page.locator("[data-key='agent-0'] .steps > li").count() == len(steps)
    assert page.locator("[data-key='agent--1']").count() == 0
    told = [event.entry.result.data["text"] for event in steps if event.entry.effect == "session.tool"]  # pyright: ignore
    shown = page.locator("[data-key='agent-0'] .steps .plain").all_inner_texts()
    assert [text.strip() for text in shown] == [str(text).strip() for text in told if text]
    assert len(rows(page, "Experiments of agent 0")) == len(experiments(run, 0)) > 0
    assert "Agent a00 (offline)" in (place.git("runs/offline", "show", "HEAD:reflections.md"))
    page.locator("summary", has_text="Reflections").click()
    assert "Agent a00 (offline)" in page.locator("details", has_text="Reflections").inner_text()


def test_what_the_model_of_a_built_in_agent_said(place: Place, own: Site, tab: Tab) -> None:
    run = place.root / "runs/scripted"
    page = tab.open(own, "/r/scripted/sessions")
    said = [event.entry.result for event in views.effect_results(run, "write")]
    texts = [result.text.strip() for result in said if isinstance(result, Text)]
    assert len(texts) == 10 and all(texts)
    shown = [
        page.locator(f"[data-key='agent-{agent}'] .steps > li", has_text="said").locator(".plain").all_inner_texts()
        for agent in (0, 1)
    ]
    assert [len(each) for each in shown] == [5, 5]  # each to the one whose turn it was
    assert [text.strip() for each in shown for text in each] == texts
    tokens = page.locator("[data-key='agent-0'] .facts").inner_text()
    assert "550" in tokens
    table = rows(page, "Experiments of agent 1")
    assert [row[4] for row in table] == [number_text(one["certified"], 1) for one in experiments(run, 1)]  # pyright: ignore
