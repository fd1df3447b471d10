"""Models of all other providers through the optional `litellm` package, imported when the first call is made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.llm.call import Call, Interrupted, Reply, ServerFailed
from culmen.llm.keys import Key
from culmen.llm.openai import translate
from culmen.llm.wire import body_of, read_reply


class LiteLLMBackend:
    """Chat completions through `litellm.acompletion`, its own retries off. Keys come from the provider's variables."""

    def __init__(self, key: Key, *, base_url: str | None = None, send_seed: bool = False) -> None:
        self._key, self._base_url, self._send_seed = key, base_url, send_seed

    async def complete(self, call: Call) -> Reply:
        """One attempt; see `culmen.llm.call.Backend`."""
        litellm = await asyncio.to_thread(_load)  # takes seconds
        import openai

        options: dict[str, Any] = {"num_retries": 0, "max_retries": 0, "drop_params": True, **call.extra}
        if self._base_url:
            options["api_base"] = self._base_url
        if self._key.needed:
            options["api_key"] = self._key.reveal()
        body = body_of(call, max_tokens_name="max_tokens", send_seed=self._send_seed)
        failure: Exception
        try:
            response = await litellm.acompletion(**body, **options)
            reply = read_reply(json.dumps(response.model_dump(), default=str))
            return msgspec.structs.replace(reply, dollars=_cost(response))
        except openai.APITimeoutError:  # litellm's exceptions are children of the SDK's
            failure = Interrupted("timeout")
        except openai.APIConnectionError as error:
            failure = ServerFailed("no_connection", self._key.scrub(str(error))[:200])
        except openai.APIStatusError as error:
            failure = translate(error, self._key, call.model)
        raise failure from None


def _cost(response: Any) -> float | None:
    """What litellm's own price list says, None if it does not know."""
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return float(cost) if isinstance(cost, int | float) and 0 <= cost < float("inf") else None


def _load() -> Any:
    try:
        import litellm  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "this model needs the litellm package", where="--model litellm/…", fix="pip install 'culmen[litellm]'"
        ) from None
    litellm.suppress_debug_info = True
    return litellm
