"""A policy trained in this process and sampled by a vLLM or SGLang server.

Each version is a named adapter. The name ends in a digest of the adapter, so a name always means
the same weights, and a request for a version that the server lacks fails instead of being answered
by another one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.train.engine import Datum, PolicySample, Progress, ReplyRequest, Rules
from culmen.train.torch_engine import Tokenizer, TorchEngine


class ServedEngine:
    """Engine with a local trainer and a sampling server.

    `trainer` holds the weights; adapters for the server are written to `folder`, which it must be
    able to read.
    """

    def __init__(self, trainer: TorchEngine, sampler: SamplingServer, folder: Path) -> None:
        self.trainer, self._sampler, self._folder = trainer, sampler, folder
        self.capabilities = msgspec.structs.replace(
            trainer.capabilities, grammar=sampler.grammar, exact=False
        )
        self._name, self._served = "", -1  # the adapter on the server, and its version

    @property
    def version(self) -> int:
        """The trainer's version, which is sampled next."""
        return self.trainer.version

    @property
    def tokenizer(self) -> Tokenizer:
        """The trainer's tokenizer."""
        return self.trainer.tokenizer

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return self.trainer.encode(prompt)

    def sample(
        self, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int] = ()
    ) -> PolicySample:
        """One reply of the server with the adapter of this version."""
        return self.sample_many(
            [ReplyRequest(tuple(prompt), seed, max_tokens, tuple(among))], lambda done, tokens: None
        )[0]

    def sample_many(
        self, requests: Sequence[ReplyRequest], on_progress: Progress
    ) -> list[PolicySample]:
        """Replies to concurrent requests; the server batches them."""
        self._serve_adapter()
        tokens = 0
        with ThreadPoolExecutor(min(_TOGETHER, max(1, len(requests)))) as pool:
            going = [pool.submit(self._draw_sample, one) for one in requests]
            for done, reply in enumerate(as_completed(going), 1):
                tokens += len(reply.result().response)
                on_progress(done, tokens)
        return [reply.result() for reply in going]

    def _draw_sample(self, request: ReplyRequest) -> PolicySample:
        prompt, seed, max_tokens, among = request
        drawn = self._sampler.draw_reply(self._name, prompt, seed % (2**31 - 1), max_tokens, among)
        closed = drawn.tokens[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(drawn.tokens[:-1] if closed else drawn.tokens)
        return PolicySample(
            prompt, drawn.tokens, drawn.logprobs, self._served, text, drawn.ended, among
        )

    def logprobs(self, sample: PolicySample) -> list[float]:
        """The response's log-probabilities, recomputed by the trainer."""
        return self.trainer.logprobs(sample)

    def hold_logprobs(self, samples: Sequence[PolicySample]) -> None:
        """Hold the trainer's log-probabilities of the samples."""
        self.trainer.hold_logprobs(samples)

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
        """Accumulate the trainer's gradient.

        The gap to the server's log-probabilities is reported and corrected.
        """
        return self.trainer.forward_backward(data, rules)

    def optim_step(self, rules: Rules) -> dict[str, float]:
        """Take the trainer's optimiser step."""
        return self.trainer.optim_step(rules)

    def publish(self) -> int:
        """Give the server the adapter of the new version, then unload the old one."""
        self.trainer.publish()
        self._serve_adapter()
        return self.version

    def save(self, folder: Path) -> None:
        """Write the trainer's checkpoint."""
        self.trainer.save(folder)

    def load(self, folder: Path) -> None:
        """Load the trainer's checkpoint; the server gets its adapter at the next sample."""
        self.trainer.load(folder)
        self._served = -1

    def discard(self, folder: Path) -> None:
        """Remove a checkpoint."""
        self.trainer.discard(folder)

    def export(self, folder: Path) -> None:
        """Write the trainer's adapter."""
        self.trainer.export(folder)

    def _serve_adapter(self) -> None:
        if self._served == self.version:
            return
        partial = self._folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        self.trainer.model.save_pretrained(partial)
        digest = hashlib.sha256((partial / "adapter_model.safetensors").read_bytes()).hexdigest()
        old, self._name = self._name, f"culmen-{self.version:05d}-{digest[:12]}"
        adapter_folder = self._folder / self._name
        shutil.rmtree(adapter_folder, ignore_errors=True)
        partial.rename(adapter_folder)
        self._sampler.load_adapter(self._name, str(adapter_folder.resolve()))
        self._served = self.version
        if old and old != self._name:
            self._sampler.unload_adapter(old)
            shutil.rmtree(self._folder / old, ignore_errors=True)


_TOGETHER = 64  # concurrent requests
_PATIENCE = 1800.0  # seconds for one reply
_NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class Drawn(NamedTuple):
    """A reply: its tokens with the closing one, a log-probability each, and its end.

    `ended` is True if the reply ended by itself.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool


class SamplingServer(Protocol):
    """A server of adapters.

    `grammar` is True if replies can be limited to some tokens. A name, once loaded, never changes
    its weights.
    """

    grammar: bool

    def load_adapter(self, name: str, path: str) -> None: ...

    def unload_adapter(self, name: str) -> None: ...

    def draw_reply(
        self, name: str, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int]
    ) -> Drawn: ...


def make_sampling_client(kind: str, url: str) -> SamplingServer:
    """The client of a `vllm` or `sglang` server."""
    return {"vllm": VllmServer, "sglang": SglangServer}[kind](url)


class _Http:
    """Requests to one server; SAMPLER_API_KEY is sent along if it is set."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def post(self, path: str, body: JsonObject, known: str = "\0") -> JsonObject:
        """The server's answer; {} if it is text.

        A refusal that contains `known` counts as success. Raises `Unavailable` for any other, and
        `UserError` for a server that takes no adapters.
        """
        import httpx2

        key = os.environ.get("SAMPLER_API_KEY")
        try:
            response = httpx2.post(
                self._url + path,
                json=body,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx2.Timeout(_PATIENCE, connect=30.0),
            )
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"the sampling server does not answer: {error or type(error).__name__}",
                where=self._url + path,
                fix="start it, then culmen resume RUN",
            ) from error
        if response.status_code == 200 or known in response.text:
            return response.json() if "json" in response.headers.get("content-type", "") else {}
        if response.status_code == 404 and path.endswith("lora_adapter"):
            raise UserError(
                "the sampling server takes no adapters while it runs",
                where=self._url + path,
                fix=(
                    "vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora; SGLang: "
                    "--enable-lora"
                ),
            )
        raise Unavailable(
            f"the sampling server refused the request: {response.text[:300]}",
            where=self._url + path,
        )


class VllmServer:
    """Client of a vLLM server: OpenAI's completions with vLLM's additions.

    Prompts and replies are token ids, and adapters are selected by name.
    """

    grammar = True

    def __init__(self, url: str) -> None:
        self._http = _Http(url)

    def load_adapter(self, name: str, path: str) -> None:
        """Register an adapter's folder under a name."""
        self._http.post(
            "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, "already been loaded"
        )

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter."""
        self._http.post("/v1/unload_lora_adapter", {"lora_name": name}, "cannot be found")

    def draw_reply(
        self, name: str, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int]
    ) -> Drawn:
        """Draw one reply.

        If it is limited to some tokens, the server needs `--logprobs-mode processed_logprobs`.
        """
        body = {
            "model": name,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "seed": seed,
            "logprobs": 1,
            **_NEUTRAL,
        }
        body |= {"return_token_ids": True} | ({"allowed_token_ids": list(among)} if among else {})
        answer = self._http.post("/v1/completions", body)
        if answer.get("model") != name:
            raise _unusable_server_error(f"it answered as {answer.get('model')} instead of {name}")
        choice = answer["choices"][0]
        tokens, logprobs = (
            choice.get("token_ids"),
            (choice.get("logprobs") or {}).get("token_logprobs"),
        )
        return _checked_reply(tokens, logprobs, choice.get("finish_reason") == "stop")


class SglangServer:
    """Client of an SGLang server's own endpoint.

    It returns token ids and log-probabilities.
    """

    grammar = False

    def __init__(self, url: str) -> None:
        self._http = _Http(url)

    def load_adapter(self, name: str, path: str) -> None:
        """Register an adapter's folder under a name."""
        self._http.post(
            "/load_lora_adapter", {"lora_name": name, "lora_path": path}, "already loaded"
        )

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter."""
        self._http.post("/unload_lora_adapter", {"lora_name": name}, "not found")

    def draw_reply(
        self, name: str, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int]
    ) -> Drawn:
        """Draw one reply.

        The seed acts only on a server with `--enable-deterministic-inference`.
        """
        if among:
            raise ValueError("replies cannot be limited to some tokens here")
        params = {"max_new_tokens": max_tokens, "sampling_seed": seed, **_NEUTRAL}
        body = {
            "input_ids": list(prompt),
            "sampling_params": params,
            "return_logprob": True,
            "lora_path": name,
        }
        answer = self._http.post("/generate", body)
        meta = answer.get("meta_info", {})
        pairs = meta.get("output_token_logprobs") or []
        ended = (meta.get("finish_reason") or {}).get("type") == "stop"
        return _checked_reply([pair[1] for pair in pairs], [pair[0] for pair in pairs], ended)


def _checked_reply(tokens: list[int] | None, logprobs: list[float] | None, ended: bool) -> Drawn:
    if not tokens or not logprobs or len(tokens) != len(logprobs):
        raise _unusable_server_error("its reply has no token ids with a log-probability each")
    return Drawn(tuple(tokens), tuple(logprobs), ended)


def _unusable_server_error(why: str) -> UserError:
    return UserError(
        f"the sampling server cannot be used for training: {why}",
        where="engine",
        fix="install a newer version of the server",
    )
