"""What holds and trains a policy, as a setting; the work is done elsewhere (`culmen.train.make`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from culmen.core.errors import UserError
from culmen.strategies.parts.settings import About, check

AGGREGATES = ("token_sum", "sequence_mean")


class Engine(Protocol):
    """Settings of an engine as plain data for `train.open`; {} for the one in this process."""

    def told(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Local:
    """Sampled and trained in this process by torch."""

    def told(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Tinker:
    """Sampled and trained by a server that speaks the Tinker API: SkyRL on machines of your own, or the managed
    service. The policy is the name of the server's base model; the key is in TINKER_API_KEY."""

    url: Annotated[str, About("of the server; none: the managed service")] = ""
    aggregate: Annotated[
        str, About("how the server sums its loss: token_sum (the managed service), sequence_mean (SkyRL)")
    ] = "token_sum"
    tokenizer: Annotated[str, About("folder or name of the tokenizer; none: of the policy's name")] = ""

    def __post_init__(self) -> None:
        check(self)
        if self.aggregate not in AGGREGATES:
            raise UserError(
                f"no server sums its loss by '{self.aggregate}'", where="engine", fix=f"one of {', '.join(AGGREGATES)}"
            )

    def told(self) -> dict[str, Any]:
        return {"kind": "tinker", "url": self.url, "aggregate": self.aggregate, "tokenizer": self.tokenizer}


@dataclass(frozen=True)
class Vllm:
    """Sampled by a vLLM server, trained in this process: the server is given one adapter for each version."""

    url: Annotated[str, About("of the server, without a path")] = "http://127.0.0.1:8000"

    def told(self) -> dict[str, Any]:
        return {"kind": "vllm", "url": self.url}


@dataclass(frozen=True)
class Sglang:
    """Sampled by an SGLang server, trained in this process: the server is given one adapter for each version."""

    url: Annotated[str, About("of the server, without a path")] = "http://127.0.0.1:30000"

    def told(self) -> dict[str, Any]:
        return {"kind": "sglang", "url": self.url}
