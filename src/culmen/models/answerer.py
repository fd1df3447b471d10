"""Model calls of evaluators, through the run's own callers, cache, limits and budgets.

Each is recorded on its observation.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from culmen.core.asking import ASKER, AskingFailed, no_model
from culmen.core.brief import SERVER_ERROR, no_budget
from culmen.core.candidate import Candidate
from culmen.core.evaluation import CONVERSATION, Case, Observation, RoleUsage
from culmen.core.json import JsonObject
from culmen.core.ports import Backend, Permit
from culmen.core.usage import Usage, amount_text, total_usage
from culmen.core.wording import clip_middle
from culmen.models.call import Call, ChatMessage, Completion
from culmen.models.caller import Providers
from culmen.models.sampler import Answers, ReplyCache, ReplySampler
from culmen.models.spec import ModelSpec, Roles

Hold = Callable[[Usage], Awaitable[str]]
"""Waits until the present task's evaluation may cost this much in all, and journals it.

Returns the name of the budget if it never may, else "".
"""
ShortReplies = Callable[[str, int], tuple[int, ...]]
"""Tokens of a role's reply, ever fewer, for questions that the budget does not hold otherwise.

The second argument is the least number of tokens once replies are known.
"""

# tokens of a short reply: usually, and if the budget does not hold that either: a few words
_SHORT_REPLIES = (256, 32)
# faults of the question: the evaluator may rephrase it
_REFUSED = ("bad_request", "too_long", "refused")
_FINISH = {
    "tools": "tool_calls",
    "refused": "content_filter",
    "filtered": "content_filter",
    "reasoning_cut": "length",
    "reasoning_only": "stop",
}
_OWN_OPTIONS = ("model", "messages", "n", "stream", "stream_options")
_TRANSCRIPT_CHARACTERS = 18_000  # characters of a conversation that are kept
_MESSAGE_CHARACTERS = 4_000  # of one message


async def _hold_nothing(_: Usage) -> str:
    return ""


def _no_short_replies(_role: str, _least: int) -> tuple[int, ...]:
    return ()


class QuestionAnswerer:
    """Answers evaluators' questions to models, by role.

    `begin` gives it a run's budgets; without one everything is permitted.
    """

    def __init__(self, roles: Roles, providers: Providers, cache: ReplyCache | None = None) -> None:
        self.roles, self.providers, self.cache = roles, providers, cache
        self.permit: Permit = lambda _: True
        self.hold: Hold = _hold_nothing
        self.short_replies: ShortReplies = _no_short_replies

    def set_budget_callbacks(
        self, permit: Permit, hold: Hold, short_replies: ShortReplies = _no_short_replies
    ) -> None:
        """Call `hold` before a call from now on, and `permit` before a retry with a cost.

        `short_replies` has the limits that a reply gets if the budget does not hold a longer one.
        """
        self.permit, self.hold, self.short_replies = permit, hold, short_replies

    def open_talk(self, seed: int) -> EvaluatorTalk:
        """The asker of one evaluation, whose random seed is given."""
        return EvaluatorTalk(self, seed)

    async def close(self) -> None:
        """Close all connections."""
        await self.providers.close()


class EvaluatorTalk:
    """All questions of one evaluation; see `core.asking.Asker`.

    The same question with the same number is the same sample of the cache, so that an evaluation
    that was cut off and is repeated pays only for new questions.
    """

    def __init__(self, answerer: QuestionAnswerer, seed: int) -> None:
        self._answerer, self._seed = answerer, seed
        self._spent: dict[tuple[str, str], RoleUsage] = {}
        self._needs: dict[object, Usage] = {}  # of the questions in flight
        self._transcript: list[str] = []
        # messages of each role that the conversation already has
        self._messages_by_role: dict[str, list[JsonObject]] = {}

    async def ask(self, question: Mapping[str, Any]) -> JsonObject:
        """See `core.asking.Asker`."""
        role, number = str(question["role"]), int(question["number"])
        if number == 1:  # the first question of an attempt
            self._transcript, self._messages_by_role = [], {}
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}:{number}".encode()).digest()[:4])
        model = self._answerer.roles.pick_model(role, seed)
        if model is None:
            raise no_model(role)
        try:
            call = call_of(model, question, seed)
        except ValueError as error:
            return {"error": {"kind": "bad_request", "message": str(error)}}
        answers = await self._request_answers(role, model, call)
        self._record_exchange(role, question["messages"], answers)
        if answers.choices:
            return completion_of(model, answers)
        fault = max(
            sorted(answers.faults), key=lambda kind: answers.faults[kind], default="no_reply"
        )
        text = "\n".join(answers.raws)[-2_000:]
        if fault in _REFUSED:
            return {"error": {"kind": fault, "message": text}}
        raise AskingFailed(
            "provider_away",
            f"the model of the role '{role}' did not answer ({fault})\n{text}".strip(),
        )

    async def _request_answers(self, role: str, model: ModelSpec, call: Call) -> Answers:
        """Ask once the budget holds the cost, which is counted however the call ends."""
        token = object()

        def permit(usage: Usage) -> bool:
            before, self._needs[token] = self._needs[token], usage
            allowed = self._answerer.permit(self.largest_cost)
            if not allowed:
                self._needs[token] = before
            return allowed

        sampler = ReplySampler(self._answerer.providers, self._answerer.cache, permit)
        known, refused = sampler.is_cached(model, call), ""
        try:
            if not known:
                call, refused = await self._hold_question(role, model, call, sampler, token)
            answers = await sampler.ask_samples(model, call, lambda _: False)
            errors = answers.faults.get(SERVER_ERROR, 0)
            self._count_question(role, model, answers.usage, errors=errors)
            if refused and any(choice.finish == "length" for choice in answers.choices):
                cut = f"the reply of '{role}' is longer than the {call.max_tokens:,} tokens"
                raise AskingFailed(
                    no_budget(refused), f"{cut} that the budget of {refused} still holds"
                )
            return answers
        except asyncio.CancelledError:  # the evaluation was cancelled: the cost remains unknown
            largest = self._needs.get(token, Usage())
            cost = Usage(
                calls=largest.calls,
                uncertain_tokens=largest.tokens,
                uncertain_dollars=largest.at_most("dollars"),
            )
            self._count_question(role, model, cost)
            raise
        finally:
            self._needs.pop(token, None)

    async def _hold_question(
        self, role: str, model: ModelSpec, call: Call, sampler: ReplySampler, token: object
    ) -> tuple[Call, str]:
        """The call once the budget holds its largest cost, and the budget that made it shorter.

        A reply that the budget never holds is limited to ever fewer tokens. Raises `AskingFailed`
        if it does not hold the shortest one.
        """
        limits = dict.fromkeys(
            tokens
            for least in _SHORT_REPLIES
            for tokens in self._answerer.short_replies(role, least)
            if tokens < call.max_tokens
        )
        shortened = ""
        for tokens in (call.max_tokens, *limits):
            call = msgspec.structs.replace(call, max_tokens=tokens)
            self._needs[token] = sampler.largest_cost(model, call)
            refused = await self._answerer.hold(self.largest_cost)
            if not refused:
                return call, shortened
            shortened = shortened or refused
        least = amount_text(shortened, self._needs[token])
        raise AskingFailed(
            no_budget(shortened),
            f"one question to '{role}' ({model.name}) may cost {least}, with a reply of "
            f"{call.max_tokens:,} tokens, and the budget of {shortened} does not hold that",
        )

    async def lend(self, role: str, most: Callable[[ModelSpec], Usage]) -> LentModel:
        """See `core.asking.Asker`."""
        model = self._answerer.roles.pick_model(role, self._seed % (1 << 32))
        if model is None:
            raise no_model(role)
        loan = LentModel(self, role, model, most(model))
        self._needs[loan] = loan.most
        refused = await self._answerer.hold(self.largest_cost)
        if refused:
            self._needs.pop(loan)
            least = amount_text(refused, loan.most)
            message = (
                f"one rollout of '{role}' ({model.name}) may cost {least}, and the budget of "
                f"{refused} does not hold that"
            )
            raise AskingFailed(no_budget(refused), message)
        return loan

    def settle_loan(self, loan: LentModel, usage: Usage, calls: int) -> None:
        """Count the cost of a lent model."""
        if self._needs.pop(loan, None) is not None:
            self._count_question(loan.role, loan.model, usage, calls)

    def _count_question(
        self, role: str, model: ModelSpec, usage: Usage, questions: int = 1, errors: int = 0
    ) -> None:
        key = (role, model.name)
        so_far = self._spent.get(key) or RoleUsage(role, model.name)
        self._spent[key] = msgspec.structs.replace(
            so_far,
            asked=so_far.asked + questions,
            usage=so_far.usage + usage,
            errors=so_far.errors + errors,
        )

    @property
    def usage(self) -> Usage:
        """Cost of all questions so far."""
        return total_usage(role_usage.usage for role_usage in self._spent.values())

    @property
    def largest_cost(self) -> Usage:
        """Cost of all questions so far, and the largest cost of those in flight."""
        return self.usage + total_usage(self._needs.values())

    def with_questions(self, observation: Observation) -> Observation:
        """The observation with the record of its questions."""
        if not self._spent:
            return observation
        artifacts = (
            {CONVERSATION: clip_middle("\n\n".join(self._transcript), _TRANSCRIPT_CHARACTERS)}
            if self._transcript
            else {}
        )
        return msgspec.structs.replace(
            observation,
            usage=observation.usage + self.usage,
            asked=tuple(self._spent[key] for key in sorted(self._spent)),
            artifacts={**artifacts, **observation.artifacts},
        )

    def _record_exchange(self, role: str, messages: list[JsonObject], answers: Answers) -> None:
        """Record the messages that are new since the role's last question, and the reply."""
        before = self._messages_by_role.get(role, [])
        new_messages = messages[len(before) :] if messages[: len(before)] == before else messages
        reply = [_assistant_message(answers.choices[0])] if answers.choices else []
        self._transcript += [
            _transcript_line(role, message)
            for message in new_messages
            if not (message in before and message.get("role") == "assistant")
        ]
        self._transcript += [_transcript_line(role, message) for message in reply]
        self._messages_by_role[role] = [*messages, *reply]


@dataclass(frozen=True, eq=False)
class LentModel:
    """See `core.asking.Loan`."""

    talk: EvaluatorTalk
    role: str
    model: ModelSpec
    most: Usage

    def settle(self, usage: Usage, calls: int) -> None:
        """Count the true cost; the rest of the hold is released."""
        self.talk.settle_loan(self, usage, calls)


def call_of(model: ModelSpec, question: Mapping[str, Any], seed: int) -> Call:
    """The request of a question.

    Raises `ValueError` for malformed messages, and for options that only culmen sets.
    """
    options = dict(question.get("options") or {})
    forbidden = [name for name in _OWN_OPTIONS if name in options]
    if forbidden:
        raise ValueError(
            f"ask() does not take {forbidden[0]}: the model is the role's, and each question has "
            "one reply"
        )
    limit = (
        options.pop("max_tokens", None)
        or options.pop("max_completion_tokens", None)
        or model.max_tokens
    )
    temperature = options.pop("temperature", model.temperature)
    messages = tuple(map(_to_chat_message, question["messages"]))
    if not messages:
        raise ValueError("ask() needs at least one message")
    extra = {**model.extra, **options}
    return Call(model.model, messages, 1, int(limit), temperature, False, seed, extra)


def _to_chat_message(message: object) -> ChatMessage:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError('each message is {"role": ..., "content": ...}')
    content, more = (
        message.get("content"),
        {k: v for k, v in message.items() if k not in ("role", "content")},
    )
    if isinstance(content, str):
        return ChatMessage(message["role"], content, (), more)
    return ChatMessage(message["role"], "", (), {**more, "content": content})


def completion_of(model: ModelSpec, answers: Answers) -> JsonObject:
    """The reply as a chat completion."""
    choice, usage = answers.choices[0], answers.usage
    return {
        "object": "chat.completion",
        "model": model.name,
        "choices": [
            {
                "index": 0,
                "message": _assistant_message(choice),
                "finish_reason": _FINISH.get(choice.finish, choice.finish),
            }
        ],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.tokens,
        },
    }


def _assistant_message(choice: Completion) -> JsonObject:
    tools: JsonObject = {"tool_calls": list(choice.tool_calls)} if choice.tool_calls else {}
    return {"role": "assistant", "content": choice.text or (None if tools else ""), **tools}


def _transcript_line(role: str, message: JsonObject) -> str:
    content = message.get("content")
    if not isinstance(content, str | None):
        content = json.dumps(content, ensure_ascii=False)
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    called = [f"calls {call.get('name')}({call.get('arguments', '')})" for call in calls]
    who = role if message.get("role") == "assistant" else f"{message.get('role')} to {role}"
    return clip_middle(
        f"[{who}] " + "\n".join(filter(None, [content, *called])), _MESSAGE_CHARACTERS
    )


class AskingBackend:
    """A backend whose evaluators may ask models; observations include the cost."""

    def __init__(self, backend: Backend, answerer: QuestionAnswerer) -> None:
        self._backend, self._answerer = backend, answerer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def evaluate(
        self, candidate: Candidate, case: Case | None, seed: int, **more: bool
    ) -> Observation:
        """See `core.ports.Backend`.

        Raises the errors of `core.asking.Asker`, except `AskingFailed`.
        """
        talk = self._answerer.open_talk(seed)
        token = ASKER.set(talk)
        try:
            return talk.with_questions(await self._backend.evaluate(candidate, case, seed, **more))
        finally:
            ASKER.reset(token)

    async def close(self) -> None:
        """Close the backend and all connections."""
        await self._backend.close()
        await self._answerer.close()
