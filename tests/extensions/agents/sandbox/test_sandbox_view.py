"""Files that agents read, and the programs they read them with, as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from culmen.extensions.agents.messages import AnswerExperiments, ExperimentRow
from culmen.extensions.agents.sandbox import worktree
from culmen.extensions.agents.sandbox.view import SharedView
from tests.extensions.agents.sandbox.grounds import everything


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    view = SharedView(tmp_path / "view", {"task": "t", "direction": "min"})
    view.build_from(ANSWERS)
    worktree.create_work_tree(
        tmp_path / "tree", 0, worktree.tree_files({"TASK.md": "t"}), None, tmp_path / "view"
    )
    return tmp_path / "tree"


ROWS = (
    ExperimentRow(0, -1, "", "c0", score=9.0, note="seed"),
    ExperimentRow(1, -1, "", "c9", score=8.0),
    ExperimentRow(
        2, 0, "a00-1", "c1", "candidates/a00/x.py", score=3.0, certified=7.0, note="spiral"
    ),
    ExperimentRow(3, 0, "a00-2", "c2", score=5.0, metrics={"size": 4.0}),
    ExperimentRow(4, 0, "a00-3", "", status="error", reason="crash"),
)
ANSWERS = [
    AnswerExperiments(-1, ROWS[:2], {"c0": {"main.py": "a\n"}}),
    AnswerExperiments(0, ROWS[2:3], {"c1": {"main.py": "a\nb\n"}}, leaderboard="# Best\n"),
    AnswerExperiments(
        0, ROWS[3:], {"c2": {"one.py": "1", "deep/two.py": "2"}}, closing="experiments"
    ),
]


def call(tree: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "run_experiments.py", *words],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def numbers(output: str) -> list[int]:
    return [json.loads(line)["n"] for line in output.splitlines()]


def test_view_history_queries(tree: Path) -> None:
    def history(*words: str) -> list[int]:
        return numbers(call(tree, "--history", *words))

    assert history() == [0, 1, 2, 3, 4]
    assert history("--top", "3") == [3, 2, 1]  # less is better, and the certified score counts
    assert numbers(call(tree, "--best")) == [3]
    assert history("--last", "2") == [3, 4] and history("--last", "0") == []
    assert history("--filter", "status=ok", "--filter", "score<6") == [2, 3]
    assert history("--filter", "note~spir.l") == [2]
    assert history("--filter", "agent=-1") == [0, 1] and history("--filter", "agent != -1") == [
        2,
        3,
        4,
    ]
    assert history("--filter", "metrics.size>=4") == [3]
    assert history("--filter", "certified=7") == [2]
    assert call(tree, "--history", "--fields", "n,note", "--top", "1") == '{"n": 3, "note": ""}\n'
    assert (
        "not a filter"
        in subprocess.run(
            [sys.executable, "run_experiments.py", "--history", "--filter", "best"],
            cwd=tree,
            capture_output=True,
            text=True,
        ).stderr
    )
    assert (
        call(tree, "--history", "--diff", "c0", "a00-1")
        == "--- c0/main.py\n+++ a00-1/main.py\n@@ -1 +1,2 @@\n a\n+b\n"
    )
    assert call(tree, "--history", "--show", "c2") == "=== deep/two.py ===\n2\n=== one.py ===\n1\n"
    assert (
        "there is no candidate"
        in subprocess.run(
            [sys.executable, "run_experiments.py", "--history", "--show", "c7"],
            cwd=tree,
            capture_output=True,
            text=True,
        ).stderr
    )


def test_view_rows_have_every_field(tree: Path) -> None:
    rows = [json.loads(line) for line in (tree / "past_experiments.jsonl").read_text().splitlines()]
    assert all(set(row) == set(ExperimentRow.__struct_fields__) for row in rows)
    assert rows[4]["status"] == "error" and rows[4]["score"] is None
    assert (tree / "leaderboard.md").read_text() == "# Best\n"
    assert (tree / ".culmen/closing/a00").read_text() == "experiments"


def test_view_made_again_is_the_same(tmp_path: Path) -> None:
    one = SharedView(tmp_path / "one", {"direction": "max"})
    one.build_from([])
    for answer in (*ANSWERS, *ANSWERS):  # a second time changes nothing
        one.publish_answer(answer)
    two = SharedView(tmp_path / "two", {"direction": "max"}, keep=True)
    two.build_from(ANSWERS)
    assert everything(one.folder) == everything(two.folder)
    (two.folder / "past_experiments.jsonl").write_text("forged")
    (two.folder / "results/a00-1.json").unlink()
    (two.folder / "stranger").write_text("x")
    two.restore()
    assert everything(one.folder) == everything(two.folder)
    assert one.has_experiment("a00-1") and not one.has_experiment("a00-9")


def test_view_odd_names_stay_inside(tmp_path: Path) -> None:
    view = SharedView(tmp_path / "view", {})
    parts = {"../c": {"main.py": "x"}, "ok": {"../y": "y", "/z": "z", "a": "1", "a/b": "2"}}
    view.build_from([AnswerExperiments(0, (ExperimentRow(1, 0, "../../x", "../c"),), parts)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["view"]
    assert [path.name for path in (tmp_path / "view/programs").iterdir()] == ["ok"]


def test_view_client_asks_and_waits(tree: Path) -> None:
    """Many files at once, answered out of order, printed in order; then one that is turned away."""
    for n in range(300):
        (tree / f"candidates/a00/{n:03d}.py").write_text("x")
    view = SharedView(tree.parent / "view", {"direction": "min"})
    view.build_from(ANSWERS)
    most, stop = 0, threading.Event()

    def serve() -> None:
        nonlocal most
        while not stop.is_set():
            for name in [name for name in os.listdir(tree / "queue") if not name.startswith(".")]:
                paths = json.loads((tree / "queue" / name).read_text())["paths"]
                (tree / "queue" / name).unlink()
                most = max(most, len(paths))
                for n, path in reversed(list(enumerate(paths))):
                    status = "refused" if path.endswith("299.py") else "ok"
                    view.publish_answer(
                        AnswerExperiments(
                            0,
                            (
                                ExperimentRow(
                                    9, 0, f"a00-{name[:-5]}.{n}", "c", path, status=status
                                ),
                            ),
                        )
                    )

    server = threading.Thread(target=serve)
    server.start()
    try:
        names = [f"candidates/a00/{n:03d}.py" for n in range(300)]
        out = call(tree, *names, "--note", "all", code=3)
        paths = [json.loads(line)["path"] for line in out.splitlines()]
        assert paths == names and most == 200
        subprocess.run(
            [sys.executable, "../../run_experiments.py", "000.py"],
            cwd=tree / "candidates/a00",
            check=True,
            timeout=60,
        )
        (ticket,) = call(tree, "--no-wait", "candidates/a00/000.py").split()
        assert json.loads(call(tree, "--wait", ticket))["ticket"] == ticket
    finally:
        stop.set()
        server.join()


def test_view_client_requests(tree: Path) -> None:
    call(
        tree,
        "--no-wait",
        "candidates/a00/x.py",
        "nowhere/../TASK.md",
        "--note",
        "n",
        "--parents",
        "c0,c1",
    )
    call(tree, "--report", "weak")
    call(tree, "--finish", "done")
    requests = [json.loads(path.read_text()) for path in sorted((tree / "queue").glob("*.json"))]
    assert requests[0] == {
        "paths": ["candidates/a00/x.py", "TASK.md"],
        "note": "n",
        "parents": ["c0", "c1"],
    }
    assert requests[1:] == [{"report": "weak"}, {"finish": "done"}]
    call(tree, code=2)
    assert "FILE is a candidate" in call(tree, "--help")
