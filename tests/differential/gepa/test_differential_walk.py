"""The page From GEPA, walked: the package's published example, then with our import."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.differential.published import example, scripted_openai
from tests.servers.model_script import Asked, Turn

pytest.importorskip("gepa", reason="python -m tests.differential")
pytestmark = pytest.mark.timeout(900)

BETTER = "an artifact that is twenty words long " * 3
CHANGES = {  # what the page says
    "import gepa.optimize_anything as oa": "from culmen import gepa as oa",
    "from gepa.optimize_anything import": "from culmen.gepa import",
}


def run_my_system(candidate: str) -> Any:
    """The system that the example leaves to its reader: the longer, the better."""
    return SimpleNamespace(output=candidate, error="none", score=min(1.0, len(candidate) / 100))


def model(asked: Asked) -> Turn:
    """A reply with one better artifact."""
    return Turn(f"```\n{BETTER}\n```")


def test_the_published_example_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = example("gepa", "run_my_system").replace("max_metric_calls=100", "max_metric_calls=12")
    ours = theirs
    for old, new in CHANGES.items():
        assert old in ours
        ours = ours.replace(old, new)
    assert "culmen" in ours and "gepa.optimize_anything" not in ours
    results: list[Any] = []
    for text in (theirs, ours):
        with scripted_openai(model) as server:
            space: dict[str, Any] = {"run_my_system": run_my_system, "__name__": "example"}
            exec(text, space)
            assert server.asked and server.asked[0].model == "gpt-5.1"
            results.append(space["result"])
    package, culmen = results
    assert package.best_candidate.strip() == culmen.best_candidate.strip() == BETTER.strip()
    for result in results:
        assert result.val_aggregate_scores[0] == pytest.approx(0.23)
        assert result.val_aggregate_scores[result.best_idx] == 1.0
    assert package.to_dict().keys() == culmen.to_dict().keys()
