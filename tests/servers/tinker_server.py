"""A server on the loopback that speaks the Tinker API and really trains small models.

It samples from them, differentiates and steps them.

It stands for SkyRL or the managed service in tests: sessions, futures, immutable sampler paths,
states with their optimiser, the losses `cross_entropy`, `importance_sampling` and `ppo`. Loss and
step are written here a second time, on purpose: an engine that agrees with it agrees with
something. It answers both the older JSON and the newer protobuf.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.servers import tinker_wire as wire
from tests.servers.loopback import Loopback
from tests.servers.tinker_models import Refused, Trained

_CHECKPOINT = re.compile(
    r"/api/v1/training_runs/([\w-]+)/checkpoints/(?:(weights|sampler_weights)/)?([\w-]+)(/archive)?"
)


class TinkerServer(Loopback):
    """`with TinkerServer(load) as server:` serves at `server.url`.

    `load(name)` gives a new base model of transformers.

    aggregate   how the loss is summed over responses: token_sum, or sequence_mean (SkyRL's)
    bounds      whether the bounds of a ratio are obeyed; otherwise 0.2 on both sides
    fail        names of paths (such as optim_step) whose next request is refused, used up one by one

    `calls` counts requests by path, `drawn` lists the sampler path of every reply, `deleted` the
    checkpoints removed.
    """

    def __init__(
        self, load: Callable[[str], Any], aggregate: str = "token_sum", *, bounds: bool = True
    ) -> None:
        self._load, self.aggregate, self.bounds = load, aggregate, bounds
        self._lock, self._results = threading.RLock(), dict[str, tuple[str, Any]]()
        self._models: dict[str, Trained] = {}
        self._samplers: dict[str, str] = {}  # sampling session -> path
        self._weights: dict[str, Any] = {}  # path -> adapter, or state with its optimiser
        self.calls: Counter[str] = Counter()
        self.drawn: list[str] = []
        self.deleted: list[str] = []
        self.fail: list[str] = []
        super().__init__(_Handler)

    def trained(self) -> list[Trained]:
        """The models in training, in the order in which they were made."""
        return list(self._models.values())

    def post(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request: its answer, for most of them a future that is settled already."""
        with self._lock:
            self.calls[name] += 1
            if name in self.fail:
                self.fail.remove(name)
                raise Refused(f"{name} is told to fail")
            if name in ("client/config", "client/dynamic_config", "session_heartbeat", "telemetry"):
                return (
                    {"type": "session_heartbeat", "status": "accepted"} if "/" not in name else {}
                )
            if name == "create_session":
                return {"type": "create_session", "session_id": "session"}
            if name == "create_sampling_session":
                session = f"sampling-{len(self._samplers)}"
                self._samplers[session] = body["model_path"]
                return {"type": "create_sampling_session", "sampling_session_id": session}
            if name == "get_info":
                return {
                    "type": "get_info",
                    "model_id": body["model_id"],
                    "model_data": {"model_name": "small"},
                }
            kind, result = self._perform(name, body)
            number = str(len(self._results))
            self._results[number] = (kind, result)
            told = {"request_id": number, "future_id": number, "status": "pending"}
            return told | ({"sample_sequence_ids": [f"{number}-0"]} if kind == "sample" else {})

    def result(self, number: str) -> tuple[str, Any]:
        """The outcome of a future: its kind (sample, forward, other) and the answer."""
        with self._lock:
            return self._results[number]

    def _perform(self, name: str, body: dict[str, Any]) -> tuple[str, Any]:
        if name == "create_model":
            asked = body["lora_config"]
            number = f"model-{len(self._models)}"
            self._models[number] = Trained(
                lambda: self._load(body["base_model"]),
                asked["rank"],
                asked.get("seed") or 0,
                asked["train_unembed"],
            )
            return "other", {"model_id": number, "type": "create_model"}
        if name == "asample":
            return "sample", self._sample(body)
        if body.get("model_id") not in self._models:
            raise Refused("there is no such model", 404)
        model = self._models[body["model_id"]]
        if name in ("forward", "forward_backward"):
            backward = name == "forward_backward" and not body.get("forward_only")
            given = body.get("forward_backward_input") or body["forward_input"]
            config = given.get("loss_fn_config") if self.bounds else None
            return "forward", model.loss(
                given["data"], given["loss_fn"], config or {}, self.aggregate, backward
            )
        if name == "optim_step":
            return "other", {"metrics": model.step(body["adam_params"], self.aggregate)}
        return "other", self._keep(name, body, model)

    def _sample(self, body: dict[str, Any]) -> dict[str, Any]:
        path = self._samplers[body["sampling_session_id"]]
        if path not in self._weights:
            raise Refused(f"there is no checkpoint {path}", 404)
        self.drawn.append(path)
        model = self._models[path.removeprefix("tinker://").partition("/")[0]]
        prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        return model.sample(self._weights[path], prompt, body["sampling_params"])

    def _keep(self, name: str, body: dict[str, Any], model: Trained) -> dict[str, Any]:
        if name == "load_weights":
            if body["path"] not in self._weights:
                raise Refused(f"there is no checkpoint {body['path']}", 404)
            model.load(self._weights[body["path"]], body["optimizer"])
            return {"path": body["path"], "type": "load_weights"}
        kinds = {"save_weights": "weights", "save_weights_for_sampler": "sampler_weights"}
        if name not in kinds:
            raise Refused(f"there is no {name}", 404)
        path = f"tinker://{body['model_id']}/{kinds[name]}/{body['path']}"
        if path in self._weights:
            raise Refused(f"{path} exists already", 409)
        self._weights[path] = model.state() if name == "save_weights" else model.adapter()
        return {"path": path, "type": name}

    def archive(self, run: str, name: str) -> bytes:
        """The adapter of a sampler's path in PEFT's layout, as tar.gz."""
        with self._lock, tempfile.TemporaryDirectory() as place:
            weights = self._weights.get(f"tinker://{run}/sampler_weights/{name}")
            if weights is None:
                raise Refused("there is no such checkpoint", 404)
            self._models[run].export(weights, Path(place) / name)
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz") as archive:
                archive.add(Path(place) / name, arcname=name)
            return packed.getvalue()

    def delete(self, run: str, kind: str, name: str) -> None:
        """Forget a checkpoint."""
        with self._lock:
            path = f"tinker://{run}/{kind}/{name}"
            if self._weights.pop(path, None) is None:
                raise Refused("there is no such checkpoint", 404)
            self.deleted.append(path)


class _Handler(BaseHTTPRequestHandler):
    """One connection; `served` is set by the server."""

    served: TinkerServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.path.partition("?")[0].removeprefix("/api/v1/")
        binary = wire.PROTO in self.headers.get("Content-Type", "")
        try:
            body = wire.forward_request(raw) if binary else json.loads(raw or b"{}")
            if name == "retrieve_future":
                self._settled(body["request_id"])
            else:
                self._send(200, self.served.post(name, body))
        except Refused as refused:
            self._send(refused.status, {"detail": str(refused)})

    def do_GET(self) -> None:
        found = _CHECKPOINT.fullmatch(self.path)
        if found is None or not found[4]:
            name = self.path.rpartition("/")[2]
            self._send(200, {"status": "ok", "sampler_id": name, "base_model": "small"})
            return
        try:
            self._send(200, self.served.archive(found[1], found[3]), "application/gzip")
        except Refused as refused:
            self._send(refused.status, {"detail": str(refused)})

    def do_DELETE(self) -> None:
        found = _CHECKPOINT.fullmatch(self.path)
        try:
            if found is None:
                raise Refused("there is no such checkpoint", 404)
            self.served.delete(found[1], found[2], found[3])
            self._send(204, b"")
        except Refused as refused:
            self._send(refused.status, {"detail": str(refused)})

    def _settled(self, number: str) -> None:
        kind, result = self.served.result(number)
        if kind == "other" or wire.PROTO not in self.headers.get("Accept", ""):
            self._send(200, result)
        else:
            self._send(200, wire.answer(kind, result), wire.PROTO)

    def _send(
        self, status: int, content: dict[str, Any] | bytes, kind: str = "application/json"
    ) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
