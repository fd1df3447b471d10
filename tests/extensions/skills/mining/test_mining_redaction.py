"""No planted secret comes through the cut, whatever hides it; other texts stay."""

from __future__ import annotations

import base64
import json
import random
import string
from urllib.parse import quote

import pytest
from bench.bench_mining import Secrets
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.extensions.skills.mining.redaction import Redactor

LETTERS = string.ascii_letters + string.digits
RANDOM = st.text(LETTERS, min_size=24, max_size=60).filter(
    lambda text: len(set(text)) > 12 and any(map(str.isdigit, text))
)
PREFIXES = (
    "sk-ant-api03-",
    "sk-proj-",
    "ghp_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "AIza",
    "hf_",
    "npm_",
    "pypi-",
    "sk_live_",
    "gsk_",
    "xai-",
    "hvs.",
    "dckr_pat_",
    "shpat_",
    "whsec_",
)
AROUND = (
    "{}",
    "the key is {}.",
    "export X={}",
    "curl https://x.example/?a=1&q={}&b=2",
    'config = {{"value": "{}"}}',
    "first line\n{}\nlast line",
    "git clone https://{}@github.com/a/b",
    "a,{},b",
    r"one\n{}\ttwo",
    "\x1b[31m{}\x1b[0m",
)
HIDDEN = {
    "plain": lambda text: text,
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps(json.dumps(text))),
    "unicode escapes": lambda text: "".join(
        f"\\u{ord(c):04x}" if c in "-_aeiou" else c for c in text
    ),
    "escaped twice": lambda text: "".join(f"\\\\u{ord(c):04X}" if c in "-_05" else c for c in text),
    "url": lambda text: quote(text, safe="").replace("-", "%2D").replace("_", "%5F"),
    "zero width": lambda text: "\u200b".join(text),
}


@settings(max_examples=300, deadline=None)
@given(RANDOM, st.sampled_from(PREFIXES), st.sampled_from(AROUND), st.sampled_from(sorted(HIDDEN)))
def test_redaction_keys_with_known_beginnings(
    letters: str, prefix: str, around: str, hidden: str
) -> None:
    key = prefix + letters
    found = Redactor().cut(HIDDEN[hidden](around.format(key)))
    assert letters[:12] not in found and letters[-12:] not in found
    assert "-1]" in found


@settings(max_examples=200, deadline=None)
@given(
    st.text(LETTERS, min_size=4, max_size=40).filter(
        lambda t: t.lower() not in ("none", "null", "true", "false")
    ),
    st.sampled_from(
        ["password", "DB_PASSWORD", "db-passwd", "client_secret", "PGPASSWORD", "pwd", "passphrase"]
    ),
    st.sampled_from(
        ["{}={}", "{}: {}", '"{}": "{}"', "{} = '{}'", "--{} {}", '\\"{}\\": \\"{}\\"', "{}:{}"]
    ),
)
def test_redaction_passwords_beside_their_names(value: str, name: str, form: str) -> None:
    """A password may be a word: its name gives it away."""
    text = form.format(name, f"Z{value}Q")
    assert f"Z{value}Q" not in Redactor().cut(text), text


@settings(max_examples=100, deadline=None)
@given(
    RANDOM,
    st.sampled_from(["api_key={}", "password: {}", "Authorization: Bearer {}", "sk-proj-{}"]),
    st.booleans(),
)
def test_redaction_base64(letters: str, form: str, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    run = encode(form.format(letters).encode()).decode()
    found = Redactor().cut(f"kind: Secret\ndata:\n  value: {run}\n")
    assert run.rstrip("=")[:16] not in found


def test_redaction_short_base64_and_random_tokens() -> None:
    """A run too short to look random is decoded; a long random one needs no word beside it."""
    short = base64.b64encode(b"pwd=hunter2secret9").decode()
    assert Redactor().cut(f"value {short} end") == "value [encoded-1] end"
    assert Redactor().cut("see Zk3vQ9xT7bLm2Wc8Rn5Yp1Hd6Jf4Gs0A now") == "see [key-1] now"
    assert Redactor().cut("see TestUserLoginAndLogout now") == "see TestUserLoginAndLogout now"


@pytest.mark.parametrize("seed", range(4))
def test_redaction_sentences_of_the_world(seed: int) -> None:
    """500 made sentences of 17 kinds, also as JSON in JSON: no planted secret is left."""
    secrets, redactor = Secrets(random.Random(seed)), Redactor()
    for _ in range(500):
        before = len(secrets.made)
        text = secrets.sentence()
        for form in (text, json.dumps({"result": text}), json.dumps([json.dumps(text)])):
            found = redactor.cut(form)
            for secret in secrets.made[before:]:
                assert secret not in found and secret[-12:] not in found, (form, found)
            assert redactor.cut(found) == found


def test_redaction_personal_data() -> None:
    redactor = Redactor()
    redactor.learn_names(
        ["ls /home/annabel/work", "C:\\\\Users\\\\Konstantin\\\\x", "-Users-oleksiy-code"]
    )
    text = (
        "annabel wrote from /Users/annabel/x to jane.o'x@example.com and jo+x@mail.example.co.uk, call +44 20 7946 "
        "0958 or (555) 010-4477 or 030/1234567; host 203.0.113.9, 2001:db8:0:0:0:0:2:1; C:\\Users\\Konstantin\\y; "
        "oleksiy:x"
    )
    found = redactor.cut(text)
    for secret in (
        "annabel",
        "example.com",
        "co.uk",
        "7946",
        "4477",
        "1234567",
        "203.0",
        "2001",
        "Konstantin",
        "oleksiy",
    ):
        assert secret not in found
    assert redactor.counts == {"address": 2, "email": 2, "phone": 3, "user": 3}


def test_redaction_private_keys_whole_or_torn() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQ"
    whole = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    for text in (whole, whole.replace("\n", "\\n"), whole[:70], json.dumps({"key": whole})):
        found = Redactor().cut(f"before {text} after")
        assert "MII" not in found and found.startswith("before")


def test_redaction_the_same_secret_has_one_placeholder() -> None:
    redactor = Redactor()
    one = redactor.cut("sk-proj-aaaabbbbccccdddd1 and ghp_aaaabbbbccccddddeeee1")
    assert one == "[key-1] and [key-2]"
    assert redactor.cut("TOKEN is ghp_aaaabbbbccccddddeeee1") == "TOKEN is [key-2]"
    assert redactor.counts == {"key": 2}


@pytest.mark.parametrize(
    "text",
    [
        "pip install requests==2.31.0 --upgrade",
        "git show 3f2a9c1d0b7e4f5a6c8d9e0f1a2b3c4d5e6f7a8b",
        "git clone git@github.com:org/repo.git",
        "sort --key=2 file; for key in mapping: print(key)",
        "def f(key=None, token: str = '', password=None): pass",
        "E   ModuleNotFoundError: No module named 'app.orders'",
        "tests/test_a.py::test_thing PASSED [ 50%] in 12.34s",
        "2026-01-15 10:33:22 1699999999 v1.2.3 127.0.0.1:8000",
        "/usr/lib/python3/dist-packages/Cryptodome/SelfTest/PublicKey/test_vectors",
        "Error: unexpected token ')' at 12; the token is expired",
        "docker run -p 8080:80 --name web -v /srv/data:/data image:latest",
        "std::vec::Vec, a::b::c, 10:20:30",
        "cd /home/user/project && make test",
    ],
)
def test_redaction_leaves_what_is_no_secret(text: str) -> None:
    redactor = Redactor()
    assert redactor.cut(text) == text and redactor.counts == {}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('curl -u "admin:hunter2" https://x', "hunter2"),
        ("curl -u admin:hunter2 https://x", "hunter2"),
        ("curl --user admin:hunter2 https://x", "hunter2"),
        ("curl -uadmin:hunter2 https://x", "hunter2"),
        ("API_KEY=AbCdEfGhIjKlMnOpQrStUvWxYz", "AbCdEfGhIjKlMnOpQrStUvWxYz"),
        ("ping 2001:DB8:0:0:0:0:2:1", "2001:DB8"),
        ("ping FE80::1FF:FE23:4567:890A", "4567"),
        ("ping fe80::1ff:fe23:4567:890a", "4567"),
        ("docker login -u bob -p hunter2", "hunter2"),
        ("//registry.example.org/:_auth=Ym9iOmh1bnRlcjI=", "Ym9iOmh1bnRlcjI"),
        ("echo hunter2 | sudo -S ls", "hunter2"),
        ("GITHUB_TOKEN=aaaabbbbccccdddd make", "aaaabbbbccccdddd"),
        ("curl -H 'X-Api-Key: abcdefghij' x", "abcdefghij"),
        ("password = 'a\"b12345'", "b12345"),
        ("psql postgres://user:pa/ss@host/db", "pa/ss"),
        ("https://h/v1/cGFzc3dvcmQ6IGh1bnRlcjJzZWNyZXQ=", "cGFzc3dvcmQ6IGh1bnRlcjJzZWNyZXQ"),
    ],
)
def test_redaction_finds_logins_addresses_and_paths(text: str, secret: str) -> None:
    assert secret not in Redactor().cut(text)


def test_redaction_ends_on_long_runs_of_digits() -> None:
    """Each of these took twice the time with every letter."""
    for tail in ("d" * 4000 + "g", "1:" * 4000 + "g"):
        assert Redactor().cut(f"10:20::{tail}")


def test_redaction_learns_no_names_from_addresses() -> None:
    redactor = Redactor()
    redactor.learn_names(["curl localhost/api/users/install", "curl localhost/Users/create"])
    assert redactor.cut("pip install x; gh pr create") == "pip install x; gh pr create"
    redactor.learn_names(["ls /home/annabel/x"])
    assert "annabel" not in redactor.cut("ask annabel")
