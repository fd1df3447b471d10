"""Trained advisors: built for `train.open`, or loaded from a run's checkpoints.

Loaded advisors can be exported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from culmen.core.errors import UserError
from culmen.core.inside import read_inside
from culmen.core.json import JsonObject
from culmen.core.ports import CraftContext
from culmen.core.task import digest_pieces
from culmen.extensions.train.craft import DONE, SETTINGS, Persona, TrainCraft, restore_checkpoint
from culmen.extensions.train.engine import PolicyEngine
from culmen.extensions.train.models import (
    ChatPersona,
    ChatTokenizer,
    MenuPersona,
    Render,
    WordTokenizer,
    adapted_model,
    load_model,
    load_tokenizer,
    tiny_model,
)
from culmen.extensions.train.torch_engine import TorchEngine


def policy_settings(run: Path) -> JsonObject:
    """The payload of the run's `train.open`. Raises `UserError` for a run without one."""
    file = run / "policy" / SETTINGS
    if not file.is_file():
        raise UserError(
            "this run does not train an advisor",
            where=str(run),
            fix="culmen run TASK --strategy pacevolve_plus_plus",
        )
    return json.loads(read_inside(run, f"policy/{SETTINGS}"))


def kept_versions(run: Path) -> list[int]:
    """The kept versions, the first one and the latest ones, ascending."""
    found = (path.parent.name for path in (run / "policy").glob(f"*/{DONE}"))
    return sorted(int(name) for name in found if name.isdigit())


def open_policy(run: Path, version: int | None = None) -> PolicyEngine:
    """The policy at a version (None: the latest one).

    Raises `UserError` for a version that is not kept.
    """
    payload, known = policy_settings(run), kept_versions(run)
    wanted = version if version is not None else max(known, default=0)
    if wanted not in known:
        raise UserError(
            f"version {wanted} is not kept",
            where=str(run / "policy"),
            fix=f"one of {', '.join(map(str, known))}",
        )
    engine, _ = policy_maker(lambda role, slots: ("", ""))(payload)
    restore_checkpoint(
        engine,
        run / "policy" / f"{wanted:05d}",
        digest_pieces((run / "policy" / SETTINGS).read_text()),
    )
    return engine


def export_advisor(run: Path, version: int | None, out: Path) -> JsonObject:
    """Export an advisor for other programs; return a description of the files.

    They are an adapter of a base model, or a whole model. Raises `UserError` if `out` is not an
    empty folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            "this path exists already", where=str(out), fix="name a new folder with --out"
        )
    engine = open_policy(run, version)
    out.mkdir(parents=True, exist_ok=True)
    engine.export(out)
    adapter = engine.capabilities.adapter
    about = {
        "version": engine.version,
        "form": "adapter" if adapter else "model",
        "base": policy_settings(run)["policy"],
    }
    return {**about, "out": str(out), "files": sorted(path.name for path in out.iterdir())}


Make = Callable[[JsonObject], tuple[PolicyEngine, Persona]]


def policy_maker(render: Render) -> Make:
    """The builder of policies for `train.open`.

    `render` fills a step's template.
    """

    def make(payload: JsonObject) -> tuple[PolicyEngine, Persona]:
        if payload["policy"] == "tiny":
            return _tiny_policy(payload)
        spec = payload.get("engine") or {}
        tokenizer = load_tokenizer(spec.get("tokenizer") or payload["policy"])
        persona = ChatPersona(tokenizer, render, payload["most"])
        if spec.get("kind") == "tinker":
            from culmen.extensions.train.tinker_engine import TinkerEngine

            return TinkerEngine.from_payload(payload, tokenizer), persona
        return _local_engine(payload, tokenizer), persona

    return make


def _tiny_policy(payload: JsonObject) -> tuple[PolicyEngine, Persona]:
    if payload.get("engine"):
        raise UserError(
            "the tiny policy runs in this process only",
            where="engine",
            fix="--set policy=MODEL_FOLDER",
        )
    menu, seed = payload["menu"], payload["seed"]
    tokenizer = WordTokenizer(list(menu))
    model = tiny_model(len(tokenizer), seed)
    if payload.get("head"):
        model = adapted_model(model, payload["rank"], seed, head=True)
    return TorchEngine(model, tokenizer, seed, anchored=bool(payload.get("anchored"))), MenuPersona(
        menu
    )


def _local_engine(payload: JsonObject, tokenizer: ChatTokenizer) -> TorchEngine:
    model = load_model(payload["policy"])
    if payload["rank"]:
        model = adapted_model(
            model, payload["rank"], payload["seed"], head=bool(payload.get("head"))
        )
    return TorchEngine(model, tokenizer, payload["seed"], anchored=bool(payload.get("anchored")))


def make_training_craft(context: CraftContext) -> TrainCraft:
    """The performer of a run's training; its checkpoints lie in RUN/policy."""
    return TrainCraft(context.run / "policy", policy_maker(context.render))
