"""Rollouts as spans: the agent's invocation, its turns and its tools.

They are made by the real SDK, read from memory.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from culmen.core.evaluation import TRAJECTORY, Observation, RoleUsage, Status
from culmen.core.usage import Usage
from culmen.extensions.trackers.backends import OpenTelemetry
from culmen.extensions.trackers.rollouts import rollout_spans
from culmen.extensions.trackers.tracking import EffectSpan, TrackedRun

pytest.importorskip("opentelemetry.sdk", reason="the extra 'otel' is not installed")
START, END = 1_700_000_000.0, 1_700_000_010.0
AT = "2023-11-14T22:13:{:02d}.000+00:00"  # 20 is the start
STEPS: list[dict[str, Any]] = [
    {"source": "user", "message": "SECRET instruction", "timestamp": AT.format(20)},
    {
        "source": "agent",
        "message": "I look",
        "timestamp": AT.format(21),
        "metrics": {"prompt_tokens": 30, "completion_tokens": 10},
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "Bash", "arguments": {"text": "SECRET"}},
            {"tool_call_id": "c2", "function_name": "Read", "arguments": {}},
        ],
    },
    {"source": "system", "message": "trouble", "timestamp": AT.format(23)},
    {"source": "agent", "message": "done", "timestamp": AT.format(24), "model_name": "small"},
]
TRAJECTORY_OF = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s1",
    "agent": {"name": "claude", "version": "2.1", "model_name": "big"},
    "steps": STEPS,
    "final_metrics": {"total_prompt_tokens": 70, "total_completion_tokens": 20},
}


def observation(trajectory: object, **more: Any) -> Observation:
    about = {"score": 1.0, **more}
    return Observation(
        "c", about.pop("status", Status.OK), artifacts={TRAJECTORY: json.dumps(trajectory)}, **about
    )


def exported(seen: Observation) -> dict[str, Any]:
    """The spans of one evaluation by name."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    tracker = OpenTelemetry(exporter=memory)
    tracker.start(TrackedRun("run", "task", "strategy", {}))
    tracker.log_span(EffectSpan(1, "evaluate", "", START, END, seen))
    tracker.close("finished")
    return {span.name: span for span in memory.get_finished_spans()}


def test_rollout_spans_follow_the_conventions():
    usage = Usage(calls=2, input_tokens=70, output_tokens=20)
    spans = exported(
        observation(TRAJECTORY_OF, asked=(RoleUsage("agent", "mine/big", asked=2, usage=usage),))
    )
    agent, chat, tool = spans["invoke_agent claude"], spans["chat big"], spans["execute_tool Bash"]
    assert set(spans) == {
        "evaluate",
        "invoke_agent claude",
        "chat big",
        "chat small",
        "execute_tool Bash",
        "execute_tool Read",
    }
    assert dict(agent.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "mine",
        "gen_ai.agent.name": "claude",
        "gen_ai.agent.version": "2.1",
        "gen_ai.request.model": "big",
        "gen_ai.conversation.id": "s1",
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 20,
    }
    assert (
        chat.attributes["gen_ai.operation.name"] == "chat"
        and chat.attributes["gen_ai.usage.input_tokens"] == 30
    )
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.tool.call.id"]) == (
        "Bash",
        "c1",
    )
    assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
    assert [span.kind.name for span in (agent, chat, tool)] == ["INTERNAL", "CLIENT", "INTERNAL"]
    assert agent.parent.span_id == spans["evaluate"].context.span_id
    assert {
        spans[name].parent.span_id for name in set(spans) - {"evaluate", "invoke_agent claude"}
    } == {agent.context.span_id}
    assert (chat.start_time, chat.end_time) == (int(START + 1) * 10**9, int(START + 3) * 10**9)
    assert agent.end_time == int(END) * 10**9
    assert "SECRET" not in str([span.to_json() for span in spans.values()])


def test_rollout_spans_of_failures_and_of_agents_without_a_model():
    """A rollout without a score is an error.

    Without a known model no span claims to be a call of one.
    """
    agent = {"name": "cmd:x", "version": "unknown"}
    bare = {
        **TRAJECTORY_OF,
        "agent": agent,
        "steps": STEPS[:2],
        "final_metrics": {"total_prompt_tokens": 0},
    }
    spans = exported(observation(bare, status=Status.INVALID, score=None))
    assert set(spans) == {
        "evaluate",
        "invoke_agent cmd:x",
        "execute_tool Bash",
        "execute_tool Read",
    }
    root = spans["invoke_agent cmd:x"]
    assert root.attributes["error.type"] == "invalid" and not root.status.is_ok
    assert (
        "gen_ai.usage.input_tokens" not in root.attributes
        and "gen_ai.agent.version" not in root.attributes
    )


def test_rollout_spans_of_what_an_agent_left():
    """Times outside of the evaluation or none at all stay within it.

    Data that are no trajectory give no spans.
    """
    odd = [
        {"source": "agent", "timestamp": AT.format(59)},
        {"source": "agent"},
        {"source": "agent", "timestamp": "x"},
    ]
    found = rollout_spans(
        observation({"agent": {"name": "a", "model_name": "m"}, "steps": odd}), START, END
    )
    assert len(found) == 4 and all(START <= each.start <= each.end <= END for each in found)
    for wrong in (
        None,
        [],
        {"agent": {}, "steps": []},
        {"agent": 1, "steps": odd},
        {"agent": {}, "steps": [1]},
    ):
        assert rollout_spans(observation(wrong), START, END) == []
    cut = Observation("c", Status.OK, 1.0, artifacts={TRAJECTORY: json.dumps(TRAJECTORY_OF)[:300]})
    assert (
        rollout_spans(cut, START, END) == []
        and rollout_spans(Observation("c", Status.OK, 1.0), START, END) == []
    )
