"""`evaluator = "docker:IMAGE"`: an image that judges.

One container for each scorer, without network and rights.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load
from tests.evaluate.conftest import wait_until
from tests.extensions.containers.test_container_jail import orphans

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
JUDGE = """
import json, os, socket, sys, time
def shut(attempt):
    try: attempt()
    except OSError: return True
    return False
apart = (os.getuid() == 65534 and shut(lambda: open("/x", "w")) and shut(lambda: open("/usr/x", "w"))
         and shut(lambda: socket.create_connection(("1.1.1.1", 53), 1)) and not os.path.exists({folder!r}))
open("/tmp/x", "w").close()
for line in sys.stdin:
    q = json.loads(line)
    if q["output"] == 13: os._exit(3)
    if q["output"] == 14: time.sleep(600)
    print(json.dumps(dict(id=q["id"], score=q["output"] * 2.0, feedback=f"apart {{apart}}")), flush=True)
"""


def folder_of(path: Path, evaluator: str) -> Path:
    (path / "task.toml").write_text(
        f'goal = "a large number"\n{evaluator}\n[seed]\nfiles = ["program.py"]\n[limits]\nscorer_seconds = 5\n'
    )
    (path / "program.py").write_text("def run():\n    return 1\n")
    return path


def scores(path: Path, *values: int) -> list[Observation]:
    async def work() -> list[Observation]:
        backend = LocalBackend(load(path), 1)
        try:
            await backend.start()
            text = "def run():\n    return {}\n"
            programs = [Candidate.of({"program.py": text.format(value)}) for value in values]
            return [await backend.evaluate(program, None, 1) for program in programs]
        finally:
            await backend.close()

    return asyncio.run(work())


@pytest.mark.slow
def test_an_image_judges_apart_and_is_started_anew_when_it_ends_or_hangs(
    podman: str, tmp_path: Path
) -> None:
    judge = JUDGE.format(folder=str(tmp_path))
    words = [f"docker:{podman}", "python3", "-c", judge]
    good, ended, hung, again = scores(
        folder_of(tmp_path, f"evaluator = {{program = {json.dumps(words)}}}"), 3, 13, 14, 4
    )
    assert good.score == 6.0 and good.feedback == "apart True" and good.trust == "verified"
    assert ended.status is Status.LOST
    assert hung.score is None and again.score == 8.0
    assert wait_until(lambda: not orphans())


def test_the_short_form_names_the_image_and_a_missing_one_is_said(
    podman: str, tmp_path: Path
) -> None:
    folder_of(tmp_path, 'evaluator = "docker:localhost/culmen-nothing"')
    assert load(tmp_path).evaluator.program == ("docker:localhost/culmen-nothing",)
    with pytest.raises(TaskError, match="podman pull localhost/culmen-nothing"):
        scores(tmp_path, 1)
