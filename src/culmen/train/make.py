"""Policies by name, for `train.open`: `tiny`, or a model folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from culmen.train.craft import Persona
from culmen.train.engine import PolicyEngine
from culmen.train.tiny import ChatPersona, MenuPersona, WordTokenizer, load_chat_model, tiny_model
from culmen.train.torch_engine import TorchEngine

Render = Callable[[str, dict[str, Any]], tuple[str, str]]


def maker(render: Render) -> Callable[[dict[str, Any]], tuple[PolicyEngine, Persona]]:
    """What builds the policy that an opening asks for; `render` fills a step's template."""

    def make(payload: dict[str, Any]) -> tuple[PolicyEngine, Persona]:
        if payload["policy"] == "tiny":
            menu = payload["menu"]
            tokenizer = WordTokenizer(list(menu))
            return TorchEngine(tiny_model(len(tokenizer), payload["seed"]), tokenizer), MenuPersona(menu)
        model, tokenizer = load_chat_model(payload["policy"], payload["rank"])
        return TorchEngine(model, tokenizer), ChatPersona(tokenizer, render, payload["most"])

    return make
