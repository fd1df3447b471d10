"""Faults of answers of models: what each means, and what mends it. The one table of both."""

from __future__ import annotations

from typing import NamedTuple

from culmen.report.figures import count_text, percent_text
from culmen.store.views.run import Unanswered


class FaultWords(NamedTuple):
    """Words for a fault: what its answers did, what mends it, and the options that do.

    `is_call`: the fault of a call, not of a written text. `has_address`: the server's
    address may be wrong.
    """

    words: str
    remedy: str
    options: str = ""
    is_call: bool = False
    has_address: bool = False


_MODELS = "--models FILE"
_STRONGER = "a stronger model", "--model NAME"
_LATER = "once the provider answers again; fewer workers ask less often", "--workers 1"
_ADDRESS = "correct base_url: it leads to no chat API (most end in /v1)", _MODELS
_NO_PROXY = "ask the server's owner what stands before it, or correct base_url", _MODELS

FAULTS: dict[str, FaultWords] = {
    # of calls
    "rate_limited": FaultWords(
        "met the provider's rate limit",
        "wait until the quota allows more, raise it, or ask less often (rpm and tpm in a models "
        "file, --workers 1)",
        "--workers 1",
        True,
    ),
    "deadline": FaultWords("were not given before the deadline", *_LATER, True),
    "server_error": FaultWords("were errors of the provider", *_LATER, True),
    "billed_error": FaultWords("were errors that the provider may have billed", *_LATER, True),
    "gateway_timeout": FaultWords("were given up by the provider's gateway", *_LATER, True),
    "no_connection": FaultWords(
        "found no connection", "start the server, or correct its address", _MODELS, True, True
    ),
    "timeout": FaultWords(
        "did not come in time", "raise timeout of the provider in a models file", _MODELS, True
    ),
    "cut": FaultWords("broke off", *_ADDRESS, True, True),
    "html": FaultWords("were web pages, no JSON", *_ADDRESS, True, True),
    "not_json": FaultWords("were no JSON", *_ADDRESS, True, True),
    "streamed": FaultWords(
        "came as a stream, which was not asked for",
        "let the server answer without streaming",
        _MODELS,
        True,
        True,
    ),
    "too_large": FaultWords("were larger than 16 MiB", *_NO_PROXY, True, True),
    "encoded": FaultWords("had an encoding that was not asked for", *_NO_PROXY, True, True),
    "error_body": FaultWords(
        "were errors of the provider with status 200", "do what the error asks for", "", True
    ),
    "no_choices": FaultWords(
        "had no text: choices is empty", "see the server's own log; another model", "", True, True
    ),
    "no_content": FaultWords(
        "had no text: content is null", "see the server's own log; another model", "", True
    ),
    "bad_request": FaultWords(
        "were refused as malformed", "correct the model's settings in a models file", _MODELS, True
    ),
    # of what a model has written
    "reasoning_cut": FaultWords(
        "used up max_tokens for reasoning, before the answer began",
        "raise max_tokens of the model in a models file, or let it reason less: extra = { "
        'reasoning_effort = "low" }',
        _MODELS,
    ),
    "reasoning_only": FaultWords(
        "had their text in the reasoning alone",
        "turn off the server's reasoning parser (reasoning_content), or let the model think less: "
        "extra = { chat_template_kwargs = { enable_thinking = false } } in a models file",
        _MODELS,
    ),
    "tools": FaultWords(
        "called a tool instead of writing",
        "turn off tools at the server or gateway (tool_choice), or another model",
        _MODELS,
    ),
    "empty": FaultWords("were empty", *_STRONGER),
    "unparsable": FaultWords("held no text in the format asked for", *_STRONGER),
    "diff_mismatch": FaultWords(
        "quoted text that is not in the program", "a model that quotes exactly", "--model NAME"
    ),
    "unreadable": FaultWords("could not be read", *_STRONGER),
    "unclosed": FaultWords("broke off before their text ended", *_STRONGER),
    "ambiguous": FaultWords("could be read in several ways", *_STRONGER),
    "elided": FaultWords("left out parts of the text", *_STRONGER),
    "unknown_part": FaultWords("gave a file that the task does not have", *_STRONGER),
    "outside_blocks": FaultWords("changed what may not be changed", *_STRONGER),
    "truncated": FaultWords(
        "were cut off", "raise max_tokens of the model in a models file", _MODELS
    ),
    "too_long": FaultWords(
        "could not be asked for: the prompt is too long",
        "a model with a larger context",
        "--model NAME",
    ),
    "duplicate": FaultWords(
        "gave what is known already",
        "another model, or several at once",
        "--model 'A|B'",
    ),
    "refused": FaultWords(
        "were refusals", "another model, or a goal in other words", "--model NAME"
    ),
    "filtered": FaultWords(
        "were stopped by the provider's content filter",
        "another model or provider, or a goal in other words",
        "--model NAME",
    ),
    "no_model": FaultWords(
        "could not be asked for: no model has this role", "name one", "--model ROLE=NAME"
    ),
}


def words_for(fault: str) -> FaultWords:
    """The words for a fault; those of an unknown one name it."""
    return FAULTS.get(fault) or FaultWords(
        f"brought nothing ({fault.replace('_', ' ')})", *_STRONGER
    )


def unanswered_text(found: Unanswered) -> str:
    """The sentence on a model without a usable answer: its cause, share and server's words."""
    fault, share = words_for(found.fault), percent_text(found.number / max(1, found.attempts))
    place = f" at {found.where}" if fault.has_address and found.where else ""
    many = count_text(found.attempts, "attempt" if fault.is_call else "answer")
    text = (
        f"{found.model or 'the model'}{place} gave no usable answer: {share} of {many} "
        f"{fault.words}"
    )
    return f"{text} ({found.words})" if found.words else text
