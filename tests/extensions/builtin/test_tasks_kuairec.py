"""Sequential recommendation without torch: metrics, the log's format, attacks.

Metrics are held against brute force; the attacks are on the scorer.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks import example_path, load, surface_fault
from tests.tasks.folder import BASELINES, modules

interactions, evaluator, baseline, outside = modules(
    "kuairec", "interactions", "evaluator", "baseline", "outside"
)
FOLDER = example_path("kuairec")


def brute(scores: list[float], target: int) -> dict[str, float]:
    """One user's metrics by sorting: of equal scores the target comes last."""
    order = sorted(range(len(scores)), key=lambda video: (-scores[video], video == target))
    rank = order.index(target) + 1
    top = order[:10]
    gain = sum((video == target) / math.log2(place + 2) for place, video in enumerate(top))
    return {"ndcg_at_10": gain, "hit_rate_at_10": float(target in top), "mrr": 1 / rank}


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_metrics_are_what_sorting_finds(seed: int, users: int, catalogue: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, (users, catalogue)).astype(np.float32)  # many ties
    targets = rng.integers(catalogue, size=users)
    found = evaluator.judged(evaluator.ranked(scores, targets), 1.0, catalogue)
    each = [brute(row.tolist(), int(target)) for row, target in zip(scores, targets)]
    for name in ("ndcg_at_10", "hit_rate_at_10", "mrr"):
        assert found["metrics"][name] == pytest.approx(
            np.mean([one[name] for one in each]), rel=1e-9
        )
    means = [found["metrics"][name] for name in ("ndcg_at_10", "hit_rate_at_10", "mrr")]
    assert found["score"] == pytest.approx(np.mean(means))


def test_ndcg_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(3)
    scores, targets = (
        rng.permuted(np.tile(np.arange(30.0), (50, 1)), axis=1),
        rng.integers(30, size=50),
    )
    relevant = np.eye(30)[targets]
    found = evaluator.judged(evaluator.ranked(scores, targets), 1.0, 30)["metrics"]
    assert found["ndcg_at_10"] == pytest.approx(metrics.ndcg_score(relevant, scores, k=10))
    mrr = np.mean(
        [
            metrics.label_ranking_average_precision_score(r[None], s[None])
            for r, s in zip(relevant, scores)
        ]
    )
    assert found["mrr"] == pytest.approx(mrr)


def test_a_history_ends_before_its_target() -> None:
    sequences = interactions.sequences(*interactions.generate(seed=2, users=30, videos=40, mean=12))
    videos, seconds, offsets, catalogue = sequences
    assert all(np.all(np.diff(seconds[low:high]) >= 0) for low, high in itertools.pairwise(offsets))
    for back in (1, 2):
        known, _, ends, targets, count = evaluator.before(sequences, back, 5)
        assert count == catalogue and len(targets) == 30
        for user in range(30):
            whole = videos[offsets[user] : offsets[user + 1]].tolist()
            assert targets[user] == whole[-back]
            assert known[ends[user] : ends[user + 1]].tolist() == whole[:-back][-5:]


HEADER = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"


def write_log(path: Path, *columns: Any) -> None:
    """A log with the published columns; those that are not used hold zeros."""
    rows = (f"{user},{video},0,0,0,0,{second:.3f},0" for user, video, second in zip(*columns))
    path.write_text("\n".join([HEADER, *rows]) + "\n")


# -- the log
# -------------------------------------------------------------------------------------------------------


def test_a_log_survives_its_file_and_preparation(tmp_path: Path) -> None:
    log = interactions.generate(seed=4, users=20, videos=30, mean=10)
    again, other = (
        interactions.generate(seed=seed, users=20, videos=30, mean=10) for seed in (4, 5)
    )
    assert all(np.array_equal(a, b) for a, b in zip(log, again)) and len(log[0]) != len(other[0])
    write_log(tmp_path / "log.csv", *log)
    first = interactions.load(tmp_path / "log.csv")
    direct = interactions.sequences(*log)
    assert all(np.allclose(a, b, atol=1e-3) for a, b in zip(first[:3], direct[:3]))
    line = [sys.executable, str(FOLDER / "interactions.py"), "prepare", "log.csv", "log.npz"]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    small = interactions.load(tmp_path / "log.npz")
    assert all(np.allclose(a, b) for a, b in zip(first[:3], small[:3])) and first[3] == small[3]


def test_users_with_too_few_views_and_rows_without_time_are_left_out(tmp_path: Path) -> None:
    rows = [
        "user_id,video_id,timestamp",
        "7,50,4",
        "7,40,1",
        "7,50,2",
        "7,60,3",
        "8,40,1",
        "8,40,",
        "",
    ]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    videos, seconds, offsets, catalogue = interactions.load(tmp_path / "log.csv")
    assert videos.tolist() == [0, 1, 2, 1] and seconds.tolist() == [1, 2, 3, 4]
    assert offsets.tolist() == [0, 4] and catalogue == 3


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        ("", "no column user_id, video_id, timestamp"),
        ("user_id,video_id\n1,2\n", "no column timestamp"),
        ("user_id,video_id,timestamp\n1,2\n", ":2: 2 fields"),
        ("user_id,video_id,timestamp\n1,b,3\n", ":2: '1, b, 3' are not"),
        ("user_id,video_id,timestamp\n1,2,inf\n", ":2: the timestamp is inf"),
        ("user_id,video_id,timestamp\n1,2,\n", "no rows with a timestamp"),
        ("user_id,video_id,timestamp\n1,2,3\n", "no user has 4 views"),
    ],
)
def test_malformed_logs_are_told_in_a_sentence(tmp_path: Path, content: str, piece: str) -> None:
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(interactions.LogError, match=piece):
        interactions.load(tmp_path / "log.csv")
    with pytest.raises(interactions.LogError, match="cannot be read"):
        interactions.load(tmp_path / "none.csv")
    (tmp_path / "log.npz").write_text("no archive")
    with pytest.raises(interactions.LogError, match="not a file that prepare wrote"):
        interactions.load(tmp_path / "log.npz")


def test_the_papers_settings_ask_for_the_papers_log(tmp_path: Path) -> None:
    """Without torch, before anything is read: which file is missing, and where it comes from."""
    folder = light(tmp_path / "mine")
    line = [sys.executable, str(folder / "outside.py"), "--settings", "paper"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        f"{folder / 'data' / 'interactions.npz'} is missing" in done.stderr
        and "https://kuairec.com" in done.stderr
    )
    assert "interactions.py prepare" in done.stderr


def test_another_log_than_the_published_one_is_noted(tmp_path: Path) -> None:
    write_log(tmp_path / "log.csv", *interactions.generate(seed=4, users=20, videos=30, mean=10))
    line = [sys.executable, str(FOLDER / "interactions.py"), "prepare", "log.csv", "log.npz"]
    done = subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "20 users" in done.stdout and "not the published big_matrix.csv" in done.stdout
    gone = subprocess.run(
        [*line[:3], "none.csv", "x.npz"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert (
        gone.returncode == 1
        and "none.csv cannot be read" in gone.stderr
        and "kuairec.com" in gone.stderr
    )


# -- in the jail
# ---------------------------------------------------------------------------------------------------


def light(folder: Path, log: bool = False) -> Path:
    """A copy of the task for programs that need no torch, perhaps with a log in its data folder."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(
        text.replace('packages = ["numpy", "torch"]', 'packages = ["numpy"]')
    )
    if log:
        (folder / "data").mkdir()
        made = interactions.generate(seed=9, users=20, videos=25, mean=8)
        write_log(folder / "data" / "big_matrix.csv", *made)
    return folder


def judge(folder: Path, *programs: str) -> list[Observation]:
    task = load(folder)

    async def all_of_them() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            candidates = [
                Candidate.of({**task.seeds[0], "training.py": program}) for program in programs
            ]
            return [await backend.evaluate(candidate, task.cases[0], 1) for candidate in candidates]
        finally:
            await backend.close()

    return asyncio.run(all_of_them())


def served(learn: str) -> str:
    return (BASELINES / "kuairec.py").read_text() + f"\n\nfit, rank = served({learn})\n"


ANSWER = """
import numpy as np
def fit(videos, seconds, offsets, catalogue, settings):
    global size
    size = catalogue
def rank(videos, seconds, offsets):
    users = len(offsets) - 1
    return {answer}
"""


def test_programs_are_ranked_by_what_came_next(tmp_path: Path) -> None:
    popular, markov, same, knowing = judge(
        light(tmp_path / "task"),
        served("popularity"),
        served("markov"),
        ANSWER.format(answer="np.zeros((users, size))"),
        ANSWER.format(answer="np.full((users, size), 1e30)"),
    )
    assert (
        markov.score is not None
        and popular.score is not None
        and markov.score > popular.score + 0.05
    )
    assert same.status is knowing.status is Status.OK
    assert same.metrics["hit_rate_at_10"] == 0  # all alike: nothing was found
    assert markov.trust == "verified" and "median rank" in markov.feedback


def test_bad_scores_are_told(tmp_path: Path) -> None:
    wanted = {
        "np.zeros((users, size - 1))": "array of shape",
        "[[0.0] * size] * users": "not list",
        "np.full((users, size), np.nan)": "finite",
        "np.zeros((users, size), dtype=int)": "floating point",
        "None": "array of shape",
    }
    seen = judge(
        light(tmp_path / "task", log=True), *(ANSWER.format(answer=answer) for answer in wanted)
    )
    assert [o.status for o in seen] == [Status.INVALID] * len(wanted)
    assert all(piece in o.feedback for o, piece in zip(seen, wanted.values()))


def test_the_time_is_the_scorers(tmp_path: Path) -> None:
    folder = light(tmp_path / "task", log=True)
    text = (folder / "evaluator.py").read_text()
    (folder / "evaluator.py").write_text(text.replace('"budget": 120.0', '"budget": 1e-6'))
    frozen = "import time\ntime.monotonic = time.time = lambda: 0.0\n" + served("popularity")
    (seen,) = judge(folder, frozen)
    assert seen.status is Status.INVALID and "s are allowed" in seen.feedback


def test_a_file_of_the_wrong_format_is_reported_before_any_run(tmp_path: Path) -> None:
    folder = light(tmp_path / "task", log=True)
    (folder / "data" / "big_matrix.csv").write_text("user,item\n1,2\n")
    with pytest.raises(TaskError, match="has no column user_id"):
        judge(folder, served("popularity"))


def test_the_fixed_part_stays_as_it_is() -> None:
    task = load(FOLDER)
    (seed,) = task.initial_candidates()
    changed = Candidate.of({**seed.parts, "training.py": seed.parts["training.py"] + "\n"})
    assert surface_fault(task, seed) == "" and surface_fault(task, changed) == "frozen_part_changed"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_one_sentence_says_what_to_install() -> None:
    with pytest.raises(TaskError, match="No module named 'torch'") as raised:
        judge(FOLDER, served("popularity"))
    assert raised.value.fix == "pip install 'culmen[train]'"
    line = [sys.executable, str(FOLDER / "outside.py"), "--settings", "tiny"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == (
        "this needs torch, which is not installed: pip install 'culmen[train]'\n"
    )


def test_settings_are_the_published_ones() -> None:
    paper = evaluator.SETTINGS["paper"]
    wanted = {"history": 1024, "width": 128, "blocks": 4, "epochs": 16, "budget": 1200.0}
    assert {key: paper[key] for key in wanted} == wanted
    assert {name: each["budget"] for name, each in evaluator.SETTINGS.items()} == outside.BUDGETS
    assert paper["history"] + 2 <= interactions.KEPT


def test_one_channel_can_be_silenced() -> None:
    text = (FOLDER / "model.py").read_text()
    for channel in ("retention", "temporal", "positional"):
        changed: Any = baseline.without(text, channel)
        assert changed != text and compile(changed, "model.py", "exec")
