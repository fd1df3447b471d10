"""A server on the loopback with the endpoints of vLLM and of SGLang for training.

Adapters are loaded from folders while it runs, and it really samples, by the adapter asked for or
not at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from culmen.extensions.train.engine import import_extra
from culmen.extensions.train.models import ChatTokenizer
from culmen.extensions.train.torch_engine import TorchEngine
from tests.servers.loopback import Loopback


class LoraServer(Loopback):
    """`with LoraServer(load, tokenizer) as server:` serves at `server.url`.

    `load()` gives the base model.

    wrong   a name that vLLM's answers carry instead of the adapter's, or None
    ids     whether replies have token ids (older servers do not know how)

    `drawn` lists the adapter of every reply, `loaded` and `unloaded` the names in their order.
    """

    def __init__(self, load: Callable[[], Any], tokenizer: ChatTokenizer) -> None:
        self._load, self._tokenizer = load, tokenizer
        self._lock, self._adapters = threading.Lock(), dict[str, TorchEngine]()
        self.wrong: str | None = None
        self.ids = True
        self.drawn: list[str] = []
        self.loaded: list[str] = []
        self.unloaded: list[str] = []
        super().__init__(_Handler)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any] | str]:
        """Status and answer of one request."""
        with self._lock:
            match path:
                case "/v1/load_lora_adapter" | "/load_lora_adapter":
                    return self._add(body["lora_name"], body["lora_path"])
                case "/v1/unload_lora_adapter" | "/unload_lora_adapter":
                    return self._drop(body["lora_name"])
                case "/v1/completions":
                    return self._completion(body)
                case "/generate":
                    return self._generation(body)
                case _:
                    return 404, {"detail": "Not Found"}

    def _add(self, name: str, path: str) -> tuple[int, dict[str, Any] | str]:
        if name in self._adapters:
            return 400, {
                "message": f"The lora adapter '{name}' has already been loaded; it is already loaded."
            }
        model = import_extra("peft", "train").PeftModel.from_pretrained(self._load(), path)
        self._adapters[name] = TorchEngine(model, self._tokenizer)
        self.loaded.append(name)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _drop(self, name: str) -> tuple[int, dict[str, Any] | str]:
        if self._adapters.pop(name, None) is None:
            return 404, {"message": f"The lora adapter '{name}' cannot be found: not found."}
        self.unloaded.append(name)
        return 200, f"Success: LoRA adapter '{name}' removed successfully."

    def _completion(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = body["model"]
        if name not in self._adapters:
            return 404, {"message": f"The model `{name}` does not exist."}
        self.drawn.append(name)
        among = tuple(body.get("allowed_token_ids", ()))
        sample = self._adapters[name].sample(
            body["prompt"], body["seed"], body["max_tokens"], among
        )
        choice: dict[str, Any] = {
            "index": 0,
            "text": sample.text,
            "finish_reason": "stop" if sample.ended else "length",
            "logprobs": {"token_logprobs": sample.logprobs} if body.get("logprobs") else None,
            "token_ids": sample.response if body.get("return_token_ids") and self.ids else None,
        }
        return 200, {"object": "text_completion", "model": self.wrong or name, "choices": [choice]}

    def _generation(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name, params = body["lora_path"], body["sampling_params"]
        if name not in self._adapters:
            return 400, {"error": {"message": f"adapter {name} is not loaded"}}
        self.drawn.append(name)
        sample = self._adapters[name].sample(
            body["input_ids"], params["sampling_seed"], params["max_new_tokens"]
        )
        pairs = [
            [level, token, None]
            for level, token in zip(sample.logprobs, sample.response, strict=True)
        ]
        reason = (
            {"type": "stop", "matched": sample.response[-1]} if sample.ended else {"type": "length"}
        )
        told = {
            "finish_reason": reason,
            "output_token_logprobs": pairs if body.get("return_logprob") else None,
        }
        return 200, {"text": sample.text, "output_ids": sample.response, "meta_info": told}


class _Handler(BaseHTTPRequestHandler):
    """One connection; `served` is set by the server."""

    served: LoraServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        status, answer = self.served.answer(self.path, body)
        raw = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header(
            "Content-Type", "text/plain" if isinstance(answer, str) else "application/json"
        )
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
