"""Trackers: real libraries get what the journal holds, and no tracker can hurt a run."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.core.event import Event
from culmen.extensions.trackers.tracking import (
    EffectSpan,
    TrackedCandidate,
    TrackedPoint,
    TrackedRun,
    Tracker,
    Tracking,
)
from culmen.report.watch import make_trackers
from culmen.store import views
from tests.cli.conftest import Place
from tests.extensions.bench.worlds import Asking, Told, run

REPLIES: list[list[float | None]] = [[1.0, 3.0, None], [2.0]]


def missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with six evaluations, and two calls of a dollar each.

    The evaluations are 1, 1, 3, failure, 2 and a last look.
    """
    return run(tmp_path, Asking(2), Told([list(each) for each in REPLIES]), name="told-1")


@contextmanager
def tracked(trackings: list[Tracking], folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """All of them at work on a run."""
    with ExitStack() as stack:
        for each in trackings:
            stack.enter_context(each.for_run(folder, say))
        yield


def replay(tracking: Tracking, folder: Path, after: int = 0) -> list[str]:
    """Feed it the events beyond `after` as a driver would; returns its messages."""
    said: list[str] = []
    with tracked([tracking], folder, said.append):
        for event in views.log_events(folder, after, 1000):
            tracking.see([event])
    return said


class Noted(Tracker):
    """Keeps everything it receives."""

    def __init__(self) -> None:
        self.points: list[TrackedPoint] = []
        self.spans: list[EffectSpan] = []
        self.about: TrackedRun | None = None
        self.ended: list[str] = []
        self.rows: list[TrackedCandidate] = []
        self.texts = False

    def start(self, about: TrackedRun) -> None:
        self.about = about

    def log_point(self, point: TrackedPoint) -> None:
        self.points.append(point)

    def log_span(self, span: EffectSpan) -> None:
        self.spans.append(span)

    def log_candidates(self, candidates: Sequence[TrackedCandidate]) -> None:
        self.rows = list(candidates)

    def close(self, state: str) -> None:
        self.ended.append(state)


def test_points_are_what_the_journal_holds(folder: Path):
    noted = Noted()
    assert replay(Tracking("noted", noted), folder) == []
    assert noted.about is not None and (noted.about.run, noted.about.task) == ("told-1", "told")
    now = views.run_status(folder)
    assert len(noted.points) == now.evaluations and len(noted.ended) == 1
    assert [point.evaluations for point in noted.points] == list(range(1, now.evaluations + 1))
    bests = [point.best for point in noted.points]
    assert (
        bests[0] == 1.0
        and bests[-1] == 3.0
        and noted.points[-1].usage.dollars == now.usage.dollars == 2.0
    )
    assert [span.effect for span in noted.spans].count("propose") == 2
    assert all(span.role == "proposer" for span in noted.spans if span.effect == "propose")


def test_a_run_that_goes_on_counts_what_was_before(folder: Path):
    whole, rest = Noted(), Noted()
    replay(Tracking("whole", whole), folder)
    middle = views.log_events(folder, 0, 1000)[8].seq
    replay(Tracking("rest", rest), folder, after=middle)
    assert 0 < len(rest.points) < len(whole.points)
    assert rest.points == whole.points[-len(rest.points) :]


class Broken(Noted):
    def log_point(self, point: TrackedPoint) -> None:
        raise ValueError("no room")


def test_a_broken_tracker_is_named_once_and_the_rest_goes_on(folder: Path):
    other = Noted()
    broken, fine = Tracking("broken", Broken()), Tracking("fine", other)
    said: list[str] = []
    with tracked([broken, fine], folder, said.append):
        for event in views.log_events(folder, 0, 1000):
            broken.see([event])
            fine.see([event])
    assert len(said) == 1 and "broken failed" in said[0] and "no room" in said[0]
    assert len(other.points) == views.run_status(folder).evaluations


class Stuck(Noted):
    """Holds its thread until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.free = threading.Event(), threading.Event()

    def start(self, about: TrackedRun) -> None:
        self.held.set()
        self.free.wait(60)


def test_a_slow_tracker_loses_events_and_holds_nobody_up(folder: Path):
    stuck = Stuck()
    tracking = Tracking("stuck", stuck, waiting=2, patience=60.0)
    events: list[Event] = views.log_events(folder, 0, 1000)
    said: list[str] = []
    with tracked([tracking], folder, said.append):
        tracking.see(events[:1])
        assert stuck.held.wait(60)
        tracking.see(events[1:])  # returns, though nobody reads
        stuck.free.set()
    assert said == [f"Tracker stuck was too slow: {len(events) - 3:,} events were left out of it."]


def test_a_tracker_that_never_ends_is_left_behind(folder: Path):
    stuck = Stuck()
    said: list[str] = []
    with tracked([tracking := Tracking("stuck", stuck, patience=0.05)], folder, said.append):
        tracking.see(views.log_events(folder, 0, 1))
        assert stuck.held.wait(60)
    assert len(said) == 1 and "left behind" in said[0]
    stuck.free.set()


def test_unknown_trackers_are_refused():
    with pytest.raises(UserError, match="there is no tracker 'no'"):
        make_trackers(["no:where"])
    assert make_trackers([]) == ()


@pytest.mark.skipif(missing("tensorboardX"), reason="tensorboardX is not installed")
def test_tensorboard_files_hold_every_point(folder: Path, tmp_path: Path):
    from tensorboardX.proto.event_pb2 import Event as Written
    from tensorboardX.record_writer import masked_crc32c

    (tracking,) = make_trackers([f"tensorboard:{tmp_path / 'board'}"])
    assert replay(tracking, folder) == []
    (file,) = (tmp_path / "board/told-1").glob("events.out.*")
    raw, found = file.read_bytes(), dict[str, list[tuple[int, float]]]()
    while raw:
        size = int.from_bytes(raw[:8], "little")
        assert int.from_bytes(raw[8:12], "little") == masked_crc32c(raw[:8])
        event = Written()
        event.ParseFromString(raw[12 : 12 + size])
        raw = raw[16 + size :]
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    now = views.run_status(folder)
    assert [step for step, _ in found["best"]] == list(range(1, now.evaluations + 1))
    assert found["best"][-1][1] == 3.0 and found["dollars"][-1][1] == 2.0
    assert len(found["score"]) == now.statuses["ok"]


class Collector(BaseHTTPRequestHandler):
    """Takes spans as an OpenTelemetry collector does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers.get("Content-Encoding"), body))  # pyright: ignore
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.taken = []  # pyright: ignore
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(
    missing("opentelemetry.exporter") if not missing("opentelemetry") else True,
    reason="no OTLP exporter",
)
def test_spans_reach_a_collector(folder: Path, collector: Any):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    (tracking,) = make_trackers([f"otel:http://127.0.0.1:{collector.server_port}"])
    assert replay(tracking, folder) == []
    spans: list[Any] = []
    for path, encoding, body in collector.taken:
        assert path == "/v1/traces" and encoding is None
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        spans += [
            span
            for each in request.resource_spans
            for scope in each.scope_spans
            for span in scope.spans
        ]
    calls = [span for span in spans if span.name == "chat told"]
    assert len(calls) == 2
    facts = {fact.key: fact.value for fact in calls[0].attributes}
    assert facts["gen_ai.operation.name"].string_value == "chat"
    assert facts["gen_ai.request.model"].string_value == "told"
    assert facts["culmen.dollars"].double_value == 1.0
    evaluations = [span for span in spans if span.name == "evaluate"]
    assert len(evaluations) == views.run_status(folder).evaluations
    failed = [
        span for span in evaluations if any(fact.key == "error.type" for fact in span.attributes)
    ]
    assert len(failed) == sum(
        n for status, n in views.run_status(folder).statuses.items() if status != "ok"
    )
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


@pytest.mark.slow
@pytest.mark.skipif(missing("mlflow"), reason="mlflow is not installed")
def test_mlflow_holds_every_point_and_goes_on_with_its_run(
    folder: Path, tmp_path: Path, monkeypatch
):
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)  # mlflow keeps files below the working folder
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for _ in range(2):
        (tracking,) = make_trackers([f"mlflow:{uri}"])
        tracking._patience = 100.0
        assert replay(tracking, folder) == []
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("culmen-told")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    best = client.get_metric_history(found.info.run_id, "best")
    assert {each.step for each in best} == set(range(1, views.run_status(folder).evaluations + 1))
    assert found.data.metrics["best"] == 3.0 and found.data.params["task"] == "told"


@pytest.mark.slow
@pytest.mark.skipif(missing("wandb"), reason="wandb is not installed")
def test_wandb_offline_writes_the_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import wandb  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    (tracking,) = make_trackers(["wandb:tests"])
    tracking._patience = 100.0
    assert replay(tracking, folder) == []
    wandb.teardown()  # as at the end of a process: its service writes everything
    (written,) = tmp_path.glob("wandb/offline-run-*/run-told-1.wandb")
    raw = written.read_bytes()
    assert b"best" in raw and b"dollars" in raw and b"told" in raw


@pytest.mark.jail
@pytest.mark.skipif(missing("tensorboardX"), reason="tensorboardX is not installed")
def test_the_command_line_tracks_a_run_and_survives_a_tracker_that_fails(tmp_path: Path):
    place = Place(tmp_path)
    place.task("peak")
    (tmp_path / "file").write_text("no folder can be made here")
    words = ("run", "peak", "--budget", "evaluations=4", "--run-dir", "runs/one", "--quiet")
    done = place.culmen(*words, "--track", "tensorboard:board", "--track", "tensorboard:file")
    assert done.code == 0, done.err
    assert done.err.count("Tracker tensorboard failed") == 1
    now = views.run_status(tmp_path / "runs/one")
    assert now.state == "finished" and list((tmp_path / "board" / now.run).glob("events.out.*"))
    assert place.culmen(*words, "--track", "nobody").code == 2


def test_an_existing_run_is_copied_with_its_tree(folder: Path):
    noted = Noted()
    assert Tracking("noted", noted).send_journal(folder) == views.run_status(folder).evaluations
    live = Noted()
    replay(Tracking("live", live), folder)
    assert noted.points == live.points and noted.spans == live.spans and noted.rows == live.rows
    assert [row.id for row in noted.rows] == [row.id for row in views.candidate_rows(folder, "old")]
    assert all(not row.parts for row in noted.rows) and any(row.parents for row in noted.rows)
    noted.texts = True
    Tracking("texts", noted).send_journal(folder)
    assert noted.rows[0].parts == views.candidate_detail(folder, noted.rows[0].id).parts


def test_what_a_tracker_has_already_is_not_sent_again(folder: Path):
    noted = Noted()
    noted.reached = 4  # type: ignore[attr-defined]
    assert Tracking("noted", noted).send_journal(folder) == views.run_status(folder).evaluations - 4
    assert noted.points[0].evaluations == 5


@pytest.mark.parametrize(
    "text",
    [
        "mlflow:x#name=1",
        "mlflow:x#run=",
        "mlflow:x#texts=yes",
        "otel#prefix=a",
        "tensorboard:x#run=3",
    ],
)
def test_options_that_a_tracker_lacks_are_refused(text: str):
    with pytest.raises(UserError, match="has no option"):
        make_trackers([text])


@pytest.mark.skipif(missing("mlflow"), reason="mlflow is not installed")
def test_mlflow_keeps_a_run_of_somebody_else_open_and_prefixes_keys(folder: Path, tmp_path: Path):
    import json

    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("theirs", artifact_location=(tmp_path / "files").as_uri())
    theirs = client.create_run(experiment)
    client.log_param(theirs.info.run_id, "task", "their own")
    for _ in range(2):  # the second time there is nothing new
        (tracking,) = make_trackers([f"mlflow:{uri}#run={theirs.info.run_id},prefix=search/,texts"])
        sent = tracking.send_journal(folder)
    assert sent == 0
    found = client.get_run(theirs.info.run_id)
    assert found.info.status == "RUNNING" and found.data.params["task"] == "their own"
    assert found.data.params["search/task"] == "told" and set(found.data.metrics) >= {
        "search/best",
        "search/dollars",
    }
    history = client.get_metric_history(theirs.info.run_id, "search/seconds")
    assert len(history) == views.run_status(folder).evaluations
    table = json.loads(next((tmp_path / "files").rglob("candidates.json")).read_text())
    best = views.candidate_rows(folder, "old")[0]
    assert table["columns"][0] == "id" and table["data"][0][0] == best.id
    assert list((tmp_path / "files").rglob(f"search/texts/{best.id}/*"))


@pytest.mark.skipif(missing("wandb"), reason="wandb is not installed")
def test_wandb_goes_into_the_run_that_this_process_began(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import wandb  # pyright: ignore[reportMissingImports]

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    theirs = wandb.init(
        project="tests", id="theirs", settings=wandb.Settings(console="off", silent=True)
    )
    theirs.log({"loss": 1.0})
    (tracking,) = make_trackers(["wandb:tests#run=theirs,prefix=search/,texts"])
    many = tracking.send_journal(folder)
    theirs.log({"loss": 0.5})  # still open
    assert theirs.summary["search/evaluations"] == many and "search/state" in dict(theirs.summary)
    assert theirs.summary["loss"] == 0.5 and "search/candidates" in dict(theirs.summary)
    theirs.finish()
    wandb.teardown()


@pytest.mark.skipif(missing("tensorboardX"), reason="tensorboardX is not installed")
def test_the_verb_copies_a_run(folder: Path, tmp_path: Path):
    done = Place(tmp_path).culmen(
        "runs", "track", str(folder), f"tensorboard:{tmp_path / 'board'}#prefix=a/", "--json"
    )
    told = done.document
    assert told["evaluations"] == {"tensorboard": views.run_status(folder).evaluations}
    assert list((tmp_path / "board").rglob("*tfevents*"))
