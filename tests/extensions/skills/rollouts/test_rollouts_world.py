"""The world of a rollout: places, limits, variables, the model, and its records.

The model is reached through the gateway.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import culmen
from culmen.core.evaluation import TRAJECTORY, Status
from culmen.core.foreign import Unreadable
from culmen.core.usage import Budget, Usage
from culmen.extensions.skills.rollouts.form import RolloutBackend
from culmen.extensions.skills.rollouts.trajectory import (
    ProgramRow,
    build_trajectory,
    count_calls,
    last_steps,
    parse_trajectory,
)
from culmen.extensions.trackers.backends import OpenTelemetry
from culmen.extensions.trackers.tracking import Tracking
from culmen.models.call import Tokens
from culmen.store import views
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.extensions.skills.rollouts.folders import ANSWER, rolled_out, run, skill_task, write
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

CHEAP = 'echo "$(cmp -s /app/answer.txt /tests/expected.txt && echo 1 || echo 0)" > /logs/verifier/reward.txt\n'

LOOK = """
id -u; pwd; ls; env | grep -c CULMEN_SEED=3
cat $CULMEN_SKILL/SKILL.md | head -2 | tail -1; cat ~/.agents/skills/worker/SKILL.md | head -2 | tail -1
touch $CULMEN_SKILL/x ~/.agents/skills/worker/x 2>&1 | grep -c Read-only
ls /tests /logs/verifier 2>&1 | grep -c 'No such'
python3 -c "import socket; socket.create_connection(('1.1.1.1', 53), 2)" 2>&1 | grep -c unreachable
"""
# asks its model and writes what it says; a refusal is its word
ASKER = """
import json, os, urllib.request
for number in range(2):
    body = {"model": "any", "max_tokens": 10, "messages": [{"role": "user", "content": "what is it?"}]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    said = json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]["content"]
    print("heard", said, flush=True)
open("answer.txt", "w").write(said)
"""


@pytest.mark.jail
def test_world_of_agent_and_tests(tmp_path: Path) -> None:
    """The candidate is read-only in the places where agents look.

    The tests are not there, nothing is online.
    """
    need_confinement()
    task = skill_task(tmp_path, f"{LOOK}printf '{ANSWER}' > answer.txt\n")
    (one,) = rolled_out(task)
    assert one.score == 1.0, one.feedback
    assert one.trust == "verified" and one.metrics["reward"] == 1.0
    steps = json.loads(one.artifacts[TRAJECTORY])["steps"]
    words = steps[1]["message"].split("\n")
    assert words[0] == "works by /skills/worker"
    assert words[2:] == ["/app", "hint.txt", "1", "name: worker", "name: worker", "2", "2", "1"]
    assert int(words[1]) != 0


@pytest.mark.jail
def test_world_limits_and_rewards(tmp_path: Path) -> None:
    """An agent out of time is still tested, tests out of time and false rewards are no score."""
    need_confinement()
    slow = skill_task(tmp_path / "a", toml="[agent]\ntimeout_sec = 1.0\n", test=CHEAP)
    (cut,) = rolled_out(slow, f"printf '{ANSWER}' > answer.txt; sleep 60\n")
    assert cut.score == 1.0 and "the agent seconds" in cut.feedback
    endless = skill_task(tmp_path / "b", toml="[verifier]\ntimeout_sec = 1.0\n", test="sleep 60\n")
    (late,) = rolled_out(endless)
    assert (late.status, late.reason) == (Status.TIMEOUT, "tests_timeout")
    several = 'echo \'{"right": 1, "style": 0.5}\' > /logs/verifier/reward.json\n'
    (mean,) = rolled_out(skill_task(tmp_path / "c", test=several))
    assert (mean.score, mean.metrics["style"]) == (0.75, 0.5)
    for name, test, reason in (
        ("d", "true\n", "no_reward"),
        ("e", "echo NaN > /logs/verifier/reward.txt\n", "bad_reward"),
        ("f", "echo 7 > /logs/verifier/reward.txt\n", "score_out_of_bounds"),
        ("g", "ln -s /etc/passwd /logs/verifier/reward.txt\n", "bad_reward"),
    ):
        (bad,) = rolled_out(skill_task(tmp_path / name, test=test))
        assert (bad.status, bad.reason) == (Status.INVALID, reason)


TXT, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
BOTH = f"echo '{{\"reward\": 1}}' > {JSON}\necho 0 > {TXT}\n"


@pytest.mark.jail
@pytest.mark.parametrize(
    ("test", "score"),
    [
        (f"echo .50 > {TXT}\n", 0.5),
        (f"echo 01 > {TXT}\n", 1.0),
        (f"echo '{{\"reward\": true}}' > {JSON}\n", 1.0),
        (BOTH, 1.0),
        (f'echo "$A" > {TXT}\n', 0.25),
    ],
)
def test_world_reads_rewards_and_variables_as_harbor_does(
    tmp_path: Path, test: str, score: float
) -> None:
    need_confinement()
    toml = '[verifier.env]\nA = "${NO_SUCH_NAME:-0.25}"\n'
    (seen,) = rolled_out(skill_task(tmp_path, toml=toml, test=test))
    assert seen.score == score, seen.feedback


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer([Turn(ANSWER, tokens=Tokens(30, 10))]) as made:
        yield made


@pytest.mark.jail
def test_world_model_is_metered_and_limited(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of the agent pass the gateway, and end at the budget.

    They count in the run by role, and are never cached.
    """
    need_confinement()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream-0123456789abcdefSECRET")
    models = tmp_path / "models.toml"
    models.write_text(
        f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
        '[models.big]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
    )
    folder = tmp_path / "task"
    limits = "calls = 4\ntokens = 1000\n"
    skill_task(folder, agent=f"cmd: {sys.executable} {{folder}}/asker.py", skill=limits, test=CHEAP)
    write(folder, {"asker.py": ASKER})
    study = culmen.Study.create(
        folder,
        strategy="best_of_n",
        model={"default": "offline", "agent": "big"},
        models_file=str(models),
        budget=Budget(evaluations=8, calls=9),
        workers=1,
        run_dir=tmp_path / "run",
    )
    study.run(progress=False)
    usage = views.run_status(study.path).usage
    # a rollout takes 2 calls, and begins only if the budget holds the 4 that it may take
    assert usage.calls == len(server.asked) and 4 <= usage.calls <= 8 and usage.calls % 2 == 0
    assert usage.input_tokens + usage.output_tokens == usage.calls * 40
    assert usage.dollars == pytest.approx(usage.calls * 50e-6)
    seen = [one for one in views.stream_observations(study.path) if one.score is not None]
    assert {(each.role, each.model, each.asked) for one in seen for each in one.asked} == {
        ("agent", "mine/big", 2)
    }
    assert seen and all("SECRET" not in str(one.artifacts) for one in seen)
    assert_spans(study.path, len(seen))


def assert_spans(path: Path, rollouts: int) -> None:
    """A tracker's spans of these rollouts: an agent's invocation each.

    They have the tokens that the gateway counted.
    """
    memory = pytest.importorskip(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter"
    ).InMemorySpanExporter()
    Tracking("otel", OpenTelemetry(exporter=memory)).send_journal(path)
    found = [span for span in memory.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert len(found) == rollouts
    for span in found:
        assert (
            span.attributes["gen_ai.provider.name"],
            span.attributes["gen_ai.request.model"],
        ) == ("mine", "big")
        assert (
            span.attributes["gen_ai.usage.input_tokens"] == 60
            and span.attributes["gen_ai.usage.output_tokens"] == 20
        )
        below = [
            each
            for each in memory.get_finished_spans()
            if each.parent and each.parent.span_id == span.context.span_id
        ]
        assert [each.name for each in below] == ["chat big"]


@pytest.mark.jail
def test_world_agent_out_of_calls_is_tested(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout's own limit ends the agent there; its unfinished work is judged."""
    need_confinement()
    from culmen.core.asking import ASKER as CURRENT
    from culmen.models.answerer import QuestionAnswerer
    from culmen.models.caller import Providers
    from culmen.models.roles import ModelBook

    monkeypatch.setenv("UPSTREAM_KEY", "sk-x")
    models = tmp_path / "models.toml"
    models.write_text(
        f'[providers.mine]\nbase_url = "{server.url}/v1"\nkey_env = "UPSTREAM_KEY"\n'
        '[models.big]\nmodel = "big"\nprovider = "mine"\nprice = {input = 1.0, output = 2.0}\n'
    )
    task = skill_task(
        tmp_path / "t",
        agent=f"cmd: {sys.executable} {{folder}}/asker.py",
        skill="calls = 1\n",
        test=CHEAP,
    )
    write(tmp_path / "t", {"asker.py": ASKER})

    async def play() -> object:
        roles = ModelBook(str(models)).parse_roles({"default": "offline", "agent": "big"})
        answerer = QuestionAnswerer(roles, Providers())
        talk = answerer.open_talk(1)
        token = CURRENT.set(talk)
        backend = RolloutBackend(task, 1)
        try:
            await backend.start()
            found = await backend.evaluate(task.initial_candidates()[0], task.cases[0], 1)
            return talk.with_questions(found)
        finally:
            CURRENT.reset(token)
            await backend.close()
            await answerer.close()

    one = run(play())
    assert one.score == 0.0 and "the agent calls" in one.feedback
    assert [each.asked for each in one.asked] == [1]


def test_world_trajectory_of_events() -> None:
    """Thoughts, words and tools of one turn are one step; cut texts are marked."""
    rows = [
        ProgramRow(0.5, "thought", "first"),
        ProgramRow(1.0, "text", "I look"),
        ProgramRow(1.5, "tool", "Bash ls -la"),
        ProgramRow(2.0, "text", "I write"),
        ProgramRow(2.5, "trouble", "a model call failed"),
        ProgramRow(3.0, "life", "ended: finished"),
    ]
    made = build_trajectory(
        {"name": "x", "version": "1"}, "do it", rows, 0.0, Usage(input_tokens=3)
    )
    assert parse_trajectory(json.dumps(made).encode()) == made
    assert [step["source"] for step in made["steps"]] == ["user", "agent", "agent", "system"]
    assert made["steps"][1]["tool_calls"][0]["function_name"] == "Bash"
    assert [step["step_id"] for step in made["steps"]] == [1, 2, 3, 4]
    assert (
        last_steps(made)
        == "agent: I look Bash(ls -la)\nagent: I write\nsystem: a model call failed"
    )
    long = build_trajectory(
        {"name": "x", "version": "1"}, "", [ProgramRow(0, "trouble", "t")] * 900, 0.0, Usage()
    )
    assert "500 events left out" in str(long)
    for wrong in (
        b"",
        b"[]",
        b'{"schema_version": "ATIF-v1.7", "steps": [], "agent": {}}',
        b"\xff",
    ):
        assert parse_trajectory(wrong) is None


def test_steps_of_embedded_sub_agents_are_read_and_copied_ones_are_not() -> None:
    """A sub-agent's steps follow the reference to it; one without a reference comes last."""

    def step(name: str, **more: object) -> dict[str, object]:
        call = {"tool_call_id": name, "function_name": name, "arguments": {}}
        return {"source": "agent", "message": "", "tool_calls": [call], **more}

    def trajectory(*steps: object, **more: object) -> dict[str, object]:
        return {"schema_version": "ATIF-v1.7", "agent": {"name": "a"}, "steps": list(steps), **more}

    inner = trajectory(step("inner"), trajectory_id="c")
    referred = trajectory(step("sub"), trajectory_id="b", subagent_trajectories=[inner])
    other = trajectory(step("other"), trajectory_id="d")
    results = [{"content": None, "subagent_trajectory_ref": [{"trajectory_id": "b"}]}]
    whole = trajectory(
        step("copied", is_copied_context=True),
        step("first", observation={"results": results}),
        step("second"),
        subagent_trajectories=[other, referred],
        continued_trajectory_ref="trajectory.cont-1.json",
    )
    found = parse_trajectory(json.dumps(whole).encode())
    assert found == whole and count_calls(found) == 5
    assert last_steps(found).splitlines() == [
        "agent: first() -> ",
        "agent: sub()",
        "agent: inner()",
        "agent: second()",
        "agent: other()",
        "(later steps, in trajectory.cont-1.json, are not read)",
    ]
    with pytest.raises(Unreadable):  # an embedded one needs its name
        parse_trajectory(json.dumps(trajectory(step("x"), subagent_trajectories=[{}])).encode())
