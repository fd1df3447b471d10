"""Every boundary of culmen with a way to give it a text, and texts made from seeds.

The texts are of culmen's own making: pieces of texts by people, models and files, mixed, cut,
repeated and nested. `docs/threats.md` lists the boundaries; `bench/bench_boundaries.py` tries many.
"""

import ast
import contextlib
import json
import random
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import yaml

import culmen
from culmen.core import foreign
from culmen.core.candidate import Candidate
from culmen.core.errors import CulmenError
from culmen.core.task import Evaluator, Objective, Surface, Task
from culmen.evaluate.integrity import signs
from culmen.extensions.agents.adapters import AgentJob, native
from culmen.extensions.agents.gateway import exchange, wires
from culmen.extensions.agents.team import builtin
from culmen.extensions.cluster import messages
from culmen.extensions.compat.openevolve import checkpoint
from culmen.extensions.compat.openevolve import config as openevolve
from culmen.extensions.mcp import cli as mcp
from culmen.extensions.skills.mining import logs
from culmen.extensions.skills.rollouts import harbor, skill, trajectory
from culmen.jail import outcome
from culmen.models import backends, roles
from culmen.models.prompts import formats, template
from culmen.report import edits
from culmen.run import pools
from culmen.store import archive
from culmen.strategies.pacevolve import advisor
from culmen.tasks import schema, surface, tables

PROGRAM = (
    "A = 0.5\n\n\ndef run(x, tol=1e-6):\n    if abs(x) < tol:\n        return A\n    return x\n"
)
TASK = Task(
    "fuzzed", seeds=({"program.py": PROGRAM},), evaluator=Evaluator(), surface=Surface("python")
)
PARENT = Candidate.of({"program.py": PROGRAM})
FORMATS = (*formats.FORMATS.values(), *formats.SEVERAL.values())
ROOT = Path(culmen.__file__).parent


def _file(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def _answer(text):
    """An evaluator's answer with a text in each place, or the JSON that the text is."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return {"kind": "scored", "score": 1.0, **found}
        return {"kind": "scored", "score": found, "metrics": {"a": 1.0}, "artifacts": {"t": text}}
    return {"kind": "scored", "score": text, "feedback": text, "artifacts": {"note": text}}


def _database(folder, text):
    """OpenCode's database with one session of one message, which is this text."""
    path = folder / "opencode.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("pragma synchronous = off")  # it need not outlive the machine
        database.execute("pragma journal_mode = memory")
        for name, columns in (
            ("session", "id, parent_id, time_updated"),
            ("message", "id, session_id, time_created, data"),
            ("part", "id, session_id, message_id, data"),
        ):
            database.execute(f"create table {name} ({columns})")
        kept = text.encode("utf-8", "replace").decode()
        database.execute("insert into session values ('s', null, 1)")
        database.execute("insert into message values ('m', 's', 1, ?)", (kept,))
        database.execute("insert into part values ('p', 's', 'm', ?)", (kept,))
    return path


async def _tool(run: str, hint: str = "") -> None:
    """A tool with one argument that it needs."""


def _parse_completion(text, folder):
    reply = formats.Completion(text)
    # one format and one kind of parent for a text, by its length
    form, parent = FORMATS[len(text) % len(FORMATS)], (PARENT, None)[len(text) // 7 % 2]
    formats.parse_completion(reply, form, TASK, parent)


def _read_skill(text, folder):
    _file(folder, "skill/SKILL.md", text)
    skill.read_skill(folder / "skill")
    skill.read_skill(_file(folder, "tools/tools.json", text).parent, is_tools=True)


def _read_task(text, folder):
    _file(folder, "task/instruction.md", text)
    _file(folder, "task/environment/Dockerfile", text)
    harbor.read_task(_file(folder, "task/task.toml", text).parent, harbor.PLAIN)


def _read_session(text, folder):
    for name in ("log.jsonl", "log.json"):
        logs.read_session(_file(folder, name, text))


def _read_lines(text, kinds):
    for kind in kinds:
        reading = kind(AgentJob("/tree", "/home", "go"), lambda event: None)
        for line in text.encode("utf-8", "replace").splitlines()[:200]:
            reading._read_line(line)
        reading.on_exit(len(text) % 2)


_READINGS = [
    *(native.ClaudeReading, native.CodexReading, native.OpenCodeReading, native.GeminiReading),
    native.CursorReading,
]
_WIRES = [wires.ChatReader, wires.ResponsesReader, wires.MessagesReader, wires.GeminiReader]


def _wire(text):
    """A reader of one of the providers' formats, by the text's length."""
    return _WIRES[len(text) % len(_WIRES)]()


READERS = {
    "extensions.agents.adapters.headless._read_line": lambda text, folder: _read_lines(
        text, _READINGS
    ),
    "extensions.agents.adapters.native._read_line": lambda text, folder: _read_lines(
        text, (native.PlainReading, native.MiniReading)
    ),
    "extensions.agents.gateway.exchange.read_body": lambda text, folder: exchange.read_body(
        text.encode("utf-8", "replace"), _wire(text)
    ),
    "extensions.agents.gateway.exchange.read_event": lambda text, folder: exchange.read_event(
        text, _wire(text)
    ),
    "core.foreign.yaml_value": lambda text, folder: foreign.yaml_value(text),
    "evaluate.integrity.signs.of_parts": lambda text, folder: signs.of_parts(
        {"program.py": text}, TASK, signs.ScanContext()
    ),
    "extensions.agents.team.builtin.read_actions": lambda text, folder: builtin.read_actions(text),
    "extensions.cluster.messages.load_struct": lambda text, folder: messages.load_struct(
        text.encode("utf-8", "replace"), messages.NodeReply
    ),
    "extensions.compat.openevolve.checkpoint._decoded": lambda text, folder: checkpoint._decoded(
        text, "program.json", checkpoint._Program
    ),
    "extensions.compat.openevolve.config.load_mapping": lambda text, folder: (
        openevolve.load_mapping(_file(folder, "config.yaml", text))
    ),
    "extensions.mcp.cli.check_arguments": lambda text, folder: mcp.check_arguments(
        text, _tool, dict.fromkeys(text.split(), text), mcp.AllowedFolders([folder])
    ),
    "extensions.skills.mining.logs.read_database": lambda text, folder: logs.read_database(
        _database(folder, text)
    ),
    "extensions.skills.mining.logs.read_session": _read_session,
    "extensions.skills.rollouts.harbor.read_task": _read_task,
    "extensions.skills.rollouts.skill.read_skill": _read_skill,
    "extensions.skills.rollouts.trajectory.parse_trajectory": lambda text, folder: (
        trajectory.parse_trajectory(text.encode("utf-8", "replace"))
    ),
    "jail.outcome.of_answer": lambda text, folder: outcome.of_answer(_answer(text), Objective()),
    "jail.outcome.of_exception": lambda text, folder: outcome.of_exception(
        text.encode("utf-8", "replace")
    ),
    "jail.outcome.scored_outcome": lambda text, folder: outcome.scored_outcome(
        _answer(text), Objective(), text
    ),
    "jail.outcome.with_certificate": lambda text, folder: outcome.with_certificate(
        outcome.scored_outcome({"score": 1.0}, Objective()),
        {"exact": text, "repaired": text, **_answer(text), "kind": "certified"},
        Objective(),
    ),
    "models.backends.read_reply": lambda text, folder: backends.read_reply(text),
    "models.prompts.formats.parse_completion": _parse_completion,
    "models.prompts.formats.reply_summary": lambda text, folder: formats.reply_summary(text),
    "models.prompts.template.read_folder": lambda text, folder: template.read_folder(
        _file(folder, "templates/rewrite.md", text).parent
    ),
    "models.roles._read_models_file": lambda text, folder: [
        roles._read_models_file(_file(folder, name, text)) for name in ("m.toml", "m.yaml")
    ],
    "report.edits._describe_python": lambda text, folder: edits._describe_python(PROGRAM, text),
    "run.pools.load_pool": lambda text, folder: pools.load_pool(_file(folder, "pool.json", text)),
    "store.archive._verify_archive": lambda text, folder: archive._verify_archive(
        _file(folder, "run.tar.xz", text)
    ),
    "strategies.pacevolve.advisor.find_answer": lambda text, folder: advisor.find_answer(text),
    "tasks.schema._parse_case": lambda text, folder: schema._parse_case(text, "cases.jsonl:1", "1"),
    "tasks.schema.read_toml": lambda text, folder: schema.read_toml(
        _file(folder, "task.toml", text)
    ),
    "tasks.surface.surface_fault": lambda text, folder: surface.surface_fault(
        TASK, Candidate.of({"program.py": text})
    ),
    "tasks.tables._read_csv": lambda text, folder: tables._read_csv("t.csv", text, ""),
    "tasks.tables._read_json_lines": lambda text, folder: tables._read_json_lines("t", text, ""),
}


def decorated():
    """The names of all functions of culmen that are a `boundary`, by their texts."""
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "boundary" not in text:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(text)):
            marks = getattr(node, "decorator_list", ())
            calls = [each.func for each in marks if isinstance(each, ast.Call)]
            if any(isinstance(each, ast.Name) and each.id == "boundary" for each in calls):
                found.add(f"{module}.{node.name}")
    return found


# -- texts

_WORDS = (
    *("def run():", "return", "x", "tol", "1e-9", "+", "<", "==", "print(", "import numpy as np"),
    *(
        "np.linalg.norm(",
        "lambda x:",
        "class A(float):",
        "    ",
        "\t",
        "\n",
        "\n\n",
        ";",
        "if x:\n",
    ),
    *('"score": 1', "0x" + "F" * 40, "9" * 30, "1" * 5_000, "1e999", "-0.0", "NaN", "Infinity"),
    *("{", "}", "[", "]", "(", ")", ":", ",", '"', "'", '"""', "`", "```", "````python", "~~~"),
    *(
        "<<<<<<< SEARCH\n",
        "=======\n",
        ">>>>>>> REPLACE\n",
        "<think>",
        "</think>",
        "=== program.py",
    ),
    *("# EVOLVE-BLOCK-START\n", "# EVOLVE-BLOCK-END\n", "CANDIDATE 1\n", "<summary>", "</summary>"),
    *('{"responses": [', '"code": ', '"probability": ', '"experiments": [', '"idea": ', '"tool": '),
    *(
        "true",
        "null",
        "\\ud83d",
        "\\u0000",
        "\ud83d",
        "\0",
        "\ufeff",
        "\u202e",
        "²",
        "٣",
        "é",
        "中",
    ),
    *(
        "---\nname: a\ndescription: b\n---\n",
        "[evaluator]\n",
        'goal = "x"\n',
        "a: &a [*a]\n",
        "$slot",
    ),
    *(
        "FROM x\n",
        "COPY . /app\n",
        "id,input,info\n",
        "a\tb\n",
        "\r",
        "\r\n",
        "\f",
        "\x1b[31m",
        "../",
    ),
    *('{"type": "assistant", "message": {"content": [', '{"payload": {"type": "message"', "true}}"),
)
_WHOLE = (
    PROGRAM,
    f"```python\n{PROGRAM}```",
    f"<<<<<<< SEARCH\n    return x\n=======\n    return 2 * x\n>>>>>>> REPLACE\n{PROGRAM}",
    json.dumps({"responses": [{"code": PROGRAM, "probability": 0.5}]}),
    json.dumps({"experiments": [{"idea": 1, "description": "d", "experiment": "e"}]}),
    json.dumps({"score": 0.5, "metrics": {"a": 1.0}, "artifacts": {"note": "n"}, "feedback": "f"}),
    json.dumps({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}),
    json.dumps({"id": "1", "input": {"a": [1, 2]}, "info": "b", "split": "train"}),
    json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "t"}]}}),
    json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "t"}}),
    json.dumps({"type": "result", "usage": {"input_tokens": 1}, "result": "r", "num_turns": 2}),
    json.dumps(
        {
            "schema_version": "ATIF-v1.0",
            "agent": {},
            "steps": [
                {"source": "agent", "message": "m", "tool_calls": [{"function_name": "f"}]},
                {"source": "agent", "observation": {"results": [{"content": "c"}]}},
            ],
        }
    ),
    json.dumps({"type": "ValueError", "trace": "Traceback\n  File x"}),
    '```json\n{"tool": "write", "arguments": {"path": "a.py", "text": "x"}}\n```',
    '[seed]\nfiles = ["program.py"]\n\n[evaluator]\nprogram = "evaluator.py"\nform = "call"\n',
    "models:\n  a:\n    model: gpt\n    provider: openai\nroles:\n  proposer: a\n",
    "id,input,info\n1,a,b\n2,c,d\n",
    "---\nname: a-skill\ndescription: what it is for\n---\n\nDo it.\n",
)
_NESTED = (
    *(("(", ")"), ("[", "]"), ("{", "}"), ('{"a": ', "}"), ("-", "1"), ("not ", "x"), ("f(", ")")),
    *(("1 + ", "1"), ("x.a", ""), ("lambda: ", "0"), ("a if b else ", "c"), ("a ** ", "b")),
    *(
        ("x < (", ")"),
        ("1 / (", ")"),
        ("print(", ")"),
        ("- ", "a"),
        ("[[a]]\n", ""),
        ("tol + ", "1"),
    ),
    *(("if x:\n", ""), ("elif x:\n    y\n", ""), ("> ", "a"), ("x + 1e-9 + ", "y"), ("a.b(", ")")),
)
_LONGEST = 200_000  # characters, as of a candidate by default


def make_text(seed):
    """A text from a seed: a document with changes, pieces in a row, or nested ones."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.4:
        text = rng.choice(_WHOLE)
        for _ in range(rng.randint(1, 6)):
            text = _changed(text, rng)
    elif kind < 0.75:
        text = "".join(rng.choices(_WORDS, k=rng.randint(1, 60)))
    else:
        first, last = rng.choice(_NESTED)
        depth = rng.choice((3, 60, 200, 500, 950, 1_500, 3_000))
        text = first * depth + rng.choice(("", "1", "x")) + last * rng.choice((0, 1, depth))
        text = rng.choice(("{}", "x = {}\n", '{{"a": {}}}', "```python\nx = {}\n```")).format(text)
    if rng.random() < 0.01:
        text = "\n".join([text] * max(1, rng.randint(10_000, _LONGEST) // (len(text) + 1)))
    return text[:_LONGEST]


def _changed(text, rng):
    """The text with a piece cut out, doubled, moved, or put in."""
    low, high = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    piece = text[low : min(high, low + 40)]
    return rng.choice(
        (
            text[:low] + text[low + len(piece) :],
            text[:high] + piece * rng.randint(1, 5) + text[high:],
            text[:low] + rng.choice(_WORDS) + text[low:],
            text[:low] + rng.choice(_WORDS) + text[high:],
            text[:high],
        )
    )


# -- what comes of them


class Tried(NamedTuple):
    """A call of a boundary: fault, seconds of processor time, unexpected error."""

    name: str
    seed: int
    fault: str
    seconds: float
    raised: BaseException | None


def try_text(name, seed, folder):
    """Give the text of a seed to a boundary."""
    text, before = make_text(seed), time.process_time()
    fault, raised = "", None
    try:
        READERS[name](text, folder)
    except CulmenError as error:
        fault = type(error).__name__
        fault += f" {error.kind}" if hasattr(error, "boundary") else ""
    except (logs._Unreadable, yaml.YAMLError):
        fault = "refused"
    except Exception as error:  # noqa: BLE001 (this is what is looked for)
        raised = error
    return Tried(name, seed, fault, time.process_time() - before, raised)


def try_many(seeds, folder, names=tuple(READERS)):
    """Each text is given to one boundary in turn; yields each call."""
    for seed in seeds:
        yield try_text(names[seed % len(names)], seed, folder)


def summarize(calls):
    """Faults by name, calls that raised, and the slowest calls."""
    faults, raised, slowest = Counter(), [], []
    for call in calls:
        faults[call.fault or "read"] += 1
        raised += [call] if call.raised is not None else []
        slowest = sorted([*slowest, call], key=lambda each: -each.seconds)[:5]
    return faults, raised, slowest
