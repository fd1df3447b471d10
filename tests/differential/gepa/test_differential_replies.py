"""Texts of replies beside the package's: the same text, or a fault where a fence is missing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.task import Evaluator, Task
from culmen.models.prompts.formats import FORMATS, Completion, parse_completion

proposal = pytest.importorskip(
    "gepa.strategies.instruction_proposal", reason="python -m tests.differential"
)

pytestmark = pytest.mark.timeout(1800)

WORDS = st.sampled_from(["Calculate.", "# Rules", "- one", "", "Answer:", "x = 1", "Use `ab`."])
TEXT = st.lists(WORDS, min_size=1, max_size=5).map("\n".join).filter(str.strip)
REPLY = st.tuples(TEXT, TEXT, TEXT, st.sampled_from(["", "text", "markdown"]))


def own_text(name: str, reply: str) -> str | None:
    """The text that culmen reads, None for a fault."""
    parent = {name: "Answer the question."}
    task = Task("t", seeds=(parent,), evaluator=Evaluator(form="function"))
    parsed = parse_completion(Completion(reply), FORMATS["rewrite"], task, Candidate.of(parent))
    return parsed.drafts[0].parts[name] if parsed.drafts else None


@settings(max_examples=600, deadline=None)
@given(reply=REPLY, name=st.sampled_from(["system", "notes.md", "candidate"]))
def test_a_text_in_a_fence_is_theirs(reply: tuple[str, str, str, str], name: str) -> None:
    before, text, after, info = reply
    whole = f"{before}\n```{info}\n{text}\n```\n{after}"
    package = proposal.InstructionProposalSignature.output_extractor(whole)["new_instruction"]
    own = own_text(name, whole)
    assert own is not None and own.strip() == package.strip()


@settings(max_examples=200, deadline=None)
@given(before=TEXT, text=TEXT)
def test_a_reply_without_a_whole_fence_is_a_fault_on_purpose(before: str, text: str) -> None:
    for reply in (text, f"{before}\n```\n{text}"):
        package = proposal.InstructionProposalSignature.output_extractor(reply)
        assert package["new_instruction"] and own_text("system", reply) is None
