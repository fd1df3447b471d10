"""The shop of tau-bench: tools against the authors' replies on all tasks.

Also talks with stand-ins for models.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.models.roles import check_roles
from culmen.tasks import example_path, load, write_new
from tests.servers.model_script import Asked, ToolCall, Turn
from tests.servers.model_server import ModelServer
from tests.tasks.folder import modules, scripted_search

EXPECTED = Path(__file__).with_name("tau_retail_expected.jsonl.gz")
OBEYED = "Carry out all that the customer asks for."


def shop() -> tuple[Any, Any]:
    store, evaluator = modules("tau_retail", "store", "evaluator")
    return store, evaluator


@pytest.mark.slow
def test_the_tools_reply_and_change_rows_as_the_authors_do_on_all_115_tasks() -> None:
    store, evaluator = shop()
    expected = [json.loads(line) for line in gzip.decompress(EXPECTED.read_bytes()).splitlines()]
    assert len(expected) == len(evaluator.TASKS) == 115 and len(store.NAMES) == 16
    for task, wanted in zip(evaluator.TASKS, expected, strict=True):
        fresh = store.Store()
        for action, reply in zip(task["actions"], wanted["replies"], strict=True):
            found = fresh.use(action["name"], action["kwargs"])
            hashed = "sha256:" + hashlib.sha256(found.encode()).hexdigest()
            assert (hashed if reply.startswith("sha256:") else found) == reply, (task["id"], action)
        rows = fresh.rows().items()
        changed = {
            kind: {k: row for k, row in found.items() if row != store.ROWS[kind][k]}
            for kind, found in rows
        }
        assert {kind: found for kind, found in changed.items() if found} == wanted["changed"], task[
            "id"
        ]


def test_what_no_tool_can_do_is_an_error_and_changes_nothing() -> None:
    store, _ = shop()
    fresh = store.Store()
    assert fresh.use("rows", {}).startswith("Unknown action") and fresh.use("use", {}).startswith(
        "Unknown action"
    )
    asked = [
        ("get_order_details", {}),
        ("get_order_details", {"order_id": ["x"]}),
        ("cancel_pending_order", {"order_id": "#W2378156", "reason": "no longer needed"}),
        ("modify_user_address", {"user_id": "yusuf_rossi_9620", "zip": "1"}),
        ("calculate", {"expression": "(" * 500}),
        ("calculate", {"expression": "2 ** 9"}),
        ("find_user_id_by_email", {"email": 3}),
    ]
    assert all(fresh.use(name, arguments).startswith("Error: ") for name, arguments in asked)
    assert fresh.rows() == store.ROWS
    assert fresh.use("calculate", {"expression": "-(2 + 3) * 1.5"}) == "-7.5"


def played(store: Any, evaluator: Any) -> Any:
    """Stand-ins for both models.

    A customer who gives everything at once, and an agent that knows the right actions and
    carries out those that change something only if a certain sentence is in its instructions.
    """
    tasks = {task["instruction"]: task for task in evaluator.TASKS}

    def customer(asked: Asked) -> Turn:
        system = "".join(item.text for item in asked.items if item.role == "system")
        wish = next(wish for wish in tasks if wish in system)
        return Turn(wish if asked.rounds == 0 else evaluator.END)

    def agent(asked: Asked) -> Turn:
        system = "".join(item.text for item in asked.items if item.role == "system")
        task = tasks[next(item.text for item in asked.items if item.role == "user")]
        looks = ("get", "find", "list", "calculate", "think")
        actions = [a for a in task["actions"] if OBEYED in system or a["name"].startswith(looks)]
        done = len(asked.results)
        if done < len(actions):
            return Turn(calls=(ToolCall(actions[done]["name"], actions[done]["kwargs"]),))
        return Turn("Done. " + " ".join(task["outputs"]))

    return lambda asked: agent(asked) if asked.tools else customer(asked)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_new(tmp_path / "task", "tau_retail")
    lines = (tmp_path / "task" / "cases.jsonl").read_text().splitlines()
    (tmp_path / "task" / "cases.jsonl").write_text("\n".join(lines[:3] + lines[10:12]) + "\n")
    return tmp_path


@pytest.mark.slow
def test_a_search_finds_the_sentence_that_the_stand_in_obeys(copied: Path) -> None:
    play = played(*shop())

    def script(asked: Asked) -> Turn:
        return (
            Turn(f"```\n{OBEYED}\n```")
            if "instructions.md" in asked.text and not asked.tools
            else play(asked)
        )

    with ModelServer(script) as server:
        study = scripted_search(server, copied / "task", "best_of_n", copied / "run")
    seen = study.evaluations()
    assert {one.status for one in seen} == {"ok"}, [
        one.feedback for one in seen if one.status != "ok"
    ][:1]
    assert (
        seen[0].score == 0.0 and "Not as it should be in the database: orders" in seen[0].feedback
    )
    assert study.status.best is not None and study.status.best.score == 1.0
    assert all({ask.role for ask in one.asked} == {"agent", "user"} for one in seen if one.asked)


def test_the_roles_that_are_missing_are_named() -> None:
    with pytest.raises(UserError, match="no model is named for agent, user"):
        check_roles(load(example_path("tau_retail")), None)
