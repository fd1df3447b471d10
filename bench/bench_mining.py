"""Mining without a model: are planted faults found and cured?

Does a planted secret come through?

    python bench/bench_mining.py --seeds 5                 200 sessions and a search each
    python bench/bench_mining.py --keep FOLDER --seeds 1   leave sessions and cases there

The world writes sessions of Claude Code, Codex, OpenCode and ATIF in equal shares. Twelve faults
are planted, each in eight or more sessions: eight commands that fail until another one is used,
three that a person corrects, and one correction that no command shows, which no case can check. The
other sessions are noise: tests that fail until the code is right, commands that fail once,
corrections that are made once. Keys, passwords and personal data stand in requests, commands and
results. Cases are confirmed all, then a scripted agent works on them: it uses the right command
with probability .9 if its skill names it, otherwise with .1. A proposer without a model reads the
failed tests; the search is the real engine on a virtual clock.

cases    planted faults that became cases; false: cases of no planted fault
cured    planted faults whose right command the chosen skill names
secrets  planted secrets that a file of the cases or a request of the search has
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import string
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.task import Objective, Surface, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.skills.mining.commands import judge_commands
from culmen.extensions.skills.mining.proposals import MiningReport, accept_proposals, mine_sessions
from culmen.extensions.skills.rollouts import harbor
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape
from culmen.testing.virtual import simulate

SESSIONS, ROLLOUTS, EACH = 200, 600, 8
NAMED, UNNAMED = 0.9, 0.1  # probability of the right command
JUNK = (
    "Be careful and precise.",
    "Work as fast as you can.",
    "Explain what you do.",
    "Keep answers short.",
)
HEAD = "---\nname: house\ndescription: How we work here.\n---\n\n"


@dataclass(frozen=True)
class Planted:
    """A fault: `{x}` is another word each time; a correction has no error."""

    request: str
    wrong: str
    error: str
    right: str
    avoid: str
    use: str
    correction: str = ""
    between: str = ""


FAULTS = (
    Planted(
        "Add {x} to the project's dependencies.",
        "pip install {x}",
        "error: externally-managed-environment",
        "uv add {x}",
        "pip install",
        "uv add",
        between="pip --version",
    ),
    Planted(
        "Check that the {x} tests are green.",
        "pytest tests/test_{x}.py -q",
        "E   ModuleNotFoundError: No module named 'app_{x}'",
        "python -m pytest tests/test_{x}.py -q",
        "pytest -q",
        "python -m pytest -q",
        between="ls tests",
    ),
    Planted(
        "Start the {x} service locally.",
        "docker-compose up -d {x}",
        "bash: line 1: docker-compose: command not found",
        "docker compose up -d {x}",
        "docker-compose up -d",
        "docker compose up -d",
    ),
    Planted(
        "We need the package {x} in the front end.",
        "npm install {x}",
        "npm ERR! This project is managed by another tool: {x}",
        "pnpm add {x}",
        "npm install",
        "pnpm add",
        between="cat package.json",
    ),
    Planted(
        "Bring the {x} database up to date.",
        "python manage.py migrate {x}",
        "/bin/sh: 1: python: not found",
        "python3 manage.py migrate {x}",
        "python manage.py migrate",
        "python3 manage.py migrate",
    ),
    Planted(
        "Publish the branch with the {x} fix.",
        "git push",
        "fatal: The current branch fix-{x} has no upstream branch.",
        "git push -u origin HEAD",
        "git push",
        "git push -u origin HEAD",
        between="git status",
    ),
    Planted(
        "Do the types of the {x} module hold?",
        "cd web/{x} && tsc --noEmit",
        "sh: tsc: not found",
        "cd web/{x} && npx tsc --noEmit",
        "tsc --noEmit",
        "npx tsc --noEmit",
    ),
    Planted(
        "Apply the {x} schema change.",
        "alembic upgrade head",
        "KeyError: 'DATABASE_URL' ({x})",
        "DATABASE_URL=sqlite:///dev.db alembic upgrade head",
        "alembic upgrade head",
        "DATABASE_URL=sqlite:///dev.db alembic upgrade head",
    ),
    Planted(
        "Tidy up the layout of {x}.py.",
        "black src/{x}.py",
        "",
        "ruff format src/{x}.py",
        "black",
        "ruff format",
        "no, use ruff format, not black",
    ),
    Planted(
        "Remove the old {x} build.",
        "rm -r build/{x}",
        "",
        "trash build/{x}",
        "rm -r",
        "trash",
        "Please don't use rm here, use trash instead.",
    ),
    Planted(
        "Run the {x} checks before the release.",
        "make check-{x}",
        "",
        "just check-{x}",
        "make",
        "just",
        "use `just` instead of `make`",
    ),
    Planted("Write the helper {x}.", "", "", "", "", "", "use tabs instead of spaces"),
)
WORDS = re.findall(
    r"\w+",
    "orders users billing search export images cache reports mail queue login basket prices stock audit metrics "
    "parser router worker backup theme locale vault events graph tokens shapes rates teams notes",
)


@dataclass
class Secrets:
    """A source of made-up secrets that remembers them."""

    dice: random.Random
    made: list[str] = field(default_factory=list)

    def letters(self, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
        """Random letters with at least one digit."""
        return "".join(self.dice.choice(alphabet) for _ in range(count - 1)) + self.dice.choice(
            string.digits
        )

    def keep(self, secret: str) -> str:
        """The secret, remembered."""
        self.made.append(secret)
        return secret

    def sentence(self) -> str:
        """A line with a secret, of a kind and in a form drawn at random."""
        letters, name = (
            self.letters,
            self.dice.choice(("jorgen", "priyanka", "mbeki", "valentina", "oleksiy")),
        )
        key = self.keep(
            self.dice.choice(("sk-ant-api03-", "sk-proj-", "ghp_", "hf_", "xoxb-")) + letters(32)
        )
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"OPENAI_API_KEY={key}",
            lambda: f"the key is {key}, please use it",
            lambda: json.dumps({"env": {"TOKEN": key}}),
            lambda: json.dumps(json.dumps({"api_key": key})).replace("-", "\\u002d"),
            lambda: (
                f"curl -H 'Authorization: Bearer {self.keep(letters(24))}' https://api.example.com"
            ),
            lambda: f"postgres://svc:{self.keep(letters(12))}@db.internal.example.com:5432/main",
            lambda: f"https://example.com/hook?access_token={self.keep(letters(20))}&page=2",
            lambda: f"password: {self.keep('Winter' + letters(6))}",
            lambda: f'{{\\"db_password\\": \\"{self.keep(letters(10))}\\"}}',
            lambda: f"deploy --token {self.keep(letters(18))} --region eu",
            lambda: f"write to {self.keep(f'{name}.{letters(4).lower()}@example.org')} about it",
            lambda: f"call {self.keep(f'+49 30 {self.dice.randint(1000000, 9999999)}')} for access",
            lambda: f"/home/{self.keep(name + letters(3).lower())}/work/notes.txt",
            lambda: f"Connected to {self.keep(f'203.0.113.{self.dice.randint(1, 254)}')} port 22",
            lambda: self.keep(base64.b64encode(f"api_key={key}".encode()).decode()),
            lambda: (
                f"-----BEGIN PRIVATE KEY-----\n{self.keep(letters(64))}\n{self.keep(letters(40))}"
                "\n-----END PRIVATE KEY-----"
            ),
            lambda: f"AWS_SECRET_ACCESS_KEY={self.keep(letters(20) + '/' + letters(19))}",
        )
        return self.dice.choice(forms)()


@dataclass
class Said:
    """A step: words of a person or the agent, or a command with its outcome."""

    who: str
    text: str = ""
    command: str = ""
    result: str = ""
    code: int = 0


def fault_steps(fault: Planted, word: str, secrets: Secrets) -> list[Said]:
    """A session with the fault."""

    def fill(text: str) -> str:
        return text.replace("{x}", word)

    leak = secrets.sentence
    steps = [
        Said(
            "user", f"{fill(fault.request)} {leak() if secrets.dice.random() < 0.5 else ''}".strip()
        )
    ]
    if fault.wrong:
        failed = 1 if fault.error else 0
        output = f"{leak()}\n{fill(fault.error)}\n{leak()}" if fault.error else f"done\n{leak()}"
        steps.append(Said("agent", "I begin.", fill(fault.wrong), output, failed))
    else:
        steps.append(Said("agent", "Here it is."))
    if fault.between and secrets.dice.random() < 0.5:
        steps.append(Said("agent", "", fault.between, leak()))
    if fault.correction:
        steps.append(
            Said(
                "user",
                f"{fault.correction} {leak() if secrets.dice.random() < 0.3 else ''}".strip(),
            )
        )
    if fault.right:
        steps.append(Said("agent", "Now it works.", fill(fault.right), f"ok\n{leak()}"))
    return [*steps, Said("agent", "Done.")]


def noise_steps(word: str, secrets: Secrets) -> list[Said]:
    """A session without a planted fault."""
    dice, test = secrets.dice, f"cargo test {word}"
    kinds = (
        [
            Said("agent", "", test, f"error: test {word} failed: left 1, right 2", 101),
            Said("agent", "", test, "ok"),
        ],
        [
            Said(
                "agent",
                "",
                f"cat src/{word}.rs",
                f"cat: src/{word}.rs: No such file or directory",
                1,
            )
        ],
        [Said("agent", "", f"git log --oneline -3 {word}", secrets.sentence())],
        [
            Said("agent", "I did."),
            Said("user", f"no, use {word} instead of {dice.choice(WORDS)} there"),
        ],
        [
            Said("agent", "", f"./{word}.sh", f"{word}.sh: permission denied", 126),
            Said("agent", "", f"bash {word}.sh", "ok"),
        ],
    )
    return [
        Said("user", f"Look into {word}. {secrets.sentence()}"),
        *dice.choice(kinds),
        Said("agent", "Done."),
    ]


# -- the four formats


def write_claude(file: Path, steps: Sequence[Said]) -> None:
    """A log of Claude Code."""
    rows: list[dict[str, Any]] = [{"type": "summary", "summary": "x", "leafUuid": "y"}]
    for number, step in enumerate(steps):
        if step.who == "user":
            rows.append({"type": "user", "message": {"role": "user", "content": step.text}})
            continue
        blocks: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
        if step.command:
            blocks.append(
                {
                    "type": "tool_use",
                    "id": f"t{number}",
                    "name": "Bash",
                    "input": {"command": step.command},
                }
            )
        rows.append({"type": "assistant", "message": {"role": "assistant", "content": blocks}})
        if step.command:
            text = f"Exit code {step.code}\n{step.result}" if step.code else step.result
            block = {
                "type": "tool_result",
                "tool_use_id": f"t{number}",
                "content": text,
                "is_error": step.code != 0,
            }
            rows.append(
                {
                    "type": "user",
                    "message": {"role": "user", "content": [block]},
                    "toolUseResult": text,
                }
            )
    _write_lines(file.with_suffix(".jsonl"), rows)


def write_codex(file: Path, steps: Sequence[Said]) -> None:
    """A log of Codex, with outputs in one of its two forms."""
    items: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        if step.text:
            kind, role = (
                ("input_text", "user") if step.who == "user" else ("output_text", "assistant")
            )
            items.append(
                {"type": "message", "role": role, "content": [{"type": kind, "text": step.text}]}
            )
        if step.command and number % 2:
            arguments = json.dumps({"command": ["bash", "-lc", step.command]})
            output = json.dumps(
                {
                    "output": step.result,
                    "metadata": {"exit_code": step.code, "duration_seconds": 0.1},
                }
            )
        else:
            arguments = json.dumps({"cmd": step.command})
            output = f"Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code {step.code}\nOutput:\n{step.result}"  # noqa: E501
        if step.command:
            call = {
                "type": "function_call",
                "name": "shell",
                "call_id": f"c{number}",
                "arguments": arguments,
            }
            items += [
                call,
                {"type": "function_call_output", "call_id": f"c{number}", "output": output},
            ]
    rows = [{"type": "session_meta", "payload": {"id": "x", "cwd": "/work"}}]
    rows += [{"type": "response_item", "payload": item} for item in items]
    _write_lines(file.parent / f"rollout-{file.name}.jsonl", rows)


def write_opencode(file: Path, steps: Sequence[Said]) -> None:
    """A session as OpenCode exports it."""
    messages: list[dict[str, Any]] = []
    for step in steps:
        role = "user" if step.who == "user" else "assistant"
        parts: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
        if step.command:
            state = {
                "input": {"command": step.command},
                "output": step.result,
                "metadata": {"exit": step.code},
            }
            parts.append(
                {"type": "tool", "tool": "bash", "state": {"status": "completed", **state}}
            )
        messages.append({"info": {"role": role}, "parts": parts})
    document = {"info": {"directory": "/work"}, "messages": messages}
    (file.parent / f"ses_{file.name}.json").write_text(json.dumps(document))


def write_atif(file: Path, steps: Sequence[Said]) -> None:
    """A trajectory of Harbor."""
    rows: list[dict[str, Any]] = []
    for number, step in enumerate(steps, 1):
        row: dict[str, Any] = {"step_id": number, "source": step.who, "message": step.text}
        if step.command:
            call = {
                "tool_call_id": f"c{number}",
                "function_name": "bash",
                "arguments": {"command": step.command},
            }
            result = {
                "source_call_id": f"c{number}",
                "content": step.result,
                "extra": {"exit_code": step.code},
            }
            row |= {"tool_calls": [call], "observation": {"results": [result]}}
        rows.append(row)
    file.mkdir(parents=True)
    document = {
        "schema_version": "ATIF-v1.6",
        "session_id": "x",
        "agent": {"name": "a", "version": "1"},
        "steps": rows,
    }
    (file / "trajectory.json").write_text(json.dumps(document))


def _write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


WRITERS = {
    "claude": write_claude,
    "codex": write_codex,
    "opencode": write_opencode,
    "atif": write_atif,
}


def write_sessions(folder: Path, count: int, seed: int, each: int = EACH) -> Secrets:
    """Write sessions with all faults, `each` times each, and noise; return the planted secrets."""
    dice = random.Random(seed)
    secrets = Secrets(dice)
    plan: list[Planted | None] = [fault for fault in FAULTS for _ in range(each)]
    plan += [None] * (count - len(plan))
    dice.shuffle(plan)
    for number, fault in enumerate(plan):
        name, write = list(WRITERS.items())[number % len(WRITERS)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        word = dice.choice(WORDS)
        steps = noise_steps(word, secrets) if fault is None else fault_steps(fault, word, secrets)
        write(folder / name / f"s{number:03d}", steps)
    return secrets


# -- the search over confirmed cases


def planted_of(avoid: str, use: str) -> Planted | None:
    """The planted fault with these patterns."""
    return next((one for one in FAULTS if one.use and (one.avoid, one.use) == (avoid, use)), None)


def write_commands(skill: str, rule: Mapping[str, Any], seed: str) -> str:
    """The commands of the scripted agent: the right one mostly if its skill names it."""
    avoid, use = (" ".join(rule[name]) for name in ("avoid", "use"))
    chance = NAMED if f"`{use}`" in skill else UNNAMED
    return f"{use if random.Random(seed).random() < chance else avoid} x\n"


@dataclass(frozen=True)
class MinedWorld(Landscape):
    """Rollouts on mined cases and proposals from failed tests, on a virtual clock.

    `asked` gets the text of every request for a proposal.
    """

    folder: Path = Path()
    asked: list[str] = field(default_factory=list)

    def rule(self, case: str) -> dict[str, Any]:
        """The rule of a case's tests."""
        return json.loads((self.folder / case / "tests" / "rule.json").read_text())

    def task(self) -> Task:
        """The confirmed cases as a task."""
        found = harbor.read_tasks(self.folder)
        cases = tuple(Case(one.name, one.name, split=one.split) for one in found)
        first = {"SKILL.md": f"{HEAD}- {JUNK[0]}\n"}
        surface = Surface(language="markdown", frontmatter="frozen")
        return Task(
            "mined",
            "improve",
            (first,),
            cases=cases,
            objective=Objective(bounds=(0.0, 1.0)),
            surface=surface,
        )

    def perform(self, effect: Effect, rng: random.Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            assert request.case is not None
            rule, skill = self.rule(request.case.id), request.candidate.parts["SKILL.md"]
            commands = write_commands(skill, rule, f"{request.seed}/{request.case.id}")
            wrong = judge_commands(commands, rule["avoid"], rule["use"])
            feedback = f"{wrong}: {rule['why']}" if wrong else "passed"
            seen = Observation(
                request.candidate.id,
                Status.OK,
                float(not wrong),
                request.case.id,
                feedback=feedback,
            )
            return rng.expovariate(1.0), seen
        if isinstance(request, ProposeRequest):
            dice = random.Random(request.seed)
            self.asked.append(repr(request.brief))
            made = tuple(self.child(request.brief, dice) for _ in range(request.brief.k))
            return 1.0, Proposal(made, model="world", usage=Usage(calls=1))
        return super().perform(effect, rng)

    def child(self, brief: Brief, dice: random.Random) -> Candidate:
        """The parent's sentences with one for a failed test, or with an idle one more or less."""
        assert brief.parent is not None
        listed = [
            line[2:]
            for line in brief.parent.parts["SKILL.md"].splitlines()
            if line.startswith("- ")
        ]
        found = {
            f"Use `{worked[1]}`."
            for seen in brief.observations
            if (worked := re.search(r"what worked: `([^`]+)`", seen.feedback))
        }
        news = sorted(found - set(listed))
        sentence = dice.choice(news) if news and dice.random() < 0.7 else dice.choice(JUNK)
        if sentence in listed:
            listed.remove(sentence)
        else:
            listed.append(sentence)
        text = HEAD + "".join(f"- {each}\n" for each in listed)
        return Candidate.of({"SKILL.md": text}, (brief.parent.id,), Origin("world"))


def search(folder: Path, seed: int, rollouts: int) -> tuple[str, list[str]]:
    """The skill that a search over the cases of a folder chooses.

    Also the requests for proposals.
    """
    world = MinedWorld(folder=folder)
    task = world.task()
    budget = Budget(evaluations=rollouts, calls=50 * rollouts)
    run = simulate(catalog.make_strategy("pedigree", {}), task, world, budget, seed=seed, workers=4)
    known = {one.id: one for one in task.initial_candidates()}
    for event in run.journal.read():
        entry = event.entry
        if entry.kind == "done" and isinstance(entry.result, Proposal):
            known.update((one.id, one) for one in entry.result.candidates)
    assert run.verdict is not None
    return known[run.verdict.id].parts["SKILL.md"], world.asked


def leaked(secrets: Sequence[str], texts: Iterator[str]) -> set[str]:
    """Secrets that stand in a text, whole or with an end of twelve letters."""
    joined = "\n".join(texts)
    return {
        one
        for one in secrets
        if one in joined or (len(one) >= 16 and (one[:12] in joined or one[-12:] in joined))
    }


def file_texts(folder: Path) -> Iterator[str]:
    """The texts of all files below a folder, with their paths."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield f"{file.relative_to(folder)}\n{file.read_text()}"


def measure(seed: int, folder: Path, sessions: int, rollouts: int) -> dict[str, Any]:
    """One row of figures."""
    secrets = write_sessions(folder / "sessions", sessions, seed)
    out = folder / "house"
    report: MiningReport = mine_sessions([folder / "sessions"], out)
    pairs = {
        each.name: planted_of(each.avoid, each.use)
        for each in report.faults
        if each.name in report.new
    }
    accept_proposals(out, list(pairs))
    skill, asked = search(out / "tasks", seed, rollouts)
    cured = [one for one in pairs.values() if one is not None and f"`{one.use}`" in skill]
    return {
        "seed": seed,
        "sessions": sum(report.sessions.values()),
        "unread": len(report.unread),
        "cases": sum(one is not None for one in pairs.values()),
        "false": sum(one is None for one in pairs.values()),
        "tasks": len(list((out / "tasks").iterdir())),
        "cured": len(cured),
        "planted": len(secrets.made),
        "secrets": len(leaked(secrets.made, iter([*file_texts(out), *asked]))),
        "asked": len(asked),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(arguments)
    print(
        "| seed | sessions read | cases of 12 | false | tasks | cured | secrets planted | through |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as place:
            row = measure(seed, given.keep or Path(place), given.sessions, given.rollouts)
        names = ("seed", "sessions", "cases", "false", "tasks", "cured", "planted", "secrets")
        print(f"| {' | '.join(str(row[name]) for name in names)} |", flush=True)


if __name__ == "__main__":
    main()
