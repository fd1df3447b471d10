"""The recommender of the task kuairec: its channels, its fixed training, its jail.

The channels are held against slow sums.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

from culmen.core.candidate import Candidate  # noqa: E402
from culmen.core.evaluation import Observation, Status  # noqa: E402
from culmen.evaluate.local import LocalBackend  # noqa: E402
from culmen.tasks import example_path, load  # noqa: E402
from culmen.tasks.schema import read_cases  # noqa: E402
from tests.tasks.folder import modules  # noqa: E402

interactions, evaluator, model, training, outside, baseline = modules(
    "kuairec", "interactions", "evaluator", "model", "training", "outside", "baseline"
)
FOLDER = example_path("kuairec")
SMALL = {
    **evaluator.SETTINGS["tiny"],
    "history": 12,
    "width": 16,
    "blocks": 2,
    "chunk": 5,
    "seed": 1,
}


def histories(users: int = 6, length: int = 12, seed: int = 0) -> Any:
    """Videos, seconds, present; the last user has only four views."""
    random = torch.Generator().manual_seed(seed)
    videos = torch.randint(30, (users, length), generator=random)
    seconds = 1.6e9 + torch.cumsum(
        4000 * torch.rand(users, length, generator=random, dtype=torch.float64), 1
    )
    present = torch.ones(users, length, dtype=torch.bool)
    present[-1, 4:] = False
    return videos, seconds, present


def recommender(**changes: Any) -> Any:
    torch.manual_seed(0)
    return model.Recommender(30, {**SMALL, **changes}).eval()


@pytest.mark.parametrize("chunk", [1, 3, 7, 16, 50])
def test_linear_channels_are_the_sums_they_stand_for(chunk: int) -> None:
    torch.manual_seed(chunk)
    query, key = (
        torch.randn(2, 3, 16, 4, dtype=torch.float64),
        torch.randn(2, 3, 16, 4, dtype=torch.float64),
    )
    value = torch.randn(2, 3, 16, 5, dtype=torch.float64)
    elapsed = torch.cumsum(3 * torch.rand(2, 3, 16, dtype=torch.float64), dim=-1)
    found = model.decayed(query, key, value, elapsed, chunk)
    for i in range(16):
        wanted = sum(
            torch.exp(elapsed[..., j] - elapsed[..., i])[..., None]
            * (query[..., i, :] * key[..., j, :]).sum(-1, keepdim=True)
            * value[..., j, :]
            for j in range(i + 1)
        )
        assert torch.allclose(found[..., i, :], wanted, atol=1e-12)


def test_long_gaps_overflow_nothing() -> None:
    elapsed = torch.tensor([[0.0, 1e3, 2e6, 2e6, 9e9]])
    ones = torch.ones(1, 5, 2, requires_grad=True)
    found = model.decayed(ones, ones, ones, elapsed, 2)
    found.sum().backward()
    assert torch.isfinite(found).all() and torch.isfinite(ones.grad).all()


def test_states_see_the_past_alone() -> None:
    videos, seconds, present = histories()
    net = recommender()
    with torch.no_grad():
        before = net(videos, seconds, present)
        videos[:, 7:], seconds[:, 7:] = 3, seconds[:, 7:] + 5000
        after = net(videos, seconds, present)
    assert torch.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert not torch.allclose(before[:, 7:], after[:, 7:], atol=1e-3)


def test_chunks_and_what_comes_after_a_history_make_no_difference() -> None:
    videos, seconds, present = histories()
    with torch.no_grad():
        whole, pieces = (recommender(chunk=chunk)(videos, seconds, present) for chunk in (64, 5))
        short = recommender()(videos[-1:, :4], seconds[-1:, :4], present[-1:, :4])
    assert torch.allclose(whole, pieces, atol=1e-4)
    assert torch.allclose(whole[-1:, :4], short, atol=1e-4)


def test_each_channel_sees_what_it_is_for() -> None:
    x = torch.randn(2, 12, 16)
    _, seconds, _ = histories(2)
    block = model.Block(SMALL)
    retention, temporal, positional = block.channels
    week = 7 * 24 * 3600
    with torch.no_grad():
        steps = torch.arange(12.0)
        assert torch.allclose(
            temporal(x, seconds), temporal(x, seconds + week), atol=1e-4
        )  # all periods divide a week
        assert not torch.allclose(temporal(x, seconds), temporal(x, seconds * 1.5), atol=1e-3)
        assert not torch.allclose(retention(x, steps), retention(x, 3 * steps), atol=1e-4)
        one = positional(torch.ones(1, 12, 16))
    assert (one[0, 1:] - one[0, :-1]).abs().max() > 1e-3  # the place alone makes a difference
    assert len(recommender(blocks=4).blocks) == 4


def test_sampled_softmax_is_its_definition() -> None:
    videos, seconds, present = histories(3)
    net = recommender()
    torch.manual_seed(5)
    found = training.sampled_softmax(net, videos, seconds, present, 30, 7)
    torch.manual_seed(5)
    others = torch.randint(30, (3, 7))
    states, losses = net(videos[:, :-1], seconds[:, :-1], present[:, :-1]), []
    for user in range(3):
        for place in range(11):
            if not present[user, place + 1]:
                continue
            right = (states[user, place] @ net.candidates(videos[user, place + 1])).item()
            rivals = [other for other in others[user] if other != videos[user, place + 1]]
            wrong = [(states[user, place] @ net.candidates(other)).item() for other in rivals]
            losses.append(-right + math.log(sum(math.exp(each) for each in [right, *wrong])))
    assert found.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_histories_are_filled_up_at_the_end() -> None:
    offsets = np.array([0, 2, 7])
    videos, seconds, present = training.batches(
        np.arange(7), 10.0 * np.arange(7), offsets, 4, "cpu"
    )
    assert videos.tolist() == [[0, 1, 0, 0], [3, 4, 5, 6]] and present.sum(1).tolist() == [2, 4]
    assert seconds.tolist() == [[0, 10, 10, 10], [30, 40, 50, 60]]


def test_training_learns_and_follows_its_seed() -> None:
    """A log in which one video always follows another: the model must find that out."""
    videos = np.tile(np.arange(10), 30)
    offsets, seconds = np.arange(0, 301, 10), 60.0 * np.arange(300)
    fast = {**SMALL, "epochs": 12, "rate": 2e-2, "batch": 10, "dropout": 0.0}
    losses = training.fit(videos, seconds, offsets, 10, fast)
    assert losses[-1] < 0.5 * losses[0]
    scores = training.rank(videos[:5], seconds[:5], np.array([0, 5]))
    assert scores.shape == (1, 10) and scores.dtype == np.float32 and scores[0].argmax() == 5
    assert training.fit(videos, seconds, offsets, 10, fast) == losses
    assert np.array_equal(training.rank(videos[:5], seconds[:5], np.array([0, 5])), scores)


def test_the_published_settings_make_a_model_that_runs() -> None:
    """One batch of two long histories, forwards and backwards.

    Cases of that name are ready to be used.
    """
    paper = evaluator.SETTINGS["paper"]
    torch.manual_seed(0)
    net = model.Recommender(50, paper)
    assert len(net.blocks) == 4 and net.embedding.embedding_dim == 128
    videos, present = torch.randint(50, (2, 1024)), torch.ones(2, 1024, dtype=torch.bool)
    seconds = torch.cumsum(torch.rand(2, 1024, dtype=torch.float64) * 9e4, 1) + 1.6e9
    loss = training.sampled_softmax(net, videos, seconds, present, 50, paper["negatives"])
    loss.backward()
    assert all(
        torch.isfinite(each.grad).all() for each in net.parameters() if each.grad is not None
    )
    cases = read_cases(FOLDER / "paper.jsonl")
    assert [case.info["settings"] for case in cases] == ["paper", "paper"]


def test_the_seed_scores_as_stated_in_the_jail() -> None:
    task = load(FOLDER)

    async def one() -> Observation:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return await backend.evaluate(task.initial_candidates()[0], task.cases[0], 0)
        finally:
            await backend.close()

    seen = asyncio.run(one())
    assert seen.status is Status.OK and seen.trust == "verified", seen.feedback
    assert task.objective.start is not None and not task.objective.reaches_target(
        task.objective.start
    )
    assert seen.score == pytest.approx(task.objective.start, rel=0.2)
    fit, rank = baseline.served(baseline.markov)
    chain = evaluator.evaluated(fit, lambda name, *given: rank(*given), task.cases[0].info, 0)
    assert seen.score > chain["score"], (
        "on the log that is made up, a network can beat a Markov chain"
    )


def test_outside_the_jail_it_is_the_same_judgement(tmp_path: Path) -> None:
    """A model that gives every video the same vector finds nothing.

    One that does not load is reported.
    """
    text = (FOLDER / "model.py").read_text()
    blind = text.replace(
        "return normalize(self.embedding(videos), dim=-1)", "return 0 * self.embedding(videos)"
    )
    cheap = blind.replace('for _ in range(settings["blocks"])', "for _ in range(1)")
    assert Candidate.of({"model.py": cheap}) != Candidate.of({"model.py": text})
    score, known = outside.judge(cheap, settings="tiny")
    assert known["hit_rate_at_10"] == 0 and 0 < score < 0.01
    with pytest.raises(RuntimeError, match="not today"):
        outside.judge("raise RuntimeError('not today')", settings="tiny")
    (tmp_path / "model.py").write_text(text)
    line = [
        sys.executable,
        str(FOLDER / "outside.py"),
        "--settings",
        "no",
        "--model",
        str(tmp_path / "model.py"),
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "use one of tiny, paper" in done.stderr
    assert json.loads(json.dumps(known)) == known
