"""Refusals teach the fields that a server wants or does not know, also for later sessions."""

from __future__ import annotations

from typing import Any

import pytest

from culmen.core.json import JsonObject
from culmen.models.lessons import FieldChange, Lessons, find_changes

BODY: JsonObject = {
    "model": "m",
    "messages": [],
    "max_tokens": 16_384,
    "temperature": 0.8,
    "top_p": 0.9,
    "n": 4,
    "seed": 3,
    "reasoning_effort": "minimal",
    "response_format": {"type": "json_object"},
}
OTHER: JsonObject = {
    **{name: value for name, value in BODY.items() if name != "max_tokens"},
    "max_completion_tokens": 16_384,
}
TO_NEW, TO_OLD = (
    FieldChange("max_tokens", "max_completion_tokens"),
    FieldChange("max_completion_tokens", "max_tokens"),
)
REFUSALS: list[tuple[JsonObject, str, list[FieldChange]]] = [
    (
        BODY,
        "unsupported_parameter 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        [TO_NEW],
    ),
    (BODY, "max_tokens: unknown field", [TO_NEW]),
    (
        BODY,
        "Missing required parameter: 'max_output_tokens'",
        [TO_OLD.__class__("max_tokens", "max_output_tokens")],
    ),
    (OTHER, "Unrecognized request argument supplied: max_completion_tokens", [TO_OLD]),
    (
        OTHER,
        '{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],'
        '"msg":"Extra inputs are not permitted"}]}',
        [TO_OLD],
    ),
    (OTHER, "property 'max_completion_tokens' is unsupported", [TO_OLD]),
    (OTHER, "max_tokens: Field required", [TO_OLD]),
    (
        BODY,
        "max_tokens is too large: 16384. This model supports at most 4096 completion tokens, "
        "whereas you provided 16384.",
        [FieldChange("max_tokens", value=4096)],
    ),
    (
        BODY,
        "max_tokens is too large: 16,384. This model supports at most 4,096 completion tokens.",
        [FieldChange("max_tokens", value=4096)],
    ),
    (BODY, "Range of max_tokens should be [1,512]", [FieldChange("max_tokens", value=512)]),
    (BODY, "Range of max_tokens should be [1, 8192]", [FieldChange("max_tokens", value=8192)]),
    (
        BODY,
        "Unsupported value: 'temperature' does not support 0.8 with this model. Only the default "
        "(1) value is supported.",
        [FieldChange("temperature")],
    ),
    (BODY, "invalid temperature: only 1 is allowed for this model", [FieldChange("temperature")]),
    (
        BODY,
        "`temperature` may only be set to 1 when thinking is enabled.",
        [FieldChange("temperature", value=1)],
    ),
    (
        BODY,
        "`temperature` and `top_p` cannot both be specified for this model.",
        [FieldChange("top_p")],
    ),
    (
        BODY,
        "Unsupported parameters: temperature, top_p",
        [FieldChange("temperature"), FieldChange("top_p")],
    ),
    (
        BODY,
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model.",
        [FieldChange("reasoning_effort")],
    ),
    (BODY, "property 'seed' is unsupported", [FieldChange("seed")]),
    (BODY, "n > 1 is not supported", [FieldChange("n")]),
    (
        BODY,
        "parameter.enable_thinking must be set to false for non-streaming calls",
        [FieldChange("enable_thinking", value=False)],
    ),
    # values that are wrong stay errors, and so does what names no field of the request
    (BODY, "temperature must be between 0 and 1", []),
    (BODY, "Invalid value for 'temperature': must be at most 2", []),
    (BODY, "this content is not allowed", []),
    (BODY, "the model m does not exist", []),
    (BODY, "stream must be true", []),
    # a refusal is an untrusted text
    (BODY, "n must be 5000", []),
    (BODY, "best_of must be 20", []),
    (BODY, "model must be set to 1", []),
    (BODY, "temperature must be " + "9" * 400, []),
    (BODY, "seed must be 007", [FieldChange("seed", value=7)]),
]


@pytest.mark.parametrize(("body", "refusal", "changes"), REFUSALS)
def test_a_refusal_teaches_the_fields_that_it_names(
    body: JsonObject, refusal: str, changes: list[FieldChange]
) -> None:
    assert find_changes(body, refusal) == changes


def test_a_lesson_changes_the_body_and_is_noted_once() -> None:
    notes: list[JsonObject] = []
    lessons = Lessons()
    lessons.record = notes.append
    refusal = "Unrecognized request argument supplied: max_tokens"
    assert lessons.learn_from_refusal("p/m", BODY, refusal)
    assert lessons.learn_from_refusal("p/m", BODY, refusal)  # of a request under way: sent again
    body = lessons.changed_body("p/m", BODY)
    assert body == OTHER and lessons.changed_body("p/other", BODY) == BODY
    # the other name is refused as well: no way back
    assert not lessons.learn_from_refusal("p/m", body, refusal.replace("max", "max_completion"))
    assert not lessons.learn_from_refusal(
        "p/m", body, "property 'max_completion_tokens' is unknown"
    )
    assert [note["note"] for note in notes] == ["learnt"]
    again = Lessons()
    again.restore(notes)
    assert again.changed_body("p/m", BODY) == OTHER


def test_a_lower_limit_lowers_larger_ones_alone() -> None:
    change = FieldChange("max_tokens", value=4096)
    assert change.apply_to({"max_tokens": 16_384}) == {"max_tokens": 4096}
    assert change.apply_to({"max_tokens": 100}) == {"max_tokens": 100}
    assert change.apply_to({"max_tokens": "all"}) == {"max_tokens": "all"}


def test_attempts_without_an_answer_are_noted_at_3_6_and_12_until_there_is_one() -> None:
    notes: list[dict[str, Any]] = []
    lessons = Lessons()
    lessons.record = notes.append
    for _ in range(13):
        lessons.count_failure("p/m", "html", "", "http://x/v1")
    assert [note["attempts"] for note in notes] == [3, 6, 12]
    lessons.count_answer("p/m")
    lessons.count_answer("p/m")
    assert lessons.count_failure("p/m", "html", "", "") == 0 and lessons.has_answered("p")
    assert [note["note"] for note in notes[3:]] == ["answered"]
