"""Odd model servers: any reply, no crash, no key on the disk, no request to another host."""

from __future__ import annotations

import asyncio
import itertools
import resource
import ssl
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.errors import Unavailable, UserError
from culmen.core.task import Task
from culmen.core.usage import Usage, total_usage
from culmen.models import make_gateway
from culmen.models.call import Call, ChatMessage
from culmen.models.caller import Caller
from culmen.models.limits import Health
from culmen.models.spec import Key, PriceList, RetryPolicy
from tests.models.conftest import SECRET
from tests.servers.zoo_server import ALL, REDIRECTS, Zoo, random_replies

MODELS = """
[providers.zoo]
base_url = "{url}"
key_env = "TEST_KEY"
base = 0.001
cap = 0.002
retries = 1
bad_retries = 1
timeout = 5
patience = 0.02
[models.m]
provider = "zoo"
max_tokens = 1000
price = {{ input = 1.0, output = 4.0 }}
"""


def propose(task: Task, folder: Path, zoo: Zoo, lanes: int) -> list[Proposal | Exception]:
    """The proposals of `lanes` requests at once, or the errors that end a run.

    Other errors are raised.
    """
    (folder / "m.toml").write_text(MODELS.format(url=zoo.url))

    async def main() -> list[Any]:
        gateway = make_gateway(
            task, "m", models_file=str(folder / "m.toml"), cache_dir=folder / "cache"
        )
        brief = Brief(parent=task.initial_candidates()[0])
        try:
            made = (gateway.propose(brief, seed) for seed in range(lanes))
            return list(await asyncio.gather(*made, return_exceptions=True))
        finally:
            await gateway.close()

    made = asyncio.run(asyncio.wait_for(main(), 60))
    for one in made:
        if isinstance(one, BaseException) and not isinstance(one, UserError | Unavailable):
            raise one
    return made


def assert_no_key(made: list[Any], folder: Path) -> None:
    assert not any(SECRET in text for text in map(str, made))
    assert not any(
        SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file()
    )


def spent(made: list[Any]) -> Usage:
    return total_usage(one.usage for one in made if isinstance(one, Proposal))


@pytest.mark.slow
@pytest.mark.parametrize("redirect", REDIRECTS)
def test_every_kind_of_reply_straight_and_redirected(
    redirect: str, task: Task, tmp_path: Path
) -> None:
    follows = redirect in ("", "307 same", "301 same")
    kinds = ALL if follows else ("good",)
    for kind, lanes in itertools.product(kinds, (1, 3)):
        folder = tmp_path / f"{lanes} {kind}".replace("/", "")
        folder.mkdir()
        with Zoo((kind,), redirect) as zoo:
            made = propose(task, folder, zoo, lanes)
        assert_no_key(made, folder)
        assert zoo.stolen == [], kind
        assert spent(made).at_most("tokens") <= 4 * sum(zoo.asked.values()) * 20_000, kind
        if kind in ("good", "gzip", "deflate", "bare deflate", "usage 10^7", "key in the text"):
            whole = [one for one in made if isinstance(one, Proposal) and one.candidates]
            assert len(whole) == (lanes if follows else 0), (kind, made)
        if not follows and redirect != "303 same":
            assert all(isinstance(one, UserError) and "redirects" in one.what for one in made)


def test_what_was_not_asked_for_costs_no_second_request(task: Task, tmp_path: Path) -> None:
    with Zoo(("gzip",)) as zoo:
        made = propose(task, tmp_path, zoo, 4)
    assert sum(zoo.asked.values()) == 4 == spent(made).calls


def test_counts_that_no_request_can_have_are_bounded_and_said(task: Task, tmp_path: Path) -> None:
    for kind in ("usage 10^7", "usage 10^18", "usage 10^30", "usage of 4,000 digits", "usage zero"):
        (tmp_path / kind).mkdir()
        with Zoo((kind,)) as zoo:
            (made,) = propose(task, tmp_path / kind, zoo, 1)
        assert isinstance(made, Proposal) and made.candidates and made.fault == ""
        assert made.usage.unpriced == 1 and 1_000 < made.usage.at_most("tokens") < 20_000
        miscounted = {} if kind == "usage zero" else {"miscounted": 1}
        assert made.faults == {**miscounted, "by_bytes": 1}, kind


def test_a_long_reply_is_not_kept_in_memory(task: Task, tmp_path: Path) -> None:
    for kind in (
        "endless body",
        "endless length",
        "endless headers",
        "endless white space",
        "gzip bomb",
    ):
        (tmp_path / kind).mkdir()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Zoo((kind,)) as zoo:
            made = propose(task, tmp_path / kind, zoo, 1)
        assert (
            zoo.bytes < 2**28
            and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
        )
        assert all(not (isinstance(one, Proposal) and one.candidates) for one in made)


def test_http_that_redirects_to_https_of_the_same_host_is_followed(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    options = (
        "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    )
    name = ("-addext", "subjectAltName=IP:127.0.0.1")
    made_by = ["openssl", "req", *options.split(), *name, "-keyout", key, "-out", cert]
    subprocess.run(made_by, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    with Zoo(("good",), tls=tls) as secure, Zoo(("good",), "301 other") as plain:
        plain._target = lambda path: secure.url.removesuffix("/v1") + path
        made = propose(task, tmp_path, plain, 4)
        assert all(isinstance(one, Proposal) and one.candidates for one in made), made
        assert sum(secure.asked.values()) == 4 >= sum(plain.asked.values())
    assert "set base_url to https" in caplog.text


class RandomServer:
    """Sends the next random reply to each connection, and closes it."""

    def __init__(self) -> None:
        self.replies, self.sent = random_replies(), 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(
                int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            )
            self.sent += 1
            writer.write(next(self.replies))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.mark.slow
def test_10_000_random_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    from culmen.models.backends import OpenAIBackend
    from culmen.models.endpoint import Endpoint

    monkeypatch.setenv("TEST_KEY", "sk-zoo-0123456789")
    call, ended, most = Call("m", (ChatMessage("user", "hi"),), max_tokens=100), Counter[str](), 0

    async def lane(caller: Caller, random: RandomServer) -> None:
        nonlocal most
        while random.sent < 10_000:
            try:
                outcome = await caller.call(call, PriceList("m"))
            except (UserError, Unavailable) as error:
                ended[type(error).__name__] += 1
                assert "sk-zoo-0123456789" not in str(error)
                continue
            raw = msgspec.json.encode(outcome)
            assert b"sk-zoo-0123456789" not in raw
            ended[outcome.fault or "used"] += 1
            most = max(most, int(outcome.usage.at_most("tokens")))

    async def main() -> None:
        random = RandomServer()
        server = await asyncio.start_server(random.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        key = Key("TEST_KEY")
        backend, health = OpenAIBackend(Endpoint(key, url, 5.0)), Health(threshold=10**9)
        caller = Caller(
            backend,
            policy=RetryPolicy(retries=0, bad_retries=0, base=0.0, cap=0.0),
            key=key,
            health=health,
        )
        await asyncio.gather(*(lane(caller, random) for _ in range(8)))
        await caller.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 300))
    assert sum(ended.values()) > 4_000 and len(ended) > 10 and ended["used"] > 500, ended
    assert most < 100_000
