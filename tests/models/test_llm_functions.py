"""Python functions as models: a call is a call, no replies are shared, calls may cost."""

import itertools
from pathlib import Path

import pytest

import culmen
from culmen.core.errors import UserError


def score(text: str) -> float:
    """The number that a program is."""
    return -abs(float(text.split("=")[1]) - 50.0)


def search(run: Path, model: object, strategy: str = "pedigree", **budget: float) -> culmen.Study:
    """A search over `x = NUMBER`."""
    return culmen.optimize(
        "x = 0\n",
        score,
        model=model,
        strategy=strategy,
        budget=budget,
        run_dir=run,
        random_seed=1,
        workers=1,
    )


class Counted:
    """A model function that counts its calls and replies with numbers of its own."""

    def __init__(self, first: int = 1) -> None:
        self.numbers = itertools.count(first)
        self.calls = 0

    def ask(self, prompt: str) -> str:
        """Another number at every call."""
        self.calls += 1
        return f"```python\nx = {next(self.numbers)}\n```"


@pytest.mark.parametrize("strategy", ["pedigree", "puct", "beam", "turboevolve"])
def test_a_budget_of_calls_is_what_the_function_is_asked(tmp_path: Path, strategy: str) -> None:
    counted = Counted()
    study = search(tmp_path / "run", counted.ask, strategy, calls=20, evaluations=200)
    assert counted.calls == study.status.usage.calls <= 20
    assert counted.calls >= 15


def test_functions_of_one_name_share_no_replies(tmp_path: Path) -> None:
    first, second = Counted(), Counted(100)
    search(tmp_path / "one", lambda prompt: first.ask(prompt), evaluations=12)
    best = search(tmp_path / "two", lambda prompt: second.ask(prompt), evaluations=12).best
    assert best is not None and second.calls > 5
    assert float(next(iter(best.parts.values())).split("=")[1]) in (0.0, *range(100, 120))


def test_a_version_names_what_a_function_does_so_that_its_replies_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = Counted(), Counted(100)
    search(tmp_path / "one", culmen.Model(first.ask, version="1"), evaluations=12)
    search(tmp_path / "two", culmen.Model(second.ask, version="1"), evaluations=12)
    assert first.calls > second.calls == 0
    search(tmp_path / "three", culmen.Model(second.ask, version="2"), evaluations=12)
    assert second.calls > 0


def test_a_price_of_a_call_is_what_dollars_limit(tmp_path: Path) -> None:
    counted = Counted()
    with pytest.raises(UserError, match="price"):
        search(tmp_path / "free", counted.ask, dollars=0.05)
    study = search(tmp_path / "run", culmen.Model(counted.ask, dollars=0.01), dollars=0.05)
    assert study.status.usage.dollars == pytest.approx(0.01 * counted.calls)
    assert 4 <= counted.calls <= 5
