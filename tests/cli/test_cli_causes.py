"""Runs without one usable answer: the cause, its share and its remedy, on every surface."""

from __future__ import annotations

import asyncio
import html
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest

import culmen
from culmen.core.errors import NothingScored
from culmen.report.causes import FAULTS, words_for
from culmen.run.study import Study
from culmen.store import views
from tests.servers.loopback import Loopback
from tests.servers.zoo_server import CODE, Zoo

from .conftest import Place
from .test_cli_zoo import KEY, MODELS

SLOW = pytest.mark.slow
KINDS = [
    pytest.param("reasoning eats the reply", "reasoning_cut", "raise max_tokens"),
    pytest.param("too many", "rate_limited", "quota"),
    pytest.param("nowhere", "no_connection", "start the server"),
    pytest.param("reasoning unseen", "reasoning_cut", "raise max_tokens", marks=SLOW),
    pytest.param("thought without an end", "reasoning_cut", "raise max_tokens", marks=SLOW),
    pytest.param("answer among the reasoning", "reasoning_only", "reasoning parser", marks=SLOW),
    pytest.param("no choices", "no_choices", "server's own log", marks=SLOW),
    pytest.param("null", "no_content", "server's own log", marks=SLOW),
    pytest.param("nothing", "empty", "stronger model", marks=SLOW),
    pytest.param("stream", "streamed", "without streaming", marks=SLOW),
    pytest.param("page", "html", "base_url", marks=SLOW),
    pytest.param("another protocol", "cut", "base_url", marks=SLOW),
    pytest.param("refusal", "refused", "goal in other words", marks=SLOW),
    pytest.param("filter", "filtered", "another model or provider", marks=SLOW),
    pytest.param("tool call alone", "tools", "turn off tools", marks=SLOW),
    pytest.param("error with 200", "error_body", "what the error asks", marks=SLOW),
]
BUDGET = ("--workers", "2", "--run-dir", "run", "--budget", "evaluations=60,calls=9,seconds=4")


@pytest.mark.parametrize(("kind", "fault", "remedy"), KINDS)
def test_a_run_without_a_usable_answer_says_why_and_exits_1(
    kind: str, fault: str, remedy: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    place.task("peak")
    with Zoo((kind,) if kind != "nowhere" else ("good",)) as zoo:
        url = zoo.url
    if kind == "nowhere":  # the server has gone
        assert_cause(place, url, fault, remedy)
    else:
        with Zoo((kind,)) as zoo:
            assert_cause(place, zoo.url, fault, remedy)


def assert_cause(place: Place, url: str, fault: str, remedy: str) -> None:
    (place.root / "m.toml").write_text(MODELS.format(url=url))
    made = place.here("run", "peak", "--models", "m.toml", "--model", "odd", *BUDGET)
    assert made.code == 1, made.err
    run, said = place.root / "run", " ".join((made.out + made.err).split())
    words = words_for(fault)
    if fault == "no_connection":
        assert f"nothing answers at {url}" in said and remedy in said
    else:
        assert "gave no usable answer: 100 % of " in said and words.words in said
        assert remedy in said
    found = views.run_status(run).unanswered[0]
    assert found.fault == fault and found.number == found.attempts >= 3 and found.is_alone
    assert not words.has_address or url in said
    cause = Study.open(run).summary.cause
    assert words.words in cause and "100 %" in cause
    status = place.here("status", "run").out
    assert " ".join(status.split()).startswith(" ".join(cause.split()))
    assert (
        msgspec.json.decode(place.here("status", "run", "--json").out)["summary"]["cause"] == cause
    )
    assert_pages(place, run, cause)


def assert_pages(place: Place, run: Path, cause: str) -> None:
    """The dashboard's page and the report say it, too."""
    from culmen.extensions.web.pages.overview import overview_page
    from culmen.extensions.web.report import gather_report, report_page
    from culmen.extensions.web.runs import Digest

    assert overview_page(Digest(run), {})["summary"]["cause"] == cause
    assert html.escape(cause) in report_page(gather_report(Digest(run)))


ENDS = [
    pytest.param("no such path", "there is no chat API at http", "base_url"),
    pytest.param("no such model", "does not have the model 'odd'", "--model", marks=SLOW),
    pytest.param("forbidden", "denies access to 'odd'", "that key", marks=SLOW),
    pytest.param("unauthorized", "rejects the API key", "that key", marks=SLOW),
]


@pytest.mark.parametrize(("kind", "what", "remedy"), ENDS)
def test_a_refusal_of_every_request_ends_the_run_at_once(
    kind: str, what: str, remedy: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    place.task("peak")
    with Zoo((kind,)) as zoo:
        (place.root / "m.toml").write_text(MODELS.format(url=zoo.url))
        made = place.here("run", "peak", "--models", "m.toml", "--model", "odd", *BUDGET)
    assert made.code == 2 and what in made.err and remedy in made.err


def test_python_raises_for_a_run_without_a_usable_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    match = "gave no usable answer: 100 % of 6 answers were empty"
    with pytest.raises(NothingScored, match=match):
        culmen.optimize(
            "x = 1\n",
            evaluator=lambda text: float(len(text)),
            model=lambda prompt: "",
            budget="evaluations=30,calls=6",
            run_dir=tmp_path / "run",
            progress=False,
        )
    study = Study.open(tmp_path / "run")
    assert study.best is not None  # what was measured is there


def test_every_fault_has_words_and_a_remedy() -> None:
    for name, fault in FAULTS.items():
        assert fault.words and fault.remedy, name
    assert "no such fault" in words_for("no_such_fault").words


class _Choosy(BaseHTTPRequestHandler):
    """A gateway that knows max_completion_tokens alone, no temperature, and one sample."""

    served: Choosy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        self.served.bodies.append(body)
        if "max_tokens" in body:
            refusal: Any = {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "code": "unsupported_parameter",
            }
        elif "temperature" in body:
            refusal = {
                "message": "Unsupported value: does not support 0.8 with this model.",
                "param": "temperature",
            }
        else:
            refusal = None
        text = CODE.format(f"{5 + len(self.served.bodies) / 100}")
        good = {
            "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 20},
        }
        raw = msgspec.json.encode({"error": refusal} if refusal else good)
        self.send_response(400 if refusal else 200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


class Choosy(Loopback):
    """The server of `_Choosy`; `bodies` are the requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        super().__init__(_Choosy)


def test_fields_that_a_refusal_names_are_learnt_and_known_after_a_resume(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.root / "cache"))
    place.task("peak")
    chosen = ("--models", "m.toml", "--model", "odd", "--workers", "1", "--run-dir", "run")
    with Choosy() as server:
        models = MODELS.format(url=f"{server.url}/v1") + "temperature = 0.8\n"
        models = models.replace("base = 0.001", "base = 0.001\nconcurrency = 1")
        (place.root / "m.toml").write_text(models)
        made = place.here("run", "peak", *chosen, "--budget", "evaluations=20,calls=4")
        assert made.code == 0, made.err
        assert views.run_status(place.root / "run").usage.calls == 4
        assert ["max_tokens" in body for body in server.bodies].count(True) == 1
        assert ["temperature" in body for body in server.bodies].count(True) == 2
        notes = [each.entry.body for each in views.note_events(place.root / "run", "learnt")]
        assert [note["change"]["field"] for note in notes] == ["max_tokens", "temperature"]
        first = len(server.bodies)
        asyncio.run(ask_once_more(place.root / "run", str(place.root / "m.toml")))
    assert len(server.bodies) == first + 1
    assert "max_completion_tokens" in server.bodies[-1] and "temperature" not in server.bodies[-1]


async def ask_once_more(run: Path, models: str) -> None:
    """Make a request with the run's journal, as a resumed session does."""
    from culmen.models.call import Call, ChatMessage
    from culmen.models.caller import Providers
    from culmen.models.roles import ModelBook

    providers = Providers()
    providers.lessons.restore(*views.model_lessons(run))
    model = ModelBook(models).model("odd")
    call = Call("odd", (ChatMessage("user", "hi"),), max_tokens=10, temperature=0.8)
    outcome = await providers.caller_for(model).call(call, model.price_list)
    assert outcome.choices
    await providers.close()
