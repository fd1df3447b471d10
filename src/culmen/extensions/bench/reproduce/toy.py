"""Scripted models for rehearsals at toy size: they cost nothing, and know nothing.

Each call is counted and priced like a real one, at `PRICES`. What they write depends on the prompt
and the call's random seed alone, and `ToyProposer` keeps the clock out of these seeds: a rehearsal
with one worker repeats exactly.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random

import msgspec

from culmen.core.brief import Brief, Proposal
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.models.call import Call, Completion, Reply, Tokens
from culmen.models.prompts.writer import FallbackProposer
from culmen.tasks import example_path

PRICES = 0.3, 2.5
"""Invented dollars per million tokens of prompt and reply."""

_PART = re.compile(r"^(`{3,})(?:[\w+]+ )?([\w./-]+\.\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+")


@cache
def toy_hints() -> dict[str, float]:
    """Sentences and what each adds to the quality of a text, of the stand-in task."""
    file = Path(__file__).with_name("stand_in") / "hints.json"
    return json.loads(file.read_text(encoding="utf-8"))


def text_skill(text: str) -> float:
    """Chance in 0..1 with which a scripted model succeeds under these instructions."""
    return min(
        1.0, max(0.0, 0.15 + sum(worth for hint, worth in toy_hints().items() if hint in text))
    )


def toy_models(roles: tuple[str, ...]) -> Mapping[str, object]:
    """A scripted model for each of a task's roles, and one for all others."""
    special = {"agent": ToyAgent(), "user": ToyCustomer(), "qa": ToyReader()}
    return {"default": ToyWriter(), **{role: special.get(role, ToyWriter()) for role in roles}}


class ToyProposer(FallbackProposer):
    """The proposer of every run with a model, but blind to how long evaluations took.

    A request's random seed is a digest of the brief, in which two equal runs differ by these times.
    """

    async def propose(self, lab: Lab, brief: Brief) -> Proposal:
        """Request the model's candidates for the brief without times."""
        timeless = tuple(msgspec.structs.replace(each, seconds=0.0) for each in brief.observations)
        return await super().propose(lab, msgspec.structs.replace(brief, observations=timeless))


class _Scripted:
    """A model with a price that answers by its method `answer_call`."""

    name = "toy"

    async def complete(self, call: Call) -> Reply:
        """One reply, whose tokens are a quarter of its characters."""
        made = self.answer_call(call)
        read, written = len(call.prompt) // 4 + 1, len(made.text) // 4 + 1
        dollars = (read * PRICES[0] + written * PRICES[1]) / 1e6
        return Reply((made,) * call.samples, Tokens(read, written), dollars=dollars)

    def answer_call(self, call: Call) -> Completion:
        raise NotImplementedError


class ToyWriter(_Scripted):
    """A proposer that changes a number or a sentence of the current candidate, blindly."""

    name = "toy-writer"

    def answer_call(self, call: Call) -> Completion:
        """A changed candidate in the form that is asked for, or a summary."""
        rng = Random(f"{call.seed}/{call.sample_digest()}")
        task, found, parent = call.prompt.partition("# Current candidate")
        parts = {name: text for _, name, text in _PART.findall(parent)}
        if not found or not parts:
            return Completion(f"<summary>Sentences matter. ({rng.random():.6f})</summary>")
        name = rng.choice(list(parts))
        if '"responses"' in task:
            count = int((re.search(r"Give (\d+)", task) or ["", "1"])[1])
            many = [{"code": changed_text(parts[name], rng)} for _ in range(count)]
            share = 1 / max(count, 1)
            return Completion(
                json.dumps({"responses": [{**one, "probability": share} for one in many]})
            )
        if "<<<<<<< SEARCH" in task:
            lines = parts[name].splitlines()
            old = rng.choice([line for line in lines if lines.count(line) == 1 and line.strip()])
            new = changed_text(old + "\n", rng).rstrip("\n")
            return Completion(f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE")
        return Completion(f"Another try.\n\n```{name}\n{changed_text(parts[name], rng)}```")


def changed_text(text: str, rng: Random) -> str:
    """The text with some of its numbers changed; without numbers, with a sentence more or less."""
    numbers = list(_NUMBER.finditer(text))
    if numbers:
        chosen = {id(each) for each in rng.sample(numbers, max(1, len(numbers) // 8))}
        pieces, end = list[str](), 0
        for each in numbers:
            factor = rng.lognormvariate(0.0, 0.05) if id(each) in chosen else 1.0
            pieces += [text[end : each.start()], repr(float(each[0]) * factor)]
            end = each.end()
        return "".join([*pieces, text[end:]])
    lines = text.rstrip("\n").splitlines()
    if len(lines) > 1 and rng.random() < 0.3:
        lines.pop(rng.randrange(1, len(lines)))
    else:
        lines.append(rng.choice(list(toy_hints())))
    return "\n".join(lines) + "\n"


class ToyReader(_Scripted):
    """A reader of HotpotQA that knows the answers, and gives them by the skill of the prompt."""

    name = "toy-reader"

    def answer_call(self, call: Call) -> Completion:
        """The right answer, or none."""
        prompt, _, rest = call.prompt.partition("\n\nContext:")
        answer = _answers().get(rest.rpartition("Question: ")[2].strip(), "")
        return Completion(answer if Random(call.seed).random() < text_skill(prompt) else "unknown")


@cache
def _answers() -> dict[str, str]:
    lines = (
        (Path(example_path("hotpotqa")) / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return {case["input"]: case["info"] for case in map(json.loads, lines)}


@cache
def _shop_tasks() -> list[JsonObject]:
    data = (Path(example_path("tau_retail")) / "tasks.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


class ToyCustomer(_Scripted):
    """A customer of tau-bench who names the number of the task, and leaves once it is done."""

    name = "toy-customer"

    def answer_call(self, call: Call) -> Completion:
        """A message with the task's number and a number for the conversation; then the end."""
        if any(message.role == "assistant" for message in call.messages):
            return Completion("###STOP###")
        told = call.messages[0].content
        number = next(n for n, task in enumerate(_shop_tasks()) if task["instruction"] in told)
        return Completion(f"I am customer {number}, conversation {call.seed}.")


class ToyAgent(_Scripted):
    """An agent of tau-bench that knows the right actions, and forgets one for want of skill."""

    name = "toy-agent"

    def answer_call(self, call: Call) -> Completion:
        """The next action as a tool call; after the last one, the required outputs."""
        first = next(message.content for message in call.messages if message.role == "user")
        number, conversation = map(int, re.findall(r"\d+", first))
        task = _shop_tasks()[number]
        done = sum(message.role == "tool" for message in call.messages)
        knows = Random(conversation).random() < text_skill(call.messages[0].content)
        actions = task["actions"] if knows else task["actions"][:-1]
        if done < len(actions):
            action = actions[done]
            function = {"name": action["name"], "arguments": json.dumps(action["kwargs"])}
            tool = {"id": f"call-{done}", "type": "function", "function": function}
            return Completion("", "tools", (tool,))
        return Completion("Done. " + " ".join(task["outputs"] if knows else ()))
