"""The page From Trace, walked: the published example, then the same with our search."""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any

import pytest

from tests.differential.published import example, scripted_openai
from tests.servers.model_script import Asked, Turn

pytest.importorskip("opto.optimizers", reason="python -m tests.differential")
pytestmark = pytest.mark.timeout(900)

BETTER = """@bundle(trainable=True)
def strange_sort_list(lst):
    lst, found = sorted(lst), []
    while lst:
        found.append(lst.pop(0 if len(found) % 2 == 0 else -1))
    return found
"""
OURS = """
import culmen

def guide(input, output, info):
    return float(output == info), get_feedback(output, info)

study = culmen.trace.optimize(
    strange_sort_list, guide, inputs=[test_input], infos=[test_ground_truth],
    model="openai/gpt-4o", budget=20,
)
culmen.trace.load(strange_sort_list, study.best.parts)
"""


def model(asked: Asked) -> Turn:
    """The better function, in whatever form it is asked for."""
    text = "\n".join(item.text for item in asked.items)
    code = BETTER.partition("\n")[2]
    if "suggestion" not in text:
        return Turn(f"```python __code0\n{code}```")
    suggestion = {"reasoning": "alternate", "suggestion": {"__code0": code}}
    return Turn(json.dumps(suggestion))


def run(text: str, name: Path, space: dict[str, Any]) -> None:
    """Run a text as a file, so that `inspect` finds its functions."""
    name.write_text(text)
    linecache.checkcache()
    exec(compile(text, str(name), "exec"), space)


def test_the_published_example_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACE_DEFAULT_LLM_BACKEND", "LiteLLM")
    monkeypatch.setenv("TRACE_LITELLM_MODEL", "openai/gpt-4o")
    function = example("trace-opt", "strange_sort_list(lst)")
    published = example("trace-opt", "test_ground_truth = [1, 4, 2, 3]")
    data = published.partition("optimizer =")[0]
    for name, text in {"theirs": published, "ours": data + OURS}.items():
        space: dict[str, Any] = {"__name__": "__main__"}
        with scripted_openai(model):
            run(function, tmp_path / f"{name}_function.py", space)
            run(text, tmp_path / f"{name}.py", space)
        assert space["strange_sort_list"]([1, 2, 3, 4]).data == [1, 4, 2, 3]
