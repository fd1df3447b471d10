"""Costs of culmen itself on the real path: milliseconds of CPU an evaluation.

They are given whole and by part.

    python bench/bench_speed.py                          # the default strategy, 400 evaluations
    python bench/bench_speed.py --strategy map_elites openevolve --evaluations 1000
    python bench/bench_speed.py --profile                # where the main process spends it, by function

A model server of its own (its CPU does not count), a Python function as evaluator
(`culmen.optimize`), every strategy in a process of its own. Counted are the user and system seconds
of culmen's process and of all its children. The parts are measured alone in the same session: an
evaluation by one process that stays, or by a fork for each call; a model call as culmen makes it,
or by the plain SDK. The rest is strategy, engine, journal, prompts and parsing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import io
import json
import os
import pstats
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a session does
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PROGRAM = (
    "\n".join(f"def step_{i}(x):\n    return x * {i} + 1" for i in range(40)) + "\n\nVALUE = 0.0\n"
)
_VALUE = re.compile(r"^VALUE = .*$", re.MULTILINE)


def score(text: str) -> float:
    """The evaluator: the number in the program's last line, and noise."""
    found = re.search(r"^VALUE = (.*)$", text, re.MULTILINE)
    return -abs(1.0 - float(found[1])) + random.gauss(0, 0.05) if found else -9.0


def serve(delay: float) -> None:
    """The model server, in a process of its own.

    It answers with a new number in the program, as a rewrite or as a diff.
    """
    from tests.servers.openai_server import OpenAIServer

    rng = random.Random(0)

    def answer(body: dict[str, Any]) -> str:
        time.sleep(delay)
        asked = "\n".join(message["content"] for message in body["messages"])
        old = _VALUE.findall(asked)
        line = f"VALUE = {rng.gauss(0.5, 0.3)!r}"
        if "<<<<<<< SEARCH" in asked and old:
            return (
                f"Another number.\n\n<<<<<<< SEARCH\n{old[-1]}\n=======\n{line}\n>>>>>>> REPLACE\n"
            )
        return f"Another number.\n\n```python\n{_VALUE.sub(line, PROGRAM)}```\n"

    with OpenAIServer(answer) as server:
        print(server.url, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def server(delay: float = 0.0):
    """The address of a model server."""
    words = [sys.executable, __file__, "--serve", str(delay)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def cpu() -> float:
    """User and system seconds of this process and of all children that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def whole(
    strategy: str, evaluations: int, url: str, folder: Path, workers: int
) -> dict[str, float]:
    """One run; milliseconds of CPU an evaluation."""
    from tests.servers.openai_server import SCRIPTED

    import culmen
    from culmen.core.usage import Budget

    folder.mkdir(exist_ok=True)
    models = folder / "models.toml"
    models.write_text(SCRIPTED.format(url=url))
    keywords: dict[str, Any] = {"model": "scripted", "models_file": str(models), "workers": workers}
    if strategy != "default":
        keywords["strategy"] = strategy
    began, wall = cpu(), time.perf_counter()
    own = time.process_time()
    study = culmen.optimize(
        PROGRAM,
        score,
        run_dir=folder / "run",
        budget=Budget(evaluations=evaluations),
        random_seed=1,
        **keywords,
    )
    took, own, wall = cpu() - began, time.process_time() - own, time.perf_counter() - wall
    status = study.status
    done = (
        sum(status.evaluations.values())
        if isinstance(status.evaluations, dict)
        else status.evaluations
    )
    return {
        "evaluations": done,
        "calls": status.usage.calls,
        "ms": 1000 * took / done,
        "own": 1000 * own / done,
        "children": 1000 * (took - own) / done,
        "wall": wall,
    }


def evaluation(count: int, calls: int) -> float:
    """Milliseconds of CPU of one evaluation by the function backend alone."""
    from culmen.core.candidate import Candidate
    from culmen.core.task import Evaluator, Limits, Task
    from culmen.evaluate.function import FunctionBackend

    async def work() -> None:
        backend = FunctionBackend(
            Task("f", evaluator=Evaluator(form="function"), limits=Limits(calls=calls)), score, 2
        )
        await backend.start()
        for _ in range(count // 4):
            await asyncio.gather(
                *(backend.evaluate(Candidate.of({"main.py": PROGRAM}), None, i) for i in range(4))
            )
        await backend.close()

    began = cpu()
    asyncio.run(work())
    return 1000 * (cpu() - began) / count


def call(count: int, url: str, plain: bool) -> float:
    """Milliseconds of CPU of one model call: culmen's, or the plain SDK's."""
    from culmen.models.backends import Endpoint, OpenAIBackend
    from culmen.models.call import Call, ChatMessage
    from culmen.models.spec import Key

    asked = Call("scripted", (ChatMessage("user", PROGRAM),), max_tokens=1000)

    async def work(count: int) -> None:
        backend = OpenAIBackend(Endpoint(Key(""), url))
        for _ in range(count // 4):
            await asyncio.gather(*(backend.complete(asked) for _ in range(4)))
        await backend.close()

    async def sdk(count: int) -> None:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:
            for _ in range(count // 4):
                many = [
                    client.chat.completions.create(
                        model="scripted", messages=[{"role": "user", "content": PROGRAM}]
                    )
                    for _ in range(4)
                ]
                await asyncio.gather(*many)

    measured = sdk if plain else work
    asyncio.run(measured(8))  # imports
    began = cpu()
    asyncio.run(measured(count))
    return 1000 * (cpu() - began) / count


def profiled(strategy: str, evaluations: int, url: str, folder: Path) -> None:
    """The most expensive functions of the main thread."""
    profile = cProfile.Profile(time.thread_time)
    with contextlib.redirect_stdout(io.StringIO()):
        whole(strategy, 40, url, folder / "warm-up", 2)
        os.environ["XDG_CACHE_HOME"] += "2"
        profile.runcall(whole, strategy, evaluations, url, folder, 2)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(45)
    pstats.Stats(profile, stream=text).sort_stats("cumtime").print_stats(70)
    print(text.getvalue())


def one(words: list[str]) -> dict[str, float]:
    """Measure in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def parts(evaluations: int) -> None:
    """The parts, alone."""
    with server() as url:
        stay = one(["--part", "stay", "--evaluations", str(evaluations)])["ms"]
        fork = one(["--part", "fork", "--evaluations", str(evaluations)])["ms"]
        lean = one(["--part", "call", "--evaluations", str(evaluations), "--url", url])["ms"]
        plain = one(["--part", "sdk", "--evaluations", str(evaluations), "--url", url])["ms"]
    print(
        f"evaluation alone: {stay:.2f} ms by a process that stays, {fork:.2f} ms by a fork for each call"
    )
    print(f"model call alone: {lean:.2f} ms as culmen calls, {plain:.2f} ms by the plain SDK")


def part(name: str, count: int, url: str) -> float:
    if name in ("call", "sdk"):
        return call(count, url, name == "sdk")
    return evaluation(count, 1 if name == "fork" else 1000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", nargs="+", default=["default"])
    parser.add_argument("--evaluations", type=int, default=400)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:
        return serve(chosen.serve)
    if chosen.part in ("call", "sdk", "stay", "fork"):
        print(json.dumps({"ms": part(chosen.part, chosen.evaluations, chosen.url)}))
        return None
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        if chosen.part == "whole":
            with contextlib.redirect_stdout(io.StringIO()):
                whole(chosen.strategy[0], 40, chosen.url, Path(name, "warm-up").absolute(), 2)
                os.environ["XDG_CACHE_HOME"] = f"{name}/cache2"
                found = whole(chosen.strategy[0], chosen.evaluations, chosen.url, Path(name), 2)
            print(json.dumps(found))
            return None
        if chosen.profile:
            with server() as url:
                return profiled(chosen.strategy[0], chosen.evaluations, url, Path(name))
    for strategy in chosen.strategy:
        with server() as url:
            words = [
                "--part",
                "whole",
                "--strategy",
                strategy,
                "--evaluations",
                str(chosen.evaluations),
                "--url",
                url,
            ]
            found = one(words)
        print(
            f"{strategy:<14} {found['ms']:6.2f} ms of CPU an evaluation ({found['own']:.2f} culmen's process, "
            f"{found['children']:.2f} its children), {found['evaluations']:.0f} evaluations, {found['calls']:.0f} "
            f"calls, {found['wall']:.1f} s",
            flush=True,
        )
    parts(chosen.evaluations)
    return None


if __name__ == "__main__":
    main()
