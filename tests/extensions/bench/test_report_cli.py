"""The view culmen compare analyze, and runs that culmen compare makes."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from culmen.core.usage import Budget
from culmen.extensions.bench import suite
from culmen.run.study import Study
from culmen.store import views
from tests.cli.conftest import TOML, Place
from tests.extensions.bench.worlds import Noting, note, run
from tests.servers.openai_server import OpenAIServer

DRAWN = importlib.util.find_spec("matplotlib") is not None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A working folder with two runs of one strategy."""
    for seed in range(2):
        notes = (note([1.0, 2.0, None], shown=(1.0,), far=1.0), note([0.5], shown=(2.0,), far=3.0))
        run(
            tmp_path / "runs",
            Noting((0.0, float(seed)), ((notes[0],), (notes[1],))),
            name=f"told-{seed}",
        )
    return Place(tmp_path)


def test_analyze_prints_one_document_and_writes_tables(place: Place):
    done = place.here("compare", "analyze", "told-0", "told-1", "--out", "report", "--json")
    assert (done.code, done.err) == (0, "")
    answer = done.document
    (group,) = answer["groups"]
    assert group["runs"] == ["told-0", "told-1"]
    assert group["unfinished"] == [
        "told-0 (interrupted)",
        "told-1 (interrupted)",
    ]  # no session ended them
    page = place.here("compare", "analyze", "told-0", "told-1")
    assert "Not finished: told-0 (interrupted), told-1 (interrupted)." in page.out + page.err
    tables = {table["name"]: table for table in group["tables"]}
    assert tables["top_m"]["rows"] and not tables["top_m"]["skipped"]
    assert tables["best_by_dollars"]["skipped"] and not tables["best_by_dollars"]["rows"]
    written = {Path(file).relative_to("report").name for file in answer["files"]}
    assert {f"{name}.csv" for name, table in tables.items() if table["rows"]} == {
        name for name in written if name.endswith(".csv")
    }
    with (place.root / "report/told-Noting/top_m.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["improve"]) for row in rows if row["tier"] == "all"] == [1.0, 1.0, 1.0]


def test_plots_exist_exactly_if_they_can_be_drawn(place: Place):
    done = place.here("compare", "analyze", "told-0", "--out", "report", "--json")
    drawn = {path.name for path in (place.root / "report").rglob("*.png")}
    wanted = {"top_m.png", "rank_profile.png", "rank_groups.png", "distance_by_k.png"}
    if DRAWN:
        assert drawn == wanted and not done.document["remark"]
    else:
        assert not drawn and "culmen[plots]" in done.document["remark"]


def test_analyze_tells_people_what_there_is_and_what_is_missing(place: Place):
    done = place.here("compare", "analyze", "told-0")
    assert done.code == 0
    assert "best so far against evaluations" in done.out
    assert "against dollars: skipped, nothing was paid for" in done.out
    assert "culmen compare analyze told-0 --out analysis" in done.out
    assert place.here("compare", "analyze", "nothing").code == 2
    assert not (place.root / "analysis").exists()


@pytest.mark.jail
def test_a_bench_runs_all_cells_and_goes_on_where_it_was_cut_off(place: Place):
    place.task("peak")
    command = (
        "compare",
        "--suite",
        "turboevolve",
        "--tasks",
        "peak",
        "--strategies",
        "best_of_n,map_elites",
        "--seeds",
        "1",
    )
    command += ("--budget", "evaluations=6", "--workers", "2", "--out", "out", "--json")
    cut_off = place.root / "out/peak/best_of_n/seed-0"
    Study.create(
        place.root / "peak", "best_of_n", budget=Budget(evaluations=6), workers=2, run_dir=cut_off
    )
    made = place.here(*command)
    assert made.code == 0, made.err + made.out
    answer = made.document
    assert answer["complete"] is True and not answer["unfinished"]
    assert [Path(run).parts[2] for run in answer["runs"]] == ["best_of_n", "map_elites"]
    (part,) = answer["tasks"]
    for name, row in zip(answer["runs"], part["rows"]):
        status = views.run_status(place.root / name)
        assert status.state == "finished" and 0 < status.evaluations <= 6
        assert (row["runs"], row["best"]) == (1, views.best_result(place.root / name).score)  # pyright: ignore
    before = [views.run_status(place.root / run).events for run in answer["runs"]]
    assert place.here(*command).document["tasks"] == answer["tasks"]
    after = [views.run_status(place.root / run).events for run in answer["runs"]]
    assert after == before  # nothing was run again
    other = place.here(*(word.replace("evaluations=6", "evaluations=7") for word in command))
    assert other.code == 2 and "another budget" in other.document["error"]["what"]


@pytest.mark.jail
def test_a_bench_without_the_clock_inserts_no_timed_loops_and_can_be_made_again(place: Place):
    place.task("peak")
    command = (
        "compare",
        "--suite",
        "turboevolve",
        "--tasks",
        "peak",
        "--strategies",
        "map_elites",
        "--seeds",
        "1",
        "--untimed",
    )
    command += ("--budget", "evaluations=25", "--workers", "1", "--json", "--out")
    texts = list[list[str]]()
    for out in ("one", "two"):
        made = place.here(*command, out)
        assert made.code == 0, made.err + made.out
        (name,) = made.document["runs"]
        assert name.endswith("seed-0-untimed")
        run = place.root / name
        texts.append(
            [
                "\n".join(views.candidate_detail(run, row.id).parts.values())
                for row in views.candidate_rows(run, "old", limit=None)
            ]
        )
    assert texts[0] == texts[1] and len(texts[0]) > 5
    assert not any("refine_by" in text or "seconds=" in text for text in texts[0])


def scripted(body: dict) -> str:
    """A scripted model: other numbers, in the format that the prompt asks for."""
    prompt = body["messages"][-1]["content"]
    asked = re.search(r'"responses" is a list of (\d+) objects', prompt)
    draw = int(hashlib.sha256(prompt.encode()).hexdigest()[:6], 16)
    programs = [
        f"def run():\n    return {(draw + 7919 * n) % 1000 / 100}\n"
        for n in range(int(asked[1]) if asked else 1)
    ]
    if asked is None:
        return f"Another number.\n\n```guess.py\n{programs[0]}```\n"
    return json.dumps(
        {"responses": [{"code": text, "probability": 1 / len(programs)} for text in programs]}
    )


@pytest.mark.slow
@pytest.mark.jail
def test_a_bench_at_equal_dollars(place: Place, monkeypatch: pytest.MonkeyPatch):
    """A priced model over HTTP: every cell stays within its dollars.

    Several candidates per call go further.
    """
    place.task("peak")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    with OpenAIServer(scripted) as server:
        (place.root / "models.toml").write_text(
            f'[providers.local]\nbase_url = "{server.url}"\n'
            '[models.m]\nprovider = "local"\nmax_tokens = 400\nprice = { input = 1.0, output = 1.0 }\n'
        )
        made = place.here(
            *(
                "compare",
                "--suite",
                "turboevolve",
                "--tasks",
                "peak",
                "--strategies",
                "turboevolve,openevolve",
                "--seeds",
                "1",
            ),
            *(
                "--budget",
                "dollars=0.02,evaluations=400",
                "--model",
                "m",
                "--models",
                "models.toml",
                "--workers",
                "2",
            ),
            *("--out", "out", "--json"),
        )
    assert made.code == 0, made.err + made.out
    turbo, plain_one = (views.run_status(place.root / run) for run in made.document["runs"])
    for now in (turbo, plain_one):
        assert now.state == "finished" and 0 < now.usage.dollars <= 0.02
        assert now.usage.unpriced == 0 and now.usage.calls > 0 and now.usage.output_tokens > 0
    assert turbo.candidates / turbo.usage.calls > plain_one.candidates / plain_one.usage.calls


JUDGED = """
def score(output, ask):
    ask(f"Is {output} the number?", role="judge")
    return {"score": -(output - 7.0) ** 2}
"""


@pytest.mark.slow
@pytest.mark.jail
def test_every_cell_pays_for_its_own_replies_in_any_order(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """Cells that ask the same question do not ride on one another's replies.

    Nor on those of an earlier bench.
    """
    place.task(
        "peak",
        evaluator=JUDGED,
        toml=TOML.replace('entry = "run"', 'entry = "run"\nroles = ["judge"]'),
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    costs = []
    with OpenAIServer("no") as server:
        (place.root / "models.toml").write_text(
            f'[providers.local]\nbase_url = "{server.url}"\n'
            '[models.m]\nprovider = "local"\nmax_tokens = 400\nprice = { input = 1.0, output = 1.0 }\n'
        )
        for strategies in ("best_of_n,map_elites", "map_elites,best_of_n"):
            made = place.here(
                *(
                    "compare",
                    "--suite",
                    "turboevolve",
                    "--tasks",
                    "peak",
                    "--strategies",
                    strategies,
                    "--seeds",
                    "2",
                ),
                *(
                    "--budget",
                    "evaluations=8",
                    "--model",
                    "offline,judge=m",
                    "--models",
                    "models.toml",
                ),
                *("--workers", "1", "--out", strategies.partition(",")[0], "--json"),
            )
            assert made.code == 0, made.err + made.out
            runs = [Path(run) for run in made.document["runs"]]
            costs.append(
                {run.parts[2:]: views.run_status(place.root / run).usage.dollars for run in runs}
            )
    assert costs[0] == costs[1] and min(costs[0].values()) > 0


def test_a_bench_knows_its_parts(place: Place):
    unknown = place.here("compare", "--suite", "nothing", "--json")
    assert unknown.code == 2 and "turboevolve, polca" in unknown.document["error"]["next"]
    words = ("compare", "--suite", "turboevolve", "--strategies", "no_such", "--json")
    assert place.here(*words).code == 2
    cells = suite.suite_cells(suite.SUITES["turboevolve"], Path("out"))
    assert len(cells) == len({cell.path for cell in cells}) == 7 * 5 * 5
