"""Faults recur, have a command in their place, and differ from work that goes its way."""

from __future__ import annotations

import pytest

from culmen.extensions.skills.mining.commands import judge_commands, split_segments
from culmen.extensions.skills.mining.faults import (
    RecurringFault,
    error_line,
    find_correction,
    find_faults,
    normalize_error,
)
from culmen.extensions.skills.mining.logs import LoggedStep, SessionLog


def user(text: str) -> LoggedStep:
    """Words of a person."""
    return LoggedStep("user", text)


def ran(command: str, error: str = "") -> LoggedStep:
    """A command that failed with an error, or worked."""
    return LoggedStep("agent", "", command, error or "ok", int(bool(error)), bool(error))


def faults(*steps: list[LoggedStep], least: int = 2) -> list[RecurringFault]:
    """The faults of sessions with these steps."""
    return find_faults(
        [SessionLog("claude", str(n), str(n), each) for n, each in enumerate(steps)], least
    )


def patterns(found: list[RecurringFault]) -> list[tuple[str, str, int]]:
    """Patterns of the faults that can be replayed."""
    return [
        (" ".join(one.avoid), " ".join(one.use), one.sessions) for one in found if not one.why_not
    ]


PIP = "error: externally-managed-environment"


def pip(name: str) -> list[LoggedStep]:
    """A session in which pip fails and uv works."""
    return [
        user(f"add {name}"),
        ran(f"pip install {name}", PIP),
        ran("pip --version"),
        ran(f"uv add {name} --dev"),
    ]


def test_faults_are_what_sessions_share() -> None:
    found = faults(pip("a"), pip("b"), [*pip("c"), *pip("c")])
    assert patterns(found) == [("pip install", "uv add --dev", 3)]
    assert found[0].name == "use-uv-add-dev-not-pip-install"
    assert len(found[0].evidence) == 4 and found[0].error == PIP
    first = found[0].evidence[0]
    assert (first.request, first.before) == ("add a", ["pip install a"])
    assert first.after == ["uv add a --dev"]
    assert faults(pip("a"), pip("b"), least=3) == []


def test_requests_are_a_persons_words() -> None:
    """Marks of the program, and corrections, are no request."""
    extra = [
        user("<command-name>/clear</command-name>"),
        user("[Request interrupted by user]"),
        user("use a not b"),
    ]
    session = [pip("a")[0], *extra, *pip("a")[1:]]
    (one,) = (each for each in faults(session, session) if each.use)
    assert {each.request for each in one.evidence} == {"add a"}


def test_faults_of_different_errors_are_united_by_their_patterns() -> None:
    other = [user("x"), ran("pip install d", "bash: pip: command not found"), ran("uv add d --dev")]
    one = [user("x"), ran("pip install e", "bash: pip: command not found"), ran("uv add e --dev")]
    assert patterns(faults(pip("a"), pip("b"), other, one)) == [("pip install", "uv add --dev", 4)]


def test_a_command_that_works_later_is_no_fault() -> None:
    """Tests fail until the code is right: the same command is then green."""
    red = [
        user("fix"),
        ran("pytest a", "E  assert 1 == 2"),
        ran("cat a.py"),
        ran("pytest a"),
        ran("pytest a -v"),
    ]
    assert faults(red, red) == []


def test_a_command_that_works_elsewhere_is_not_replayed() -> None:
    good = [user("x"), ran("pip install z"), ran("pip install y")]
    (one,) = faults(pip("a"), pip("b"), good)
    assert one.why_not == "the command worked 2 times and failed 2 times"
    assert patterns(faults(pip("a"), pip("b"), good[:2])) == [("pip install", "uv add --dev", 2)]


@pytest.mark.parametrize(
    "between",
    [
        ran("git status"),
        ran("which tsc"),
        ran("tail -5 web/log"),
        ran("git log push"),
        ran("git push --help", "no manual entry"),
    ],
)
def test_a_look_around_is_no_replacement(between: LoggedStep) -> None:
    session = [
        user("publish"),
        ran("git push", "fatal: no upstream branch"),
        between,
        ran("git push -u origin HEAD"),
    ]
    assert ("git push", "git push -u origin HEAD", 2) in patterns(faults(session, session))


def test_a_fault_without_a_replacement_is_named() -> None:
    lost = [user("x"), ran("./deploy it", "permission denied"), user("leave it"), ran("./ship it")]
    (one,) = faults(lost, lost)
    assert one.why_not == "no other command that worked came after it"


@pytest.mark.parametrize(
    ("text", "wrong", "right"),
    [
        ("no, use uv not pip", "pip", "uv"),
        ("please use `ruff format` instead of black", "black", "ruff format"),
        ("Don't use rm, use trash.", "rm", "trash"),
        ("instead of make use just please", "make", "just"),
        ("stop running npm, use pnpm", "npm", "pnpm"),
    ],
)
def test_corrections(text: str, wrong: str, right: str) -> None:
    found = find_correction(text)
    assert found is not None and found[0].split()[0] == wrong and found[1].startswith(right)


def test_no_correction() -> None:
    for text in ("use the parser", "do not hurry", "this is not what I meant", "why not?"):
        assert find_correction(text) is None


def test_corrected_commands_need_not_fail() -> None:
    session = [
        user("tidy up"),
        ran("black src"),
        user("use ruff format, not black"),
        ran("ruff format src"),
    ]
    other = [
        user("tidy up b"),
        ran("black b"),
        user("use ruff format instead of black"),
        ran("ruff format b"),
    ]
    (one,) = faults(session, other)
    assert patterns([one]) == [("black", "ruff format", 2)] and one.kind == "corrected"
    assert one.evidence[1].request == "tidy up b"
    tabs = [user("write it"), LoggedStep("agent", "here"), user("use tabs instead of spaces")]
    (bare,) = faults(tabs, tabs)
    assert bare.why_not == "no command that the correction is about is recorded"


def test_errors_are_normalised() -> None:
    one = normalize_error("E   ModuleNotFoundError: No module named 'app.a' in /x/y.py:12")
    assert one == normalize_error("E   ModuleNotFoundError: No module named 'b' in /z.py:9")
    assert one != normalize_error("E   ImportError: cannot import 'a'")
    assert error_line("building\nerror: bad thing\nmore") == "error: bad thing"
    assert error_line("building\nstopped\n") == "stopped"


@pytest.mark.parametrize(
    ("line", "segments"),
    [
        (
            "cd web && A=1 npm test 2>&1 | tail -3",
            [["cd=web", "A=1", "npm", "test"], ["cd=web", "tail", "-3"]],
        ),
        ("sudo make -C x; echo 'a && b' > f", [["make", "-C", "x"], ["echo", "a && b"]]),
        ("echo 'open", [["echo", "'open"]]),
        ('git commit -m "a;b"\nls', [["git", "commit", "-m", "a;b"], ["ls"]]),
        ("docker run -v /a:/b img", [["docker", "run", "-v", "/a:/b", "img"]]),
        ("f(x)", [["f"], ["x"]]),
    ],
)
def test_commands_as_words(line: str, segments: list[list[str]]) -> None:
    assert split_segments(line) == segments


@pytest.mark.parametrize(
    ("text", "avoid", "use", "wrong"),
    [
        ("uv add x", "pip install", "uv add", ""),
        ("# pip install x\nuv add x", "pip install", "uv add", ""),
        ("uv add x\npip install y", "pip install", "uv add", "`pip install` is used"),
        ("ls", "pip install", "uv add", "`uv add` is not used"),
        ("", "pip install", "uv add", "`uv add` is not used"),
        ("/usr/bin/pip3 install x; uv add x", "pip install", "uv add", ""),
        ("/usr/bin/pip install x; uv add x", "pip install", "uv add", "`pip install` is used"),
        ("git push", "git push", "git push -u", "`git push` is used"),
        ("git push -u origin HEAD", "git push", "git push -u", ""),
        ("git push --force", "git push --force", "git push", "`git push --force` is used"),
        ("git push", "git push --force", "git push", ""),
        ("A=1 pytest", "pytest", "A=1 pytest", ""),
        ("git log push; git push -u x", "git push", "git push -u x", ""),
        ("echo uv add x", "pip install", "uv add", "`uv add` is not used"),
        ("python -m pytest t", "pytest", "python -m pytest", ""),
    ],
)
def test_commands_are_judged_by_the_longer_pattern(
    text: str, avoid: str, use: str, wrong: str
) -> None:
    assert judge_commands(text, avoid.split(), use.split()) == wrong
