"""Policies by name, for `train.open`: `tiny`, a model folder, or a model that a server trains or samples from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from culmen.core.errors import UserError
from culmen.train.chat import ChatPersona, ChatTokenizer, Render, adapted, load_model, load_tokenizer
from culmen.train.craft import Persona
from culmen.train.engine import PolicyEngine
from culmen.train.tiny import MenuPersona, WordTokenizer, tiny_model
from culmen.train.torch_engine import TorchEngine

Make = Callable[[dict[str, Any]], tuple[PolicyEngine, Persona]]


def maker(render: Render, folder: Path | None = None) -> Make:
    """What builds the policy that an opening asks for; `render` fills a step's template, `folder` is the run's."""

    def make(payload: dict[str, Any]) -> tuple[PolicyEngine, Persona]:
        if payload["policy"] == "tiny":
            return _tiny(payload)
        spec = payload.get("engine") or {}
        tokenizer = load_tokenizer(spec.get("tokenizer") or payload["policy"])
        persona = ChatPersona(tokenizer, render, payload["most"])
        if spec.get("kind") == "tinker":
            from culmen.train.tinker_engine import TinkerEngine

            return TinkerEngine.open(payload, tokenizer), persona
        engine = _local(payload, tokenizer)
        if spec.get("kind") in ("vllm", "sglang"):
            return _served(engine, spec, folder), persona
        return engine, persona

    return make


def _tiny(payload: dict[str, Any]) -> tuple[PolicyEngine, Persona]:
    if payload.get("engine"):
        raise UserError("the tiny policy lives in this process", where="engine", fix="--set policy=MODEL_FOLDER")
    menu, seed = payload["menu"], payload["seed"]
    tokenizer = WordTokenizer(list(menu))
    model = tiny_model(len(tokenizer), seed)
    if payload.get("head"):
        model = adapted(model, payload["rank"], seed, head=True)
    return TorchEngine(model, tokenizer, seed), MenuPersona(menu)


def _local(payload: dict[str, Any], tokenizer: ChatTokenizer) -> TorchEngine:
    model = load_model(payload["policy"])
    if payload["rank"]:
        model = adapted(model, payload["rank"], payload["seed"], head=bool(payload.get("head")))
    return TorchEngine(model, tokenizer, payload["seed"])


def _served(engine: TorchEngine, spec: dict[str, Any], folder: Path | None) -> PolicyEngine:
    from culmen.train.served import ServedEngine
    from culmen.train.serving import connect

    if not engine.capabilities.adapter:
        raise UserError("a server can only be given adapters", where="rank", fix="--set rank=32")
    if folder is None:
        raise UserError("adapters for a server need a folder", where="engine", fix="open the policy of a run")
    return ServedEngine(engine, connect(spec["kind"], spec["url"]), folder / "served")
