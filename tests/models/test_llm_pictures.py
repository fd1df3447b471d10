"""Pictures as feedback: from the evaluator through the journal to a model.

One model sees them, another does not.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.core import pictures
from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Objective, Task
from culmen.extensions.web.pages.candidates import candidate_detail_page as candidate_page
from culmen.extensions.web.runs import Digest
from culmen.jail.outcome import scored_outcome
from culmen.models import make_gateway
from tests.servers.openai_server import OpenAIServer


def png(wide: int = 8, high: int = 8, shade: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes([shade]) * wide for _ in range(min(high, 64)))
    head = struct.pack(">IIBBBBB", wide, high, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


JPEG = b"\xff\xd8\xff\xe0\x00\x04\0\0\xff\xc0\x00\x0b\x08\x00\x20\x00\x30\x01\x01\x11\x00\xff\xd9"


def test_kinds_and_measures_are_read_off_the_bytes() -> None:
    assert pictures.read_picture_header(png(30, 20)) == ("png", 30, 20)
    assert pictures.read_picture_header(JPEG) == ("jpeg", 48, 32)
    assert pictures.decode_picture(pictures.encode_picture(JPEG)) == JPEG


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"GIF89a not one of them", "neither"),
        (b"", "neither"),
        (b"\x89PNG\r\n\x1a\n short", "neither"),
        (b"\xff\xd8\xff\xd9", "not a complete JPEG"),
        (png(0, 5), "no pixels"),
        (png(60_000, 60_000), "pixels, more than"),
        (png() + bytes(pictures.BYTES), "more than 256 KiB"),
        ("/nowhere/plot.png", "cannot be read"),
        (3.5, "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_acceptable_picture_becomes_a_text_that_says_why(given: Any, why: str) -> None:
    (told,) = pictures.picture_artifacts({"plot": given}).values()
    assert not pictures.is_picture(told) and why in told


def test_an_evaluation_returns_few_pictures() -> None:
    many = pictures.picture_artifacts([png(shade=shade) for shade in range(7)])
    assert (
        sum(map(pictures.is_picture, many.values())) == pictures.MOST
        and "3 more" in many["images left out"]
    )
    heavy = png() + bytes(pictures.BYTES * 2 // 3)
    assert sum(map(pictures.is_picture, pictures.picture_artifacts([heavy, heavy]).values())) == 1


@pytest.mark.parametrize(
    "forged",
    ["data:image/png;base64,!!!", "data:image/png;base64,aGVsbG8=", "data:image/jpeg;base64,"],
)
def test_a_forged_picture_in_a_report_is_refused(forged: str) -> None:
    made = scored_outcome(
        {"score": 1.0, "artifacts": {"plot": forged, "note": "kept"}}, Objective()
    )
    assert (
        made.status is Status.OK
        and made.artifacts["note"] == "kept"
        and "refused" in made.artifacts["plot"]
    )


def propose(
    task: Task, model: str, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    parent = Candidate.of({"main.py": "x = 1\n"})
    seen = [
        Observation(
            parent.id,
            Status.OK,
            float(n),
            artifacts={f"plot {n}": pictures.encode_picture(png(shade=n))},
        )
        for n in range(5)
    ]

    async def main() -> None:
        gateway = make_gateway(task, model)
        await gateway.propose(Brief(parent=parent, observations=tuple(seen)), 1)
        await gateway.close()

    asyncio.run(main())
    return server.requests[0]["messages"][1]


def test_a_model_that_sees_gets_the_best_pictures_as_parts_and_no_base64_as_text(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer() as server:
        message = propose(task, "gpt-4o", server, monkeypatch)
    text, *shown = message["content"]
    assert [part["image_url"]["url"] for part in shown] == [
        pictures.encode_picture(png(shade=n)) for n in (4, 3, 2)
    ]
    assert "base64" not in text["text"] and "in this order: plot 4, plot 3, plot 2" in text["text"]


def test_a_model_that_reads_text_alone_is_told_that_there_are_pictures(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer() as server:
        message = propose(task, "plain-text-7b", server, monkeypatch)
    assert isinstance(message["content"], str) and "base64" not in message["content"]
    assert "which you cannot see: plot 4" in message["content"]


def test_pictures_count_as_tokens() -> None:
    from culmen.models.call import Call, ChatMessage

    large = pictures.encode_picture(png(1000, 1000))
    plain, shown = (Call("m", (ChatMessage("user", "look", each),)) for each in ((), (large,)))
    assert 1000 < shown.prompt_tokens() - plain.prompt_tokens() < 3000
    assert shown.most_prompt_tokens() > shown.prompt_tokens()
    assert plain.sample_digest() != shown.sample_digest()


def test_a_run_keeps_pictures_as_blobs_and_shows_them(tmp_path: Path) -> None:
    picture = png(64, 64, 7) + bytes(9000)
    (tmp_path / "plot.png").write_bytes(picture)

    def judge(text: str) -> dict[str, Any]:
        return {
            "score": float(len(text)),
            "images": {"a": str(tmp_path / "plot.png"), "b": b"rubbish"},
        }

    study = culmen.optimize(
        "abc", judge, budget=culmen.Budget(evaluations=12), run_dir=tmp_path / "run", progress=False
    )
    seen = study.evaluations()[0]
    assert (
        pictures.decode_picture(seen.artifacts["a"]) == picture and "refused" in seen.artifacts["b"]
    )
    page = candidate_page(Digest(tmp_path / "run"), {"id": seen.candidate})
    assert any(pictures.is_picture(each["artifacts"]["a"]) for each in page["observations"])
    assert (tmp_path / "run" / "journal.db").stat().st_size < 20 * len(picture) + 400_000


def test_a_scorer_returns_pictures_from_its_own_process(tmp_path: Path) -> None:
    place = tmp_path / "task"
    place.mkdir()
    (place / "task.toml").write_text('goal = "x"\n[seed]\nfiles = ["p.py"]\n')
    (place / "p.py").write_text("def run():\n    return 1.0\n")
    (place / "plot.png").write_bytes(png())
    code = "import os\n\ndef score(output):\n    here = os.path.dirname(__file__)\n"
    (place / "evaluator.py").write_text(
        code + '    return {"score": output, "images": [os.path.join(here, "plot.png")]}\n'
    )
    study = culmen.Study.create(
        place, run_dir=tmp_path / "run", budget=culmen.Budget(evaluations=10)
    )
    study.run(progress=False)
    assert pictures.decode_picture(study.evaluations()[0].artifacts["image 1"]) == png()
