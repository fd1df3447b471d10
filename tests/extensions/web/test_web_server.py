"""The dashboard's server without a browser: rights, refusals, contents of documents."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import structs

from culmen.core.event import Entry
from culmen.extensions.web import labels
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.pages.mechanism import condition_findings
from culmen.extensions.web.pages.overview import reference_levels
from culmen.extensions.web.runs import (
    Digest,
    RunCatalog,
    change_signature,
    thin_points,
    thin_with_extremes,
)
from culmen.extensions.web.server import Dashboard, bind_port, encode_document
from culmen.store import inbox, views
from culmen.store.address import parse_address, write_pointer
from culmen.store.archive import restore_archive
from culmen.store.journal import SqlJournal
from tests.extensions.web.conftest import Site, served
from tests.store.runs import new_run, observed, program, proposed, state


def ask(
    site: Site, path: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, document (or text) and headers of one request; `Host` and others may be given."""
    connection = http.client.HTTPConnection(urlsplit(site.base).netloc, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = None if body is None else json.dumps(body).encode()
    if raw is not None:
        sent.setdefault("Content-Type", "application/json")
    connection.request(method, path, raw, sent)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    told = {name.lower(): value for name, value in answer.getheaders()}
    is_json = told.get("content-type", "").startswith("application/json")
    return answer.status, json.loads(text) if is_json else text.decode(), told


def host(site: Site) -> str:
    return urlsplit(site.base).netloc


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1", "[::"]
)
def test_a_foreign_host_is_refused_whatever_it_asks(site: Site, name: str):
    for path in ("/", "/api/runs", "/static/main.js"):
        assert ask(site, path, Host=name)[0] == 421


def test_its_own_names_are_served(site: Site):
    port = urlsplit(site.base).port
    for name in (
        f"127.0.0.1:{port}",
        f"localhost:{port}",
        f"[::1]:{port}",
        "localhost:9",
    ):  # a forwarded port, too
        assert ask(site, "/api/runs", Host=name)[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"]
)
def test_a_foreign_origin_is_refused_for_reading_and_writing(site: Site, origin: str):
    assert ask(site, "/api/runs", Origin=origin)[0] == 403
    told = ask(
        site,
        "/api/runs/empty/hint",
        "POST",
        {"text": "x"},
        Origin=origin,
        X_Culmen_Token=site.token,
    )
    assert told[0] == 403 and inbox.waiting_messages(site.run("empty")) == []


def test_what_another_site_makes_the_browser_ask_is_refused(site: Site):
    assert ask(site, "/api/runs", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(site, "/api/runs", Sec_Fetch_Site="same-site")[0] == 403
    assert ask(site, "/api/runs", Sec_Fetch_Site="same-origin", Origin=site.base)[0] == 200


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_writing_takes_the_token(site: Site, token: str):
    given = {"X_Culmen_Token": token} if token else {}
    for path in ("/api/runs/empty/hint", "/api/runs/empty/stop", "/api/token"):
        status, text, _ = ask(site, path, "POST", {"text": "x"}, **given)
        assert status == 401 and "token" in text
    assert inbox.waiting_messages(site.run("empty")) == []


def test_a_form_of_another_page_cannot_write_even_with_the_token(site: Site):
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
    for kind in kinds:
        told = {"Content_Type": kind, "X_Culmen_Token": site.token}
        assert ask(site, "/api/runs/empty/hint", "POST", {"text": "x"}, **told)[0] == 415


def test_every_answer_forbids_what_the_pages_do_not_need(site: Site):
    for path in (
        "/",
        "/static/main.js",
        "/api/runs",
        "/api/runs/polca-1/overview",
        "/nowhere",
        "/api/runs/none/head",
    ):
        _, _, headers = ask(site, path)
        policy = headers["content-security-policy"]
        assert (
            "default-src 'none'" in policy
            and "script-src 'self'" in policy
            and "frame-ancestors 'none'" in policy
        )
        assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
        assert (
            headers["x-content-type-options"] == "nosniff"
            and headers["referrer-policy"] == "no-referrer"
        )
        assert "access-control-allow-origin" not in headers
    assert ask(site, "/", Host="evil.example")[2]["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/static/nothing.js",
        "/static/",
    ],
)
def test_only_files_of_the_front_end_are_served(site: Site, path: str):
    assert ask(site, path)[0] == 404


@pytest.mark.parametrize(
    "name", ["none", "..", "%2e%2e", "..%2fpolca-1", "polca-1%2f..%2fpolca-2", "%00"]
)
def test_only_runs_of_the_folder_are_read(site: Site, name: str):
    for page in ("head", "stream"):
        status, document, _ = ask(site, f"/api/runs/{name}/{page}")
        assert status == 404, document


def test_mistakes_are_documents_with_what_to_do(site: Site):
    for path in (
        "/api/runs/polca-1/nothing",
        "/api/runs/polca-1/candidates?sort=x",
        "/api/runs/polca-1/candidate?id=zz",
    ):
        status, document, _ = ask(site, path)
        assert status in (400, 404) and document["error"]["what"]


def test_a_message_reaches_the_inbox(site: Site, tmp_path: Path):
    own = served(tmp_path)
    new_run(tmp_path, "mine").close()
    told = {"X_Culmen_Token": own.token, "Origin": own.base}
    status, document, _ = ask(
        own, "/api/runs/mine/hint", "POST", {"text": " look at the corners "}, **told
    )
    assert status == 200 and document["taken"] is False  # nobody runs it
    parts = {"main.py": "x = 2"}
    assert ask(own, "/api/runs/mine/candidate", "POST", {"parts": parts}, **told)[0] == 200
    kept = [
        (message.kind, message.text, message.parts)
        for message in inbox.waiting_messages(tmp_path / "mine")
    ]
    assert kept == [("hint", "look at the corners", {}), ("candidate", "", parts)]
    assert ask(own, "/api/runs/mine/stop", "POST", {}, **told)[0] == 400  # nobody to stop
    assert ask(own, "/api/runs/mine/erase", "POST", {}, **told)[0] == 404
    for path, body in (("hint", {}), ("candidate", {"parts": {"a": 1}}), ("hint", ["text"])):
        assert ask(own, f"/api/runs/mine/{path}", "POST", body, **told)[0] == 400
    large = {"text": "x" * 3_000_000}
    assert ask(own, "/api/runs/mine/hint", "POST", large, **told)[0] == 400
    assert len(inbox.waiting_messages(tmp_path / "mine")) == 2


def raw_post(site: Site, body: bytes, length: int) -> int:
    """The status of a message that claims `length` bytes and sends these.

    It is -1 if the line was cut.
    """
    head = f"POST /api/runs/mine/hint HTTP/1.1\r\nHost: {host(site)}\r\nContent-Type: application/json\r\n"
    head += f"X-Culmen-Token: {site.token}\r\nContent-Length: {length}\r\n\r\n"
    address = urlsplit(site.base)
    with socket.create_connection((address.hostname, address.port), timeout=60) as line:
        try:
            line.sendall(head.encode() + body)
            return int(line.recv(200).split()[1])
        except (ConnectionError, IndexError):
            return -1


def test_a_flood_is_not_read_to_its_end_and_deep_json_is_a_mistake_of_the_sender(
    site: Site, tmp_path: Path
):
    own = served(tmp_path)
    new_run(tmp_path, "mine").close()
    for body in (
        b"[" * 100_000 + b"]" * 100_000,
        b'{"text": ' * 5_000 + b"1" + b"}" * 5_000,
        b"\xff",
        b"{",
    ):
        assert raw_post(own, body, len(body)) == 400
    assert raw_post(own, b"x" * 17_000_000, 300_000_000) in (
        400,
        -1,
    )  # the other 283 MB are never sent
    assert (
        ask(own, "/api/runs/mine/hint", "POST", {"text": "x"}, X_Culmen_Token=own.token)[0] == 200
    )


def test_a_stream_tells_of_changes_once_they_are_durable(tmp_path: Path):
    own = served(tmp_path)
    with new_run(tmp_path, "mine") as journal:
        connection = http.client.HTTPConnection(host(own), timeout=60)
        connection.request("GET", "/api/runs/mine/stream")
        answer = connection.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        assert json.loads(_data(answer)) == {"seq": 0}
        threading.Timer(0.3, lambda: journal.append([state("running"), state("finished")])).start()
        while json.loads(_data(answer))["seq"] < 2:
            pass
        connection.close()


def _data(answer: http.client.HTTPResponse) -> bytes:
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            return line[6:]


def test_runs_that_come_and_go_are_found(tmp_path: Path):
    own = served(tmp_path)
    assert ask(own, "/api/runs")[1]["runs"] == []
    new_run(tmp_path, "one").close()
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "journal.db").write_text(
        "no database at all, but long enough to be taken for one" * 40
    )
    listed = {Path(run["path"]).name: run for run in ask(own, "/api/runs")[1]["runs"]}
    assert {name: run["state"] for name, run in listed.items()} == {
        "one": "interrupted",
        "junk": "damaged",
    }
    assert (
        "damaged" in listed["junk"]["why"]
        and "recover" in listed["junk"]["fix"]
        and listed["one"]["why"] == ""
    )
    assert ask(own, "/api/runs/junk/head")[0] == 400
    compared = ask(own, "/api/compare")[1]
    assert [run["name"] for run in compared["runs"]] == compared["names"] == ["one"]
    assert [run["name"] for run in compared["unread"]] == ["junk"]


def test_a_run_made_anew_under_the_name_of_a_deleted_one_is_read_anew(tmp_path: Path):
    own = served(tmp_path)
    for scores in ((1.0, 2.0, 3.0), (7.0,)):
        with new_run(tmp_path) as journal:
            journal.append(
                [
                    state("running"),
                    *(observed(n, program(n), score) for n, score in enumerate(scores, 1)),
                ]
            )
            journal.append([proposed(9, *(program(n) for n in range(1, len(scores) + 1)))])
        drawn = ask(own, "/api/runs/run-1/lineage")[1]
        assert sorted(drawn["means"]) == sorted(scores) and drawn["evaluations"] == [
            len(scores)
        ] * len(scores)
        (tmp_path / "run-1").rename(tmp_path / f"old-{len(scores)}")


def test_every_page_of_every_run_can_be_made(site: Site):
    """Also of runs with evaluations of candidates that no event has reported yet."""
    names = [run["name"] for run in ask(site, "/api/runs")[1]["runs"]]
    assert {"advisor", "hostile", "agents", "empty", "polca-1"} <= set(names)
    for name in names:
        for page in page_makers():
            status, document, _ = ask(site, f"/api/runs/{name}/{page}")
            assert status == 200 or (page == "candidate" and status == 404), (name, page, document)


def test_the_initial_program_is_drawn_at_the_score_that_the_result_compares_with(site: Site):
    """Not at its mean of all evaluations, once fresh ones have confirmed the result."""
    digest = Digest(site.run("polca-1"))
    result = views.run_status(digest.run).best
    assert result is not None and result.initial is not None
    other = structs.replace(result, initial=structs.replace(result.initial, score=0.125))
    objective = digest.meta.task.objective
    assert reference_levels(objective, digest, other)["initial"] == 0.125
    noisy = structs.replace(result.initial, score=14.8779, margin=4.5)
    wide = structs.replace(result, initial=noisy)
    assert reference_levels(objective, digest, wide)["initial"] == 14.9
    assert reference_levels(objective, digest)["initial"] == objective.start == 0.2
    mean = views.candidate_rows(digest.run, "old", operator="seed", limit=1)[0].mean
    assert reference_levels(structs.replace(objective, start=None), digest)["initial"] == mean


def test_what_is_in_flight_names_its_candidate(tmp_path: Path):
    with new_run(tmp_path) as journal:
        journal.append([state("running"), proposed(1, program(1)), observed(2, program(1), 1.0)])
        hung = {"of": program(1).id, "case": "case <7>"}
        journal.append(
            [
                Entry("started", 3, "m", "evaluate", hung, elapsed=2.0),
                Entry("started", 4, "m", "write"),
            ]
        )
        found = page_makers()["overview"](Digest(tmp_path / "run-1"), {})["in_flight"]
    assert [(each["effect"], each["of"], each["case"], each["since"]) for each in found] == [
        ("evaluate", program(1).id, "case <7>", 2.0),
        ("write", "", "", 0.0),
    ]


def test_a_run_that_cannot_be_looked_at_does_not_stop_the_watching(tmp_path: Path):
    """One whose folder points to nothing (yet), beside one that is there."""
    new_run(tmp_path, "mine").close()
    write_pointer(tmp_path / "gone", parse_address("postgresql://127.0.0.1:1/none#gone"))
    assert (
        change_signature(tmp_path / "gone") is None
        and change_signature(tmp_path / "mine") is not None
    )
    listed = {run["name"]: run["state"] for run in ask(served(tmp_path), "/api/runs")[1]["runs"]}
    assert listed == {"mine": "interrupted", "gone": "unreadable"}


def test_a_strategy_says_in_sentences_how_it_fares(tmp_path: Path):
    """And whether that is as it should be: each rule with notes on either side of it."""

    def said(kind: str, *bodies: dict[str, Any]) -> tuple[str, bool]:
        run = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        with new_run(tmp_path, run.name) as journal:
            journal.append([Entry("note", body={"note": kind, **body}) for body in bodies])
        (found,) = condition_findings(Digest(run).refresh())
        return found["text"], found["healthy"]

    steps = [{"action": "children", "of": "a", "gain": 1.0}] * 4 + [
        {"action": "again", "of": "a", "gain": 0.5}
    ] * 4
    text, healthy = said("pedigree", *steps)
    assert healthy and "4 requests for children, 4 repeated evaluations" in text and "50%" in text
    assert not said("pedigree", *steps[:4], *({"action": "again", "of": "a", "gain": 0.001},) * 4)[
        1
    ]
    told = "The memory holds 9 programs; 3 of 12 were refused as too similar."
    assert said("memory", {"size": 9, "refused": 3}) == (told, True)
    assert not said("memory", {"size": 9, "refused": 30})[1]
    for kind, name in (
        ("grid", "entered"),
        ("pareto", "accepted"),
        ("puct", "kept"),
        ("experiment", "better"),
    ):
        good, bad = {name: ["x"] if name == "kept" else 1}, {name: [] if name == "kept" else 0}
        assert said(kind, *[bad] * 5, good)[1] and not said(kind, good, *[bad] * 5)[1], kind
        assert said(kind, *[bad] * 5)[1], "five say nothing yet"
    new, refused = {"candidates": [{"outcome": "new"}]}, {"candidates": [{"outcome": "refused"}]}
    assert said("event", *[refused] * 5, new)[1] and not said("event", new, *[refused] * 5)[1]
    fine: dict[str, Any] = {"alpha": 0.5, "skip": "", "alarms": []}
    assert said("barrier", *[fine] * 6)[1] and "alpha is 0.50" in said("barrier", fine)[0]
    assert not said("barrier", *[fine] * 5, {**fine, "alarms": ["x"]})[1]
    assert not said("barrier", *[{**fine, "skip": "alike"}] * 4, *[fine] * 3)[1]
    assert not said("few_turns", {"turns": 2, "evaluations": 30, "needed": 90})[1]
    assert not said("filter_crowded", {"told": "The filter refused most."})[1]
    assert not said("experiment", {"score": None, "best": None})[1]
    assert "the best 0.5" in said("experiment", {"score": 0.5, "best": 0.5})[0]


def test_tags_and_remarks_are_kept_beside_the_journal(tmp_path: Path):
    own = served(tmp_path)
    new_run(tmp_path, "mine").close()
    told = {"X_Culmen_Token": own.token}
    said = {"tags": [" hopeful ", "paper", "hopeful", ""], "remark": "noise 0.3 <b>\nsecond line"}
    assert ask(own, "/api/runs/mine/labels", "POST", said)[0] == 401  # without the token
    assert ask(own, "/api/runs/mine/labels", "POST", said, **told)[1]["tags"] == [
        "hopeful",
        "paper",
    ]
    with (tmp_path / "mine" / labels.LABELS).open("ab") as file:
        file.write(b'{"tags":["to')  # the machine stopped in the middle of a change
    for path in ("/api/runs/mine/head", "/api/runs"):
        document = ask(own, path)[1]
        found = document["runs"][0] if "runs" in document else document
        assert (found["tags"], found["remark"]) == (["hopeful", "paper"], said["remark"])
    assert (
        ask(own, "/api/runs/mine/labels", "POST", {"tags": ["later"], "remark": ""}, **told)[0]
        == 200
    )
    assert labels.read_labels(tmp_path / "mine").tags == ("later",)
    for tags in ("later", [7], ["a,b"], ["x" * 41], ["a\nb"], [str(n) for n in range(21)]):
        status, document, _ = ask(
            own, "/api/runs/mine/labels", "POST", {"tags": tags, "remark": ""}, **told
        )
        assert status == 400 and document["error"]["what"]
    assert (
        ask(own, "/api/runs/mine/labels", "POST", {"tags": [], "remark": "x" * 4001}, **told)[0]
        == 400
    )
    assert labels.read_labels(tmp_path / "mine").tags == ("later",)


def test_runs_are_put_away_but_never_under_the_hands_of_their_writer(tmp_path: Path, runs: Path):
    shutil.copytree(runs / "polca-1", tmp_path / "done")
    own = served(tmp_path)
    told = {"X_Culmen_Token": own.token}
    with new_run(tmp_path, "going"):
        for how in ("delete", "archive"):
            status, document, _ = ask(own, f"/api/runs/going/{how}", "POST", {}, **told)
            assert status == 400 and "another process is writing" in document["error"]["what"]
    assert ask(own, "/api/runs/done/delete", "POST", {})[0] == 401 and (tmp_path / "done").is_dir()
    status, document, _ = ask(own, "/api/runs/going/archive", "POST", {}, **told)
    assert (
        status == 400
        and "not finished" in document["error"]["what"]
        and (tmp_path / "going").is_dir()
    )
    status, document, _ = ask(own, "/api/runs/done/archive", "POST", {}, **told)
    assert (
        status == 200 and restore_archive(Path(document["file"]), tmp_path / "back").run == "back"
    )
    assert not (tmp_path / "done").exists()
    (tmp_path / "back" / "journal.db").write_bytes(
        b"no database at all, but long enough to be taken for one" * 40
    )
    for name in ("going", "back"):  # also one that cannot be read any more
        assert ask(own, f"/api/runs/{name}/delete", "POST", {}, **told)[0] == 200
    assert ask(own, "/api/runs")[1]["runs"] == [] and not (tmp_path / "going").exists()


def test_runs_of_a_comparison_are_found_below_their_folder(tmp_path: Path):
    """Also beside runs of the folder's own; what lies inside a run is never taken for one."""
    for strategy in ("polca", "beam"):
        new_run(tmp_path / "out" / "task" / strategy, "seed-0").close()
    (tmp_path / "out" / "task" / "polca" / "seed-0" / "control").mkdir()
    new_run(tmp_path / "out" / "task" / "polca" / "seed-0" / "control", "inner").close()
    own = served(tmp_path / "out")
    names = {"task~polca~seed-0", "task~beam~seed-0"}
    assert {run["name"] for run in ask(own, "/api/runs")[1]["runs"]} == names
    assert ask(own, "/api/runs/task~beam~seed-0/head")[1]["path"].endswith("task/beam/seed-0")
    assert {run["name"] for run in ask(own, "/api/compare")[1]["runs"]} == names
    new_run(tmp_path / "out", "mine").close()
    assert {run["name"] for run in ask(own, "/api/runs")[1]["runs"]} == {"mine", *names}
    with SqlJournal.open(
        tmp_path / "out" / "mine", write=True
    ) as journal:  # a line is not kept beyond a change
        journal.append([state("running"), proposed(1, program(1)), observed(2, program(1), 1.0)])
    (line,) = [run for run in ask(own, "/api/runs")[1]["runs"] if run["name"] == "mine"]
    assert line["evaluations"] == 1
    shutil.rmtree(tmp_path / "out" / "task")
    assert ask(own, "/api/runs/task~beam~seed-0/head")[0] == 404


def test_a_single_run_shows_no_other(site: Site):
    own = Dashboard(site.run("polca-1"))
    assert own.runs.single and list(own.runs.paths()) == ["polca-1"]


def test_a_taken_port_is_said():
    from culmen.core.errors import UserError

    first = bind_port(0)
    first.listen()
    with pytest.raises(UserError, match="port"):
        bind_port(first.getsockname()[1])
    first.close()


def test_a_digest_that_follows_a_run_is_one_that_reads_it_whole(tmp_path: Path):
    """The points at which it looks do not matter.

    A torn effect, a second session and a stop are among the events.
    """
    child = program(1)
    entries = [
        state("running"),
        Entry("started", 1, "m", "propose"),
        proposed(1, child, faults={"rate_limited": 2}),
        Entry("started", 2, "m", "evaluate"),
        Entry("started", 3, "m", "evaluate"),
        observed(2, child, 1.0, elapsed=3.0),
        Entry("note", 1, body={"note": "memory", "size": 2}),
        Entry("state", body={"state": "running"}, elapsed=4.0),
        Entry("torn", 3, "m", "evaluate", elapsed=4.0),
        Entry("started", 3, "m", "evaluate", elapsed=4.0),
        Entry("stop", body={"reason": "user"}, elapsed=5.0),
        Entry("started", 4, "m", "evaluate", elapsed=5.0),
    ]
    with new_run(tmp_path) as journal:
        run = tmp_path / "run-1"
        following = Digest(run)
        for entry in entries:
            journal.append([entry])
            following.refresh()
            assert [s.end for s in following.spans if s.end is None] == [None] * len(
                views.in_flight(run)
            )
        whole = Digest(run).refresh()
    for name in ("spans", "costs", "evaluations", "notes", "faults", "sessions", "last"):
        assert getattr(following, name) == getattr(whole, name), name
    outcomes = [(span.key, span.outcome) for span in whole.spans]
    assert outcomes == [(1, "done"), (2, "done"), (3, "abandoned"), (3, "abandoned"), (4, "")]
    assert [mark.key for mark in views.in_flight(run)] == [4] and whole.faults == {
        "rate_limited": 2
    }


def test_every_page_of_every_run_is_a_document(site: Site):
    for name in (
        "empty",
        "hostile",
        "agents",
        "polca-1",
        "turboevolve-1",
        "gepa-1",
        "map_elites-1",
    ):
        digest = Digest(site.run(name))
        for page, make in page_makers().items():
            if (page, name) not in (
                ("candidate", "empty"),
                ("candidate", "agents"),
            ):  # there is no candidate at all
                assert isinstance(json.loads(encode_document(make(digest, {}))), dict), (page, name)


def test_documents_hold_what_json_cannot_say():
    assert json.loads(encode_document({"a": float("nan"), "b": "\ud800", "c": [float("inf")]})) == {
        "a": None,
        "b": "\ud800",
        "c": [None],
    }


def test_thin_series_keep_their_ends_and_extremes():
    points = [(float(x), float((x * 7919) % 1000)) for x in range(5000)]
    thinned, kept = thin_points(points, 100), thin_with_extremes(points, 100)
    assert len(thinned) == 100 and (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert len(kept) <= 102 and kept == sorted(kept)
    assert min(y for _, y in kept) == 0.0 and max(y for _, y in kept) == 999.0
    assert thin_points(points[:5], 100) == points[:5] == thin_with_extremes(points[:5], 100)


def test_the_table_sorts_filters_and_pages_like_the_whole(site: Site):
    """Every page of every sort together is the whole, once; filters keep what they say."""
    run = site.run("turboevolve-1")
    whole = {row.id: row for row in views.candidate_rows(run, limit=None)}
    for sort in (*views.SORTS, *views.LOOKED_UP):
        for down in (False, True):
            ids: list[str] = []
            while page := views.candidate_page(
                run, views.CandidateQuery(sort=sort, descending=down, offset=len(ids), limit=37)
            ).rows:
                ids += [each.row.id for each in page]
            assert sorted(ids) == sorted(whole), sort
    for (
        sort
    ) in views.LOOKED_UP:  # by what the table shows, from the highest down; without a value last
        rows = page_makers()["candidates"](
            Digest(run), {"sort": sort, "order": "desc", "limit": "500"}
        )["rows"]
        shown = [row["mean" if sort == "expected" else sort] for row in rows]
        values = [value for value in shown if value is not None]
        assert (
            len(set(values)) > 1 and values == sorted(values, reverse=True) == shown[: len(values)]
        ), sort
    best = [
        each.row.id
        for each in views.candidate_page(run, views.CandidateQuery(limit=1000)).rows
        if each.row.count
    ]
    assert best == [row.id for row in views.candidate_rows(run, "best", limit=None) if row.count]
    scored = [
        each.row
        for each in views.candidate_page(
            run, views.CandidateQuery(status="scored", limit=1000)
        ).rows
    ]
    assert scored and all(row.count and not row.failed for row in scored)
    counts = [
        views.candidate_page(run, views.CandidateQuery(status=name)).total
        for name in ("scored", "mixed", "failed", "unseen")
    ]
    assert sum(counts) == len(whole) and counts[2] > 0
    some = next(row for row in whole.values() if row.parents)
    found = views.candidate_page(run, views.CandidateQuery(text=some.parents[0], limit=1000)).rows
    assert {each.row.id for each in found} == {
        r.id for r in whole.values() if some.parents[0] in (r.id, *r.parents)
    }
    islands = dict(views.candidate_facets(run).islands)
    assert all(
        views.candidate_page(run, views.CandidateQuery(island=island)).total == count
        for island, count in islands.items()
    )
    assert views.candidate_page(run, views.CandidateQuery(text="%")).total == 0  # no wildcard


def test_a_run_that_is_deleted_while_all_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept", "gone"):
        run = new_run(tmp_path, name)
        run.append([proposed(1, program(0)), observed(2, program(0), 0.5)])
        run.close()
    runs = RunCatalog(tmp_path)
    found, lines = runs.paths(), dict(runs.list_lines())
    monkeypatch.setattr(runs, "paths", lambda: found)  # as they were when somebody began to look
    shutil.rmtree(tmp_path / "gone")
    assert [name for name, _ in runs.list_lines()] == ["kept"] and runs.progress_curve(
        lines["gone"]
    ) == []
    assert len(runs.progress_curve(lines["kept"])) == 1
    assert [(line.state, line.created) for line in views.run_lines([tmp_path / "gone"])] == [
        ("unreadable", 0.0)
    ]
