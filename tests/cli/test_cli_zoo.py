"""A run whose model server is a zoo of odd servers.

It ends with words, and no byte of the key is on the disk.
"""

from __future__ import annotations

import re

import pytest

from tests.servers.zoo_server import ALL, Zoo

from .conftest import Place

KEY = "sk-zoo-4f7a1c9e2b8d6053"
MODELS = """
[providers.zoo]
base_url = "{url}"
key_env = "ZOO_KEY"
base = 0.001
cap = 0.002
retries = 2
patience = 20
[models.odd]
provider = "zoo"
max_tokens = 500
price = {{ input = 1.0, output = 4.0 }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["redirect", ""])
def test_a_run_on_the_zoo(kind: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    place.task("peak")
    kinds = tuple(
        name
        for name in ALL
        # a wrong address, model or key ends a run at once
        if name.startswith(kind)
        and (kind or not re.match("redirect|no such|forbidden|unauthorized", name))
    )
    with Zoo(kinds) as zoo:
        (place.root / "m.toml").write_text(MODELS.format(url=zoo.url))
        chosen = ("--models", "m.toml", "--model", "odd", "--workers", "4", "--run-dir", "run")
        done = place.here(
            "run", "peak", *chosen, "--budget", "evaluations=40,calls=150,tokens=500000,dollars=5"
        )
        assert done.code == (2 if kind else 0), done.err
        assert zoo.stolen == []
    if kind:
        assert "redirects requests to" in done.err and "next" in done.err
    else:
        assert sum(zoo.asked.values()) > 60
    told = [done.out, done.err]
    for verb in ("status", "show", "best", "show --log", "report", "story"):
        again = place.here(*verb.split(), "run")
        assert again.code != 70, (verb, again.err)
        told += [again.out, again.err]
    assert not any(KEY in text for text in told)
    stored = [path for path in place.root.rglob("*") if path.is_file()]
    assert len(stored) > 5 and not [path for path in stored if KEY.encode() in path.read_bytes()]
