"""Worlds for agents' tests: a session world with a memory, and models with a script.

The memory is like a disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from culmen.core.brief import Text
from culmen.core.evaluation import Observation
from culmen.core.event import Custom, CustomRequest, EvaluateRequest, WriteRequest
from culmen.core.task import Evaluator, Objective, Task
from culmen.core.usage import Usage
from culmen.extensions.agents.messages import (
    AnswerExperiments,
    Commit,
    Ended,
    Experiment,
    Open,
    Opened,
    ToolOutput,
    Waited,
    from_plain_data,
    to_plain_data,
)
from culmen.testing.landscape import Landscape, landscape_program

EXACT = Task(
    "exact",
    "climb",
    seeds=(landscape_program(0.1),),
    evaluator=Evaluator(verifier="/v.py"),
    deterministic=True,
)
PLAIN = Task(
    "plain",
    "climb",
    seeds=(landscape_program(0.1),),
    deterministic=True,
    objective=Objective(target=0.95),
)


def text(mu: float, serial: int = 0) -> str:
    """A program of this true reward."""
    return landscape_program(mu, serial)["program"]


@dataclass(frozen=True)
class Desks(Landscape):
    """Performs session effects on files in memory.

    `model` answers for the role agent, `programs` are the words of a hosted program at each of its
    waits; the verifier certifies the value of `certify` for the true reward.
    """

    model: Callable[[list[dict[str, str]]], Any] = lambda messages: ""
    programs: Sequence[Waited | tuple[Waited, Usage]] = ()
    certify: Callable[[float], float | None] = lambda mu: mu
    fault: str = ""
    files: dict[tuple[int, str], str] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    def perform(self, effect: Any, rng: Any) -> Any:
        request = effect.request
        if isinstance(request, WriteRequest) and request.role == "agent":
            answer = self.model(request.slots["messages"])
            if isinstance(answer, str):
                answer = Text(
                    answer,
                    model="scripted",
                    usage=Usage(calls=1, input_tokens=100, output_tokens=10),
                )
            return 1.0, answer
        if isinstance(request, CustomRequest):
            seconds = (
                60.0 if request.kind == "session.wait" else 0.1
            )  # a program thinks longer than we evaluate
            return seconds, self.session(request.kind.partition(".")[2], request.payload)
        if isinstance(request, EvaluateRequest) and request.certify:
            seconds, seen = super().perform(effect, rng)
            value = self.certify(seen.score) if seen.ok else None
            return seconds, msgspec.structs.replace(
                seen, strict=value == seen.score, certified=value
            )
        return super().perform(effect, rng)

    def session(self, kind: str, given: dict[str, Any]) -> Custom:
        """One session effect."""
        agent = given["agent"]
        usage = Usage()
        match kind:
            case "open":
                self.asked.append(from_plain_data(given, Open))
                self.files.update(((agent, path), each) for path, each in given["texts"].items())
                told: Any = Opened("base", "jailed", fault=self.fault)
            case "tool":
                told = self.tool(agent, given["tool"], given.get("arguments", {}))
            case "wait":
                told = self.waited(agent, given["seen"], given["nth"])
                told, usage = told if isinstance(told, tuple) else (told, Usage())
            case "end":
                told = Ended(reflections=self.files.get((agent, "reflections.md"), ""))
            case _:
                self.asked.append(
                    from_plain_data(
                        given,
                        {"answer": AnswerExperiments, "commit": Commit}.get(kind, msgspec.Struct),
                    )
                )
                return Custom()
        return Custom(to_plain_data(told), usage)

    def tool(self, agent: int, tool: str, given: dict[str, Any]) -> ToolOutput:
        """A tool on files in memory."""
        place = agent, given.get("path", "")
        if tool == "read":
            return (
                ToolOutput(self.files[place]) if place in self.files else ToolOutput("", "missing")
            )
        if tool in ("write", "append"):
            before = self.files.get(place, "") if tool == "append" else ""
            self.files[place] = before + given["text"]
            return ToolOutput("written")
        return ToolOutput(f"{tool} of {given}", code=1 if tool == "command" else 0)

    def waited(self, agent: int, seen: int, nth: int) -> Any:
        """The next item of the program's script, or the requests in the queue."""
        if self.programs:
            return self.programs[min(nth, len(self.programs)) - 1]
        queued = [
            each
            for (who, path), each in self.files.items()
            if who == agent and path.startswith("queue/")
        ]
        return Waited(
            tuple(self.experiment(agent, n, raw) for n, raw in enumerate(queued, 1) if n > seen)
        )

    def experiment(self, agent: int, n: int, raw: str) -> Experiment:
        """A request of the queue."""
        request = json.loads(raw)
        ticket, body = f"a{agent:02d}-q{n:04d}", self.files.get((agent, request["path"]))
        parts = {} if body is None else {"program": body}
        fault = "missing" if body is None else ""
        return Experiment(
            ticket, request["path"], parts, request["note"], tuple(request["parents"]), fault
        )

    def of(self, kind: type) -> list[Any]:
        """The requests of this kind."""
        return [each for each in self.asked if isinstance(each, kind)]


def notes(run: Any, kind: str) -> list[dict[str, Any]]:
    """The notes of one kind in a journal."""
    bodies = (event.entry.body for event in run.journal.read() if event.entry.kind == "note")
    return [body for body in bodies if body.get("note") == kind]


def scores(observations: Sequence[Observation]) -> list[float | None]:
    """Their scores."""
    return [seen.score for seen in observations]
