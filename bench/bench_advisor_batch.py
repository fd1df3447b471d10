"""Tokens per second of an advisor's replies drawn side by side, against one at a time, in alternation in the same run.

    python bench/bench_advisor_batch.py MODEL [--rows 4] [--most 160] [--rounds 2] [--task circle_packing]

MODEL is a model folder or a GGUF file. The prompts are those of a barrier's first step on a built-in task: all
islands have the same initial program. It prints how far the log-probabilities of both ways differ, too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import culmen
from culmen.evaluate.taskfiles.loading import load
from culmen.prompts.template import Templates
from culmen.prompts.writer import PromptWriter
from culmen.train.advisors import policy_maker
from culmen.train.engine import ReplyRequest


def prompts(task: str, rows: int, persona: Any) -> list[str]:
    """What `rows` islands ask first; every second one has an idea already, so that lengths differ."""
    loaded = load(Path(culmen.__file__).parent / "tasks" / task)
    program = next(iter(loaded.initial_candidates())).text
    common = {"goal": loaded.goal, "score": 0.5, "program": program, "failures": [], "count": 3, "reminder": ""}
    idea = [{"number": 1, "description": "tune the numbers", "tried": 1, "results": ["no better"]}]
    return [persona.prompt("generate", {**common, "ideas": idea * (row % 2)}) for row in range(rows)]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    given.add_argument("model")
    for name, value in {"rows": 4, "most": 160, "rounds": 2}.items():
        given.add_argument(f"--{name}", type=int, default=value)
    given.add_argument("--task", default="circle_packing")
    args = given.parse_args()
    loaded = load(Path(culmen.__file__).parent / "tasks" / args.task)
    writer = PromptWriter(loaded, Templates())

    def render(role: str, slots: dict[str, Any]) -> tuple[str, str]:
        prompt = writer.text_prompt(role, slots)
        return prompt.system, prompt.user

    began = time.monotonic()
    payload = {"policy": args.model, "seed": 0, "rank": 8, "most": args.most, "engine": {"batch": args.rows}}
    engine, persona = policy_maker(render)(payload)
    print(f"loaded in {time.monotonic() - began:.1f} s")
    texts = [engine.encode(text) for text in prompts(args.task, args.rows, persona)]
    print(f"prompts of {[len(text) for text in texts]} tokens, replies of at most {args.most}")
    for number in range(args.rounds):
        asked = [ReplyRequest(text, 100 * number + row, args.most) for row, text in enumerate(texts)]
        alone, slow = timed(lambda asked=asked: [engine.sample(*one) for one in asked])
        together, fast = timed(lambda asked=asked: engine.sample_many(asked, lambda done, tokens: None))
        same = sum(one.response == other.response for one, other in zip(alone, together, strict=True))
        gap = (
            max(
                abs(a - b)
                for one, other in zip(alone, together, strict=True)
                if one.response == other.response
                for a, b in zip(one.logprobs, other.logprobs, strict=True)
            )
            if same
            else float("nan")
        )
        tokens = [sum(len(one.response) for one in drawn) for drawn in (alone, together)]
        print(
            f"one at a time {told(tokens[0], *slow)}; side by side {told(tokens[1], *fast)}; "
            f"{same} of {args.rows} replies the same, log-probabilities of those to {gap:.1e}",
            flush=True,
        )


def told(tokens: int, wall: float, cpu: float) -> str:
    """The rate by the clock, and by the processor's time: on a busy machine only the latter compares."""
    return f"{tokens} tokens in {wall:.1f} s ({tokens / wall:.1f}/s), {cpu:.1f} s of CPU ({tokens / cpu:.1f}/s)"


def timed(call: Any) -> tuple[Any, tuple[float, float]]:
    """What a call gives, and its seconds by the clock and of the processor."""
    began, worked = time.monotonic(), time.process_time()
    return call(), (time.monotonic() - began, time.process_time() - worked)


if __name__ == "__main__":
    main()
