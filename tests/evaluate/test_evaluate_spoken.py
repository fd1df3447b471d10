"""Evaluators in any language: JSON lines and HTTP, per case, within limits.

Also programs that break the contract.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.jail.spoken import ProgramEvaluator
from culmen.tasks import load

pytestmark = pytest.mark.jail
NODE = """
const lines = require('readline').createInterface({input: process.stdin});
lines.on('line', line => {
  const q = JSON.parse(line);
  console.error('judging ' + q.case.id);
  const score = q.case.info.scale * q.output;
  console.log(JSON.stringify({id: q.id, score, feedback: 'seen by node', metrics: {asked: q.id}}));
});
"""
PERL = r"""
use JSON::PP; $| = 1;
while (my $line = <STDIN>) {
  my $q = decode_json($line);
  my $score = $q->{output} * $q->{case}{info}{scale};
  print encode_json({id => $q->{id}, score => $score, feedback => "seen by perl"}), "\n";
}
"""
C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  static char line[1 << 20];
  while (fgets(line, sizeof line, stdin)) {
    long id = atol(strstr(line, "\"id\": ") + 6);
    double output = atof(strstr(line, "\"output\": ") + 10), scale = atof(strstr(line, "\"scale\": ") + 9);
    printf("{\"id\": %ld, \"score\": %.17g, \"feedback\": \"seen by C\"}\n", id, output * scale);
    fflush(stdout);
  }
}
"""
CASES = '{"id": "one", "input": {"x": 1}, "info": {"scale": 1}}\n{"id": "two", "input": {"x": 2}, "info": {"scale": 10}}\n'  # noqa: E501
PYTHON = "import json, sys, time, os\nfor line in sys.stdin:\n    q = json.loads(line)\n"


def task(
    folder: Path, evaluator: str, program: str = "def run(x):\n    return x\n", limits: str = ""
) -> Path:
    (folder / "task.toml").write_text(
        f'cases = "cases.jsonl"\n[seed]\nfiles = ["p.py"]\n[evaluator]\n{evaluator}\n'
        f"[limits]\nseconds = 20\nscorer_seconds = 3\n{limits}"
    )
    (folder / "cases.jsonl").write_text(CASES)
    (folder / "p.py").write_text(program)
    return folder


def python(folder: Path, body: str, **more: str) -> Path:
    """A task judged by a Python program with this body of its loop, which is asked as any other."""
    (folder / "judge.py").write_text(PYTHON + body)
    return task(folder, f"program = {json.dumps([sys.executable, 'judge.py'])}", **more)


def seen(folder: Path, times: int = 1) -> list[Observation]:
    """The initial program on both cases, one after the other."""
    read = load(folder)

    async def work() -> list[Observation]:
        backend = LocalBackend(read, 1)
        try:
            await backend.start()
            cases = [*read.cases] * times
            return [await backend.evaluate(read.initial_candidates()[0], case, 0) for case in cases]
        finally:
            await backend.close()

    return asyncio.run(work())


def need(program: str) -> str:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    return program


@pytest.mark.parametrize(("language", "source"), [("node", NODE), ("perl", PERL), ("C", C)])
def test_each_case_is_judged_by_a_program_in_another_language(
    tmp_path: Path, language: str, source: str
) -> None:
    if language == "C":
        (tmp_path / "judge.c").write_text(source)
        subprocess.run([need("cc"), "-o", tmp_path / "judge", tmp_path / "judge.c"], check=True)
        command = ["./judge"]
    else:
        (tmp_path / "judge.x").write_text(source)
        command = [need(language), "judge.x"]
    task(tmp_path, f"program = {json.dumps(command)}")
    assert {"judge.x", "judge"} & load(tmp_path).evaluator.files.keys()
    one, two = seen(tmp_path)
    assert (one.score, two.score, one.trust) == (1.0, 20.0, "verified"), one
    assert two.feedback == f"seen by {language}" and (one.case, two.case) == ("one", "two")
    if language == "node":
        assert "judging two" in repr(two.artifacts) and two.metrics == {"asked": 2.0}


def test_what_a_program_says_before_an_answer_is_told_with_that_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two thousand times in a row.

    The thread that reads its standard error must not lag behind the answer.
    """
    (tmp_path / "judge.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    number = json.loads(line)['id']\n"
        "    print('judging', number, file=sys.stderr, flush=True)\n"
        "    print(json.dumps({'id': number, 'score': 1}), flush=True)\n"
    )
    program = ProgramEvaluator([sys.executable, str(tmp_path / "judge.py")])
    for number in range(2000):
        program.ask(json.dumps({"id": number}).encode() + b"\n")
        assert capsys.readouterr().out == f"judging {number}\n"


@contextmanager
def server(answer: Any) -> Iterator[str]:
    """An HTTP server on the loopback whose answers `answer(question)` makes: (status, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/score"
        http.shutdown()


def test_the_same_over_http(tmp_path: Path) -> None:
    def answer(q: dict[str, Any]) -> tuple[int, bytes]:
        return 200, json.dumps(
            {"id": q["id"], "score": q["output"] * q["case"]["info"]["scale"]}
        ).encode()

    with server(answer) as url:
        one, two = seen(task(tmp_path, f'url = "{url}"'))
    assert (one.score, two.score, two.trust) == (1.0, 20.0, "verified")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [(404, b"no", "status 404"), (200, b"<html>", "not JSON"), (302, b"", "status 302")],
)
def test_a_server_that_breaks_the_contract_loses_the_evaluation(
    tmp_path: Path, status: int, body: bytes, words: str
) -> None:
    with server(lambda q: (status, body)) as url:
        one, _ = seen(task(tmp_path, f'url = "{url}"'))
    assert (one.status, one.reason) == (Status.LOST, "scorer_error")
    assert words in one.feedback and "the contract: each question" in one.feedback


def test_a_server_that_is_away_is_said_before_anything_runs(tmp_path: Path) -> None:
    with server(lambda q: (200, b"")) as url:
        task(tmp_path, f'url = "{url}"')
    with pytest.raises(TaskError, match=r"(?s)cannot be used.*Errno.*start the server"):
        seen(tmp_path)


def say(answer: str) -> str:
    """A line of the loop that prints this as JSON."""
    return f"    print(json.dumps({answer}), flush=True)\n"


ANSWER = "    print(json.dumps({'id': q['id'], 'score': q['output']}), flush=True)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [  # the body of the loop
        ("    sys.exit(3)\n", Status.LOST, ("ended without an answer (status 3)", "contract")),
        ("    print('hello', flush=True)\n", Status.LOST, ("not JSON: 'hello", "contract")),
        (say("{'score': 1.0}"), Status.LOST, ("lacks the id", "contract")),
        (say("{'id': q['id']}"), Status.LOST, ("has no score", "contract")),
        (say("{'id': q['id'], 'score': 1, 'metrics': [1]}"), Status.LOST, ("metrics",)),
        (say("{'id': q['id'], 'score': 'high'}"), Status.INVALID, ("not a number",)),
        (say("{'id': q['id'], 'score': float('nan')}"), Status.INVALID, ("not finite",)),
        (say("{'id': q['id'], 'score': None, 'feedback': 'no'}"), Status.INVALID, ("no",)),
        (say("{'id': q['id'], 'error': 'my bug'}"), Status.INVALID, ("my bug",)),
        ("    print('x' * (17 << 20), flush=True)\n", Status.LOST, ("longer than", "contract")),
        ("    time.sleep(60)\n", Status.LOST, ("did not answer within 3 s",)),
        ("    while True: pass\n", Status.REJECTED, ("longer than 3 s",)),
        ("    sys.stderr.write('e' * (50 << 20)); sys.stderr.flush()\n" + ANSWER, Status.OK, ()),
    ],
)
def test_a_program_that_breaks_the_contract_loses_nothing_but_the_evaluation(
    tmp_path: Path, body: str, status: Status, words: tuple[str, ...]
) -> None:
    one = seen(python(tmp_path, body))[0]
    assert one.status is status and all(word in one.feedback for word in words), one
    assert (one.score is not None) == (status is Status.OK)
    assert sum(map(len, one.artifacts.values())) < 100_000


def test_an_answer_too_many_is_never_taken_for_the_next(tmp_path: Path) -> None:
    twice = ANSWER + "    print(json.dumps({'id': q['id'], 'score': 1e6}), flush=True)\n"
    for observation in seen(python(tmp_path, twice), times=2):
        assert observation.score in (None, 1.0, 2.0)


def test_what_json_does_not_have_is_invalid(tmp_path: Path) -> None:
    for returned in ("float('nan')", "b'bytes'", "1j"):
        one = seen(python(tmp_path, ANSWER, program=f"def run(x):\n    return {returned}\n"))[0]
        assert one.status is Status.INVALID and "cannot be written as JSON" in one.feedback


def test_arrays_go_as_lists_and_a_candidate_in_any_language_is_a_command(tmp_path: Path) -> None:
    body = "    print(json.dumps({'id': q['id'], 'score': sum(q['output'])}), flush=True)\n"
    program = "import numpy\ndef run(x):\n    return numpy.arange(4.0)\n"
    assert seen(python(tmp_path, body, program=program))[0].score == 6.0
    body = "    print(json.dumps({'id': q['id'], 'score': q['data']['twice']}), flush=True)\n"
    python(tmp_path, body, program="read x; echo '{\"twice\": 8}'\n")
    toml = (tmp_path / "task.toml").read_text()
    (tmp_path / "task.toml").write_text(
        toml.replace("program =", 'form = "command"\ncommand = ["sh", "{p.py}"]\nprogram =')
    )
    assert seen(tmp_path)[0].score == 8.0


@pytest.mark.extension("compat")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('url = "http://example.com/score"', ("http://127.0.0.1:PORT", "to other hosts")),
        ('url = "https://127.0.0.1:1/"', ("http://127.0.0.1:PORT",)),
        ('program = ["no-such-program"]', ("no program 'no-such-program'",)),
        ('program = ["sh"]\nurl = "http://127.0.0.1:1/"', ("two evaluators",)),
        ('program = ["sh"]\nform = "legacy"', ("needs an evaluator in Python",)),
    ],
)
def test_a_task_that_cannot_be_asked_is_refused(
    tmp_path: Path, line: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(TaskError) as caught:
        load(task(tmp_path, line))
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_changed_program_stops_the_run(tmp_path: Path) -> None:
    python(tmp_path, ANSWER)
    before = load(tmp_path)
    (tmp_path / "judge.py").write_text(PYTHON + ANSWER + "\n")
    assert load(tmp_path).digest != before.digest
