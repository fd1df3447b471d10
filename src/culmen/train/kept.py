"""The trained advisor of a run, from its checkpoints: which versions there are; one opened, talked to, written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.core.task import fingerprint
from culmen.train.chat import ChatTokenizer
from culmen.train.craft import DONE, SETTINGS, restore
from culmen.train.engine import PolicyEngine
from culmen.train.make import maker

Messages = list[dict[str, str]]


def settings(run: Path) -> dict[str, Any]:
    """What the run's policy was opened with. Raises `UserError` for a run without one."""
    file = run / "policy" / SETTINGS
    if not file.is_file():
        raise UserError(
            "this run trains no advisor", where=str(run), fix="culmen run TASK --strategy pacevolve_plus_plus"
        )
    return json.loads(file.read_text())


def versions(run: Path) -> list[int]:
    """The versions that are kept, the first one and the latest ones, ascending."""
    found = (path.parent.name for path in (run / "policy").glob(f"*/{DONE}"))
    return sorted(int(name) for name in found if name.isdigit())


def opened(run: Path, version: int | None = None) -> PolicyEngine:
    """The policy at a version, None: the latest. What a server sampled but did not train is opened in this process."""
    payload, known = settings(run), versions(run)
    wanted = version if version is not None else max(known, default=0)
    if wanted not in known:
        raise UserError(
            f"version {wanted} is not kept", where=str(run / "policy"), fix=f"one of {', '.join(map(str, known))}"
        )
    if (payload.get("engine") or {}).get("kind") != "tinker":
        payload.pop("engine", None)
    engine, _ = maker(lambda role, slots: ("", ""))(payload)
    restore(engine, run / "policy" / f"{wanted:05d}", fingerprint((run / "policy" / SETTINGS).read_text()))
    return engine


def export(run: Path, version: int | None, out: Path) -> dict[str, Any]:
    """Write an advisor for other programs; says what it is: an adapter of a base model, or a whole model."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("there is something already", where=str(out), fix="name a new folder with --out")
    engine = opened(run, version)
    out.mkdir(parents=True, exist_ok=True)
    engine.export(out)
    adapter = engine.capabilities.adapter
    about = {"version": engine.version, "form": "adapter" if adapter else "model", "base": settings(run)["policy"]}
    return {**about, "out": str(out), "files": sorted(path.name for path in out.iterdir())}


class Talk:
    """A conversation with one version. The tiny policy answers with words of its menu, whatever it is told."""

    def __init__(self, run: Path, version: int | None, system: str = "", seed: int = 0) -> None:
        self._asked, self._seed = settings(run), seed
        self._engine = opened(run, version)
        self.version = self._engine.version
        self.messages: Messages = [{"role": "system", "content": system}] if system else []

    def say(self, text: str) -> str:
        """Its reply to one more message."""
        engine = self._engine
        self.messages.append({"role": "user", "content": text})
        tokenizer = getattr(engine, "tokenizer", None)
        if isinstance(tokenizer, ChatTokenizer):
            prompt, most, among = engine.encode(tokenizer.chat(self.messages)), self._asked["most"], ()
        else:
            prompt, most, among = engine.encode(text), 3, engine.encode(" ".join(self._asked["menu"]))[1:]
        self._seed += 1
        reply = engine.sample(prompt, self._seed, most, among).text
        self.messages.append({"role": "assistant", "content": reply})
        return reply
