"""A policy held by a server that speaks the Tinker API (extra `train-tinker`).

The official SDK reaches SkyRL on machines of one's own (Ray, FSDP or Megatron, vLLM, many nodes)
and the managed service. Sampling, gradients and the optimiser are the server's; advantages, clip
bounds and versions are computed here. A version is a sampler's path, which never changes its
weights; the state to continue from is another path, kept in the checkpoint.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.extensions.train.engine import (
    Capabilities,
    Datum,
    PolicySample,
    Progress,
    ReplyRequest,
    Rules,
    UpdateDiagnostics,
    import_extra,
    kl_estimate,
)
from culmen.extensions.train.models import ChatTokenizer
from culmen.extensions.train.torch_engine import check_version

_PATHS = "remote.json"
_PATIENCE = 3600.0  # seconds for one call, all retries of the SDK included
_PROBE = 1.25  # a ratio between the upper bound fixed by some servers (1.2) and culmen's (1.28)


class _SampledSequence(Protocol):
    tokens: Sequence[int]
    logprobs: Sequence[float] | None
    stop_reason: str


class _SampleReply(Protocol):
    sequences: Sequence[_SampledSequence]


class _SampleFuture(Protocol):
    def result(self, timeout: float) -> _SampleReply: ...


class _TensorData(Protocol):
    data: Sequence[float]


class TinkerEngine:
    """Engine on a server of the Tinker API.

    `trainer` trains the adapter of `version`; `sampler` draws from the published one.
    """

    def __init__(
        self,
        url: str,
        base: str,
        tokenizer: ChatTokenizer,
        rank: int,
        seed: int,
        head: bool,
        aggregate: str,
    ) -> None:
        self._sdk, self._url = import_extra("tinker", "train-tinker"), url.rstrip("/")
        self.tokenizer, self.version, self._aggregate = tokenizer, 0, aggregate
        self._settings = {"base_model": base, "rank": rank, "seed": seed, "train_unembed": head}
        self._before: list[tuple[PolicySample, list[float]]] = []
        self._held: dict[PolicySample, list[float]] = {}
        self._pending = False  # a gradient on the server that no step has used
        if self._url:
            _check_server_answers(self._url)
        with self._translate_errors():
            own = os.environ.get("TINKER_API_KEY") or ("tml-self-hosted" if self._url else None)
            self._service = self._sdk.ServiceClient(base_url=self._url or None, api_key=own)
            self._trainer = self._create_trainer()
            self._publish_weights()
            clip = self._has_clip_bounds()
        norm = aggregate == "token_sum"  # SkyRL does not cut the gradient
        self.capabilities = Capabilities(
            clip=clip, norm=norm, grammar=False, entropy=False, adapter=True
        )

    @classmethod
    def from_payload(cls, payload: JsonObject, tokenizer: ChatTokenizer) -> TinkerEngine:
        """The engine for the payload of `train.open`.

        Raises `UserError` for unsupported settings.
        """
        spec = payload["engine"]
        if not payload["rank"]:
            raise UserError(
                "the Tinker API trains adapters only", where="rank", fix="--set rank=32"
            )
        if payload.get("anchored"):
            raise UserError(
                "the Tinker API cannot anchor a policy to its first weights",
                where="anchor",
                fix="--set anchor=0",
            )
        head = bool(payload.get("head"))
        return cls(
            spec["url"],
            payload["policy"],
            tokenizer,
            payload["rank"],
            payload["seed"],
            head,
            spec["aggregate"],
        )

    def encode(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple(self.tokenizer.encode(prompt))

    def sample(
        self, prompt: Sequence[int], seed: int, max_tokens: int, among: Sequence[int] = ()
    ) -> PolicySample:
        """One reply at temperature 1 from the full distribution.

        The API cannot limit it to some tokens.
        """
        return self.sample_many(
            [ReplyRequest(tuple(prompt), seed, max_tokens, tuple(among))], lambda done, tokens: None
        )[0]

    def sample_many(
        self, requests: Sequence[ReplyRequest], on_progress: Progress
    ) -> list[PolicySample]:
        """Replies to concurrent requests; the server batches them."""
        replies, tokens = list[PolicySample](), 0
        with self._translate_errors():
            for request, reply in [(request, self._send_request(request)) for request in requests]:
                replies.append(self._policy_sample(request, reply.result(_PATIENCE).sequences[0]))
                tokens += len(replies[-1].response)
                on_progress(len(replies), tokens)
        return replies

    def _send_request(self, request: ReplyRequest) -> _SampleFuture:
        """Send a request; return its future."""
        prompt, seed, max_tokens, among = request
        if among:
            raise ValueError("replies cannot be limited to some tokens here")
        types, eos = self._sdk.types, self.tokenizer.eos_token_id
        params = types.SamplingParams(
            max_tokens=max_tokens,
            seed=seed % (2**31 - 1),
            temperature=1.0,
            top_p=1.0,
            top_k=-1,
            stop=[eos],
        )
        return self._sampler.sample(types.ModelInput.from_ints(list(prompt)), 1, params)

    def _policy_sample(self, request: ReplyRequest, drawn: _SampledSequence) -> PolicySample:
        eos = self.tokenizer.eos_token_id
        tokens, ended = list(drawn.tokens), drawn.stop_reason == "stop"
        text = self.tokenizer.decode(tokens[:-1] if tokens and tokens[-1] == eos else tokens)
        if drawn.logprobs is None or len(drawn.logprobs) != len(tokens):
            raise UserError(
                "the server returns samples without log-probabilities", where=self._server_name
            )
        return PolicySample(
            request.prompt, tuple(tokens), tuple(drawn.logprobs), self.version, text, ended
        )

    def logprobs(self, sample: PolicySample) -> list[float]:
        """The response's log-probabilities, by a forward pass of the trainer."""
        with self._translate_errors():
            return self._trainer_logprobs([sample])[0]

    def hold_logprobs(self, samples: Sequence[PolicySample]) -> None:
        """Hold the samples' log-probabilities for the diagnostics alone.

        The server takes its ratios against the log-probabilities as drawn.
        """
        with self._translate_errors():
            self._held = dict(zip(samples, self._trainer_logprobs(samples), strict=True))

    def forward_backward(self, data: Sequence[Datum], rules: Rules) -> dict[str, float]:
        """Accumulate the gradient of the server's `ppo` loss; return the diagnostics.

        Advantages are scaled so that the server's sum is the mean over all tokens.
        """
        check_version(data, self.version, rules.stale)
        tokens = sum(len(datum.sample.response) for datum in data)
        batch = [
            self._sdk_datum(
                datum.sample,
                datum.advantage * self._advantage_scale(datum.sample, tokens, len(data)),
            )
            for datum in data
        ]
        bounds = {"clip_low_threshold": 1 - rules.low, "clip_high_threshold": 1 + rules.high}
        self._pending = True
        with self._translate_errors():
            out = self._trainer.forward_backward(batch, "ppo", bounds).result(_PATIENCE)
        tally, self._before = UpdateDiagnostics(), []
        for datum, outputs in zip(data, out.loss_fn_outputs, strict=True):
            new = _response_logprobs(outputs, datum.sample)
            held, entropies = self._held.get(datum.sample, new), [-x for x in new]
            tally.add_response(
                new, datum.sample.logprobs, entropies, [datum.advantage] * len(new), rules, held
            )
            self._before.append((datum.sample, held))
        return tally.means_and_maxima()

    def optim_step(self, rules: Rules) -> dict[str, float]:
        """Take one step of the server's AdamW.

        Returns kl (k3), and the norm of the gradient if the server reports it.
        """
        adam = self._sdk.types.AdamParams(
            learning_rate=rules.rate,
            beta1=rules.betas[0],
            beta2=rules.betas[1],
            eps=1e-8,
            weight_decay=rules.decay,
            grad_clip_norm=rules.norm,
        )
        with self._translate_errors():
            metrics = self._trainer.optim_step(adam).result(_PATIENCE).metrics or {}
            after = self._trainer_logprobs([sample for sample, _ in self._before])
        total = sum(
            kl_estimate(old, new) for (_, old), new in zip(self._before, after, strict=True)
        )
        count = sum(len(old) for _, old in self._before)
        self._before, self._pending = [], False
        norms = [value for name, value in metrics.items() if name.endswith("grad_norm")]
        return {"kl": total / max(1, count)} | ({"grad_norm": norms[0]} if norms else {})

    def publish(self) -> int:
        """Save the new weights for sampling, under a unique name."""
        with self._translate_errors():
            self.version += 1
            self._publish_weights()
        self._held = {}
        return self.version

    def save(self, folder: Path) -> None:
        """Have the server save weights and optimiser state; the folder holds the paths."""
        folder.mkdir(parents=True, exist_ok=True)
        with self._translate_errors():
            state = self._trainer.save_state(self._unique_name()).result(_PATIENCE).path
        paths = {
            "version": self.version,
            "state": state,
            "sampler": self._path,
            "base": self._settings["base_model"],
        }
        (folder / _PATHS).write_text(json.dumps(paths))

    def load(self, folder: Path) -> None:
        """Continue from a kept state. An unused gradient is dropped with its training client."""
        paths = json.loads((folder / _PATHS).read_text())
        with self._translate_errors():
            if self._pending:
                self._trainer, self._pending = self._create_trainer(), False
            self._trainer.load_state_with_optimizer(paths["state"]).result(_PATIENCE)
            self.version, self._path = paths["version"], paths["sampler"]
            self._sampler = _resolved_client(
                self._service.create_sampling_client(model_path=self._path)
            )

    def discard(self, folder: Path) -> None:
        """Remove a checkpoint, on the server too if it allows that."""
        paths = json.loads((folder / _PATHS).read_text())
        rest = self._service.create_rest_client()
        for path in (paths["state"], paths["sampler"]):
            try:
                rest.delete_checkpoint_from_tinker_path(path).result(60.0)
            except (self._sdk.TinkerError, TimeoutError):
                continue  # it stays on the server, unused
        shutil.rmtree(folder, ignore_errors=True)

    def export(self, folder: Path) -> None:
        """Write the adapter in use for sampling, as the server packs it, and the tokenizer."""
        download_adapter(self._url, self._path, folder)
        self.tokenizer.save_pretrained(str(folder))

    @property
    def _server_name(self) -> str:
        return self._url or "the managed Tinker service"

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert errors of the SDK into `Unavailable`, so that the run can be resumed."""
        try:
            yield
        except (self._sdk.TinkerError, TimeoutError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise Unavailable(
                f"the advisor's server: {reason}", where=self._server_name, fix="culmen resume RUN"
            ) from error

    def _create_trainer(self) -> Any:
        return _resolved_client(self._service.create_lora_training_client(**self._settings))

    def _unique_name(self) -> str:
        return f"v{self.version:05d}-{uuid.uuid4().hex[:12]}"

    def _publish_weights(self) -> None:
        self._path = (
            self._trainer.save_weights_for_sampler(self._unique_name()).result(_PATIENCE).path
        )
        self._sampler = _resolved_client(
            self._service.create_sampling_client(model_path=self._path)
        )

    def _advantage_scale(self, sample: PolicySample, tokens: int, count: int) -> float:
        """Factor of an advantage that makes the server's sum a mean over tokens.

        The clipped loss is homogeneous in the advantage.
        """
        if self._aggregate == "token_sum":
            return 1.0 / tokens
        return len(sample.response) * count / tokens

    def _sdk_datum(self, sample: PolicySample, advantage: float = 0.0, loss: str = "ppo") -> object:
        """A datum of the SDK: inputs and targets shifted by one.

        Tokens of the prompt do not count.
        """
        types, before = self._sdk.types, [0.0] * (len(sample.prompt) - 1)
        sequence = [*sample.prompt, *sample.response]
        inputs: JsonObject = {"target_tokens": sequence[1:]}
        if loss == "ppo":
            inputs |= {"logprobs": before + list(sample.logprobs)}
            inputs |= {"advantages": before + [advantage] * len(sample.response)}
        if loss != "ppo" or self._aggregate != "token_sum":
            inputs |= {"weights": before + [1.0] * len(sample.response)}
        return types.Datum(
            model_input=types.ModelInput.from_ints(sequence[:-1]), loss_fn_inputs=inputs
        )

    def _trainer_logprobs(self, samples: Sequence[PolicySample]) -> list[list[float]]:
        batch = [self._sdk_datum(sample, loss="cross_entropy") for sample in samples]
        out = self._trainer.forward(batch, "cross_entropy").result(_PATIENCE)
        return [
            _response_logprobs(outputs, sample)
            for outputs, sample in zip(out.loss_fn_outputs, samples, strict=True)
        ]

    def _has_clip_bounds(self) -> bool:
        """True if the server applies culmen's bounds of the ratio.

        Tested with one token whose ratio lies between the server's bounds and culmen's; assumed if
        the server does not report its loss.
        """
        token = self.tokenizer.eos_token_id
        [now] = self._trainer_logprobs([PolicySample((token,), (token,), (0.0,), 0)])[0]
        datum = self._sdk_datum(PolicySample((token,), (token,), (now - math.log(_PROBE),), 0), 1.0)
        bounds = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
        loss = (
            self._trainer.forward([datum], "ppo", bounds).result(_PATIENCE).metrics.get("loss:sum")
        )
        return loss is None or math.isclose(loss, -_PROBE, abs_tol=0.01)


def _resolved_client(client: Any) -> Any:
    """The client from the SDK's constructor, which in newer versions returns a future."""
    return client.result(_PATIENCE) if hasattr(client, "result") else client


def _response_logprobs(outputs: Mapping[str, _TensorData], sample: PolicySample) -> list[float]:
    """The log-probabilities of a response among those of all targets."""
    begin = len(sample.prompt) - 1
    return [float(x) for x in outputs["logprobs"].data[begin : begin + len(sample.response)]]


def _check_server_answers(url: str) -> None:
    """Raise `Unavailable` at once if no server answers: the SDK would try for minutes."""
    import httpx2

    try:
        httpx2.get(f"{url}/api/v1/healthz", timeout=30.0)
    except httpx2.HTTPError as error:
        raise Unavailable(
            f"the server does not answer: {error or type(error).__name__}",
            where=url,
            fix="start it, then culmen resume",
        ) from error


_ADAPTER = "adapter_config.json"


def download_adapter(url: str, path: str, folder: Path) -> None:
    """Unpack the checkpoint `tinker://RUN/KIND/NAME` of the server at `url` into `folder`.

    The archive's own top folders are left out. Raises `UserError` for the managed service, whose
    own program downloads adapters, and for an archive without one; `Unavailable` if the server
    refuses.
    """
    if not url:
        raise UserError(
            "adapters of the managed service are downloaded by its own program",
            where=path,
            fix=f"tinker checkpoint download {path}",
        )
    import httpx2

    run, *_, name = path.removeprefix("tinker://").split("/")
    archive_url = f"{url}/api/v1/training_runs/{run}/checkpoints/{name}/archive"
    key = os.environ.get("TINKER_API_KEY", "tml-self-hosted")
    try:
        response = httpx2.get(
            archive_url, headers={"X-API-Key": key}, follow_redirects=True, timeout=600.0
        ).raise_for_status()
    except httpx2.HTTPError as error:
        raise Unavailable(
            f"the server does not deliver the adapter: {error}", where=archive_url
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        top = next(
            (Path(member.name).parent for member in files if Path(member.name).name == _ADAPTER),
            None,
        )
        if top is None:
            raise UserError(
                "the server's archive holds no adapter",
                where=archive_url,
                fix="ask the server's operator",
            )
        for member in files:
            if (
                Path(member.name).parent == top
                and (content := archive.extractfile(member)) is not None
            ):
                (folder / Path(member.name).name).write_bytes(content.read())
