"""Gateway to models: pick the model, render the prompt, call, parse, count the cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import msgspec

from culmen.core.brief import NOTED, Brief, Proposal, Text, resolve_format
from culmen.core.errors import UserError
from culmen.core.event import ProposeRequest, ReplyLimit, Request, WriteRequest
from culmen.core.foreign import UNREADABLE, Unreadable, lazy_pattern, without_surrogates
from culmen.core.json import JsonObject
from culmen.core.pictures import SHOWN
from culmen.core.ports import Gateway, Permit
from culmen.core.task import Task
from culmen.core.usage import Usage, total_usage
from culmen.core.wording import clip_middle
from culmen.models.answerer import QuestionAnswerer
from culmen.models.call import Call, ChatMessage, Completion
from culmen.models.caller import Providers, likely_cost
from culmen.models.lessons import join_thousands
from culmen.models.prompts.formats import (
    FORMATS,
    SEVERAL,
    ReplyFormat,
    is_broken_off,
    read_replies,
    reply_summary,
)
from culmen.models.prompts.template import Templates
from culmen.models.prompts.writer import Prompt, PromptWriter, Shown
from culmen.models.sampler import Answers, ReplyCache, ReplySampler, split_samples
from culmen.models.spec import ModelSpec, Roles

_JSON = ("json", "verbalized", "verbalized_diff")  # replies of these formats are one JSON object
_KEPT = 64  # requests


def _permit_all(_: Usage) -> bool:
    return True


class ModelGateway(Gateway):
    """Answers the engine's requests to models; see `culmen.core.ports.Gateway`.

    A retry that is not permitted (`begin`) is left out, and the request ends with its present
    fault. `faults` counts all faults by kind, also those that a retry removed. `answerer` answers
    evaluators' questions with the same models and limits.
    """

    def __init__(
        self,
        task: Task,
        roles: Roles,
        cache: ReplyCache | None = None,
        *,
        templates: Templates | None = None,
        providers: Providers | None = None,
        formats: dict[str, ReplyFormat] | None = None,
    ) -> None:
        self._task, self._roles = task, roles
        self._writer = PromptWriter(task, templates)
        self._formats = {**FORMATS, **SEVERAL, **(formats or {})}
        self._permit: Permit = _permit_all
        providers = providers or Providers()
        self._sampler = ReplySampler(providers, cache, self._is_permitted)
        self.answerer = QuestionAnswerer(roles, providers, cache)
        self._contexts = ContextSizes()
        self.faults: Counter[str] = Counter()
        self._latest: dict[int, tuple[Brief, str, int, ReplyFormat, Call]] = {}

    def begin(self, permit: Permit) -> None:
        """Call `permit` before a retry from now on, with the request's largest cost in all."""
        self._permit = permit

    async def propose(
        self, brief: Brief, seed: int, *, limit: ReplyLimit | None = None
    ) -> Proposal:
        """Up to `brief.k` candidates, in replies within the limit if there is one.

        Model failures are returned as `fault`; raises `UserError` and `Unavailable`.
        """
        model = self._roles.pick_model(brief.role, seed)
        if model is None:
            raise UserError(
                f"no model for the role '{brief.role}'",
                where="--model",
                fix=f"add {brief.role}=MODEL",
            )
        form, call = self._brief_call(brief, model, seed)
        call = _limited_call(call, limit)

        def is_broken(choice: Completion) -> bool:
            return is_broken_off(choice, form, self._task, brief.parent)

        def rebuild_call(shown: Shown) -> Call:
            return _limited_call(self._build_brief_call(brief, model, seed, shown)[1], limit)

        call, answers = await self._ask_shortened(model, call, is_broken, rebuild_call)
        read = read_replies(answers.choices, form, self._task, brief, model.name)
        faults = Counter(answers.faults) + Counter(read.faults)
        self.faults.update(faults)
        return Proposal(
            candidates=read.candidates,
            hypothesis=read.hypothesis,
            fault=""
            if len(read.candidates) >= brief.k
            else _main_fault(read.faults, answers.faults),
            model=model.name,
            usage=answers.usage,
            prompt=call.prompt,
            reply=_joined_replies(answers),
            faults=dict(faults),
            detail="" if read.candidates else read.detail,
        )

    async def write(
        self, role: str, slots: JsonObject, seed: int, *, limit: ReplyLimit | None = None
    ) -> Text:
        """Prose by the role's model; a role without one gets the fault `no_model`.

        If the slots hold `messages` (role and content each), these are sent unchanged, and the
        whole reply is returned.
        """
        model = self._roles.pick_model(role, seed)
        if model is None:
            return Text(fault="no_model")
        call = _limited_call(self._prose_call(role, slots, model, seed), limit)
        chat = "messages" in slots

        def is_broken(choice: Completion) -> bool:
            is_cut = choice.finish in ("length", "reasoning_cut")
            return is_cut and (chat or "</summary>" not in choice.text)

        call, answers = await self._ask_shortened(model, call, is_broken, None)
        faults = Counter(answers.faults)
        text, fault = "", _main_fault({}, answers.faults)
        if answers.choices:
            text, fault = _read_prose(answers.choices[0], chat)
            faults.update([fault] if fault else [])
        self.faults.update(faults)
        return Text(
            text,
            fault,
            model.name,
            answers.usage,
            call.prompt,
            _joined_replies(answers),
            dict(faults),
        )

    def estimate(self, request: Request) -> Usage:
        """Likely upper bound of a request's cost if no attempt has to be repeated; pure.

        Nothing for other effects. A token is taken as three bytes of the prompt; the reply as
        `max_tokens`. Dollars if the price is known.
        """
        call, model = self._request_call(request)
        if call is None or model is None:
            return Usage()
        return total_usage(
            likely_cost(part, model.price_list) for part in split_samples(call, model.samples)
        )

    def most(self, request: Request) -> Usage:
        """The largest cost of a request if no attempt has to be repeated.

        A token may be as short as a byte.
        """
        call, model = self._request_call(request)
        return Usage() if call is None or model is None else self._sampler.largest_cost(model, call)

    async def close(self) -> None:
        """Close all connections."""
        await self._sampler.close()

    async def _ask_shortened(
        self,
        model: ModelSpec,
        call: Call,
        is_broken: Callable[[Completion], bool],
        remake: Remake | None,
    ) -> tuple[Call, Answers]:
        """Ask, and ask again with a shorter request if the model refuses it as too long.

        Raises `UserError` if the model refuses all.
        """
        call, refusal = self._contexts.fit_call(model, call, remake), ""
        answers = await self._sampler.ask_samples(model, call, is_broken)
        for _ in range(TRIES):
            if answers.choices or "too_long" not in answers.faults:
                self._contexts.note_answer(model)
                return call, answers
            refusal = " ".join(answers.raws)
            self._contexts.learn_from_refusal(model, call, refusal)
            shorter = self._contexts.fit_call(model, call, remake)
            if shorter == call:
                break
            call, answers = shorter, await self._sampler.ask_samples(model, shorter, is_broken)
        if not answers.choices:
            self._contexts.give_up(model, call, refusal)
        return call, answers

    def _is_permitted(self, usage: Usage) -> bool:
        return self._permit(usage)

    def _request_call(self, request: Request) -> tuple[Call | None, ModelSpec | None]:
        if not isinstance(request, ProposeRequest | WriteRequest):
            return None, None
        is_brief = isinstance(request, ProposeRequest)
        role = request.brief.role if is_brief else request.role
        model = self._roles.pick_model(role, request.seed)
        if model is None:
            return None, None
        if is_brief:
            call = self._brief_call(request.brief, model, request.seed)[1]
        else:
            call = self._prose_call(role, request.slots, model, request.seed)
        return _limited_call(call, request.limit), model

    def _brief_call(self, brief: Brief, model: ModelSpec, seed: int) -> tuple[ReplyFormat, Call]:
        """The request for a brief.

        The latest ones are kept, since a priced request is sent a moment later.
        """
        latest = self._latest.get(id(brief))
        if latest is None or latest[0] is not brief or latest[1:3] != (model.name, seed):
            latest = self._latest[id(brief)] = (
                brief,
                model.name,
                seed,
                *self._build_brief_call(brief, model, seed),
            )
            while len(self._latest) > _KEPT:
                del self._latest[next(iter(self._latest))]
        return latest[3:]

    def _build_brief_call(
        self, brief: Brief, model: ModelSpec, seed: int, shown: Shown | None = None
    ) -> tuple[ReplyFormat, Call]:
        format_name = resolve_format(brief.format, brief.parent, self._task.surface.frozen)
        name = "json" if model.json and format_name == "rewrite" else format_name
        form = self._formats.get(name)
        if form is None:
            raise UserError(
                f"no reply format '{name}'", fix=f"use one of {', '.join(sorted(self._formats))}"
            )
        if model.accepts_pictures or shown is not None:
            pictures = (
                min(SHOWN, SHOWN if shown is None else shown.pictures)
                if model.accepts_pictures
                else 0
            )
            shown = msgspec.structs.replace(shown or Shown(), pictures=pictures)
        call = _build_call(
            _prompt_messages(self._writer.brief_prompt(brief, form, shown)),
            model,
            seed,
            json=model.json and name in _JSON,
        )
        return form, msgspec.structs.replace(call, samples=form.samples(max(1, brief.k)))

    def _prose_call(self, role: str, slots: JsonObject, model: ModelSpec, seed: int) -> Call:
        if "messages" in slots:
            messages = tuple(ChatMessage(m["role"], m["content"]) for m in slots["messages"])
        else:
            messages = _prompt_messages(self._writer.text_prompt(role, slots))
        return _build_call(messages, model, seed, json=False)


def _prompt_messages(prompt: Prompt) -> tuple[ChatMessage, ...]:
    return ChatMessage("system", prompt.system), ChatMessage("user", prompt.user, prompt.pictures)


def _build_call(messages: tuple[ChatMessage, ...], model: ModelSpec, seed: int, json: bool) -> Call:
    return Call(
        model=model.model,
        messages=tuple(map(_encodable_message, messages)),
        max_tokens=model.max_tokens,
        temperature=model.temperature,
        json=json,
        seed=seed,
        extra=model.extra,
    )


def _encodable_message(message: ChatMessage) -> ChatMessage:
    content = without_surrogates(message.content)
    return msgspec.structs.replace(message, content=content)


def _limited_call(call: Call, limit: ReplyLimit | None) -> Call:
    if limit is None:
        return call
    return msgspec.structs.replace(
        call,
        samples=min(call.samples, limit.samples),
        max_tokens=min(call.max_tokens, limit.tokens),
    )


def _main_fault(reply_faults: dict[str, int], call_faults: dict[str, int]) -> str:
    """The fault of a request with fewer results than requested.

    That of the replies, else that of the calls.
    """
    for faults in (
        reply_faults,
        {kind: number for kind, number in call_faults.items() if kind not in NOTED},
    ):
        if faults:
            return max(sorted(faults), key=lambda kind: faults[kind])
    return "too_few"


def _read_prose(choice: Completion, chat: bool) -> tuple[str, str]:
    """A reply in prose, and its fault; a truncated one of a conversation is kept."""
    if choice.finish not in ("stop", "length", "tools"):
        return "", choice.finish
    try:
        text = choice.text if chat else reply_summary(choice.text)
    except Unreadable:
        return "", UNREADABLE
    if choice.finish == "length" and (chat or "</summary>" not in choice.text):
        return text, "truncated"
    return text, "" if text.strip() else "empty"


def _joined_replies(answers: Answers) -> str:
    """All replies as one text, the malformed ones at the end."""
    texts = [choice.text for choice in answers.choices]
    if len(texts) == 1 and not answers.raws:
        return texts[0]
    shown = [f"=== reply {i} ===\n{text}" for i, text in enumerate(texts, 1)]
    return "\n\n".join(
        [*shown, *(f"=== failed attempt {i} ===\n{raw}" for i, raw in enumerate(answers.raws, 1))]
    )


# Context size of a model: its `context` setting, or the size learnt from a refusal. Prompts are
# made to fit.
#
# A size learnt from a refusal is known to this process alone; it never changes the estimated cost
# of a request.

TRIES = 4  # requests made shorter, before one is given up
_SCALES = (1.0, 0.5, 0.25, 0.1, 0.0)  # scales of a prompt's content beside the current candidate
_SIZE_IN_REFUSAL = lazy_pattern(
    r"(?:context|maximum|max|limit|than|exceeds?)[^0-9]{0,60}?([0-9]{3,8})", re.IGNORECASE
)
_LEAST = 64  # tokens of a reply
# least scales: the most important parts are never left out completely
_LEAST_SCALES = {"context": 0.25, "feedback": 0.25}

Remake = Callable[[Shown], Call]
"""Makes a request anew that shows at most this."""


def scaled_limits(scale: float) -> Shown:
    """Limits of a prompt's content at this scale."""
    limits = msgspec.structs.asdict(Shown())
    return Shown(
        **{
            name: max(1, int(value * max(scale, _LEAST_SCALES.get(name, 0.0))))
            for name, value in limits.items()
        }
    )


class ContextSizes:
    """Context sizes by model, in tokens of prompt and reply together."""

    def __init__(self) -> None:
        self._learnt: dict[str, int] = {}
        self._answered: set[str] = set()

    def fit_call(self, model: ModelSpec, call: Call, remake: Remake | None) -> Call:
        """The request, shortened if it is longer than the model's context.

        First the content beside the current candidate, by a call of `remake`, or without that the
        middle of the prompt; then the reply.
        """
        context = self._context_size(model)
        if context is None or call.prompt_tokens() + call.max_tokens <= context:
            return call
        reply = min(call.max_tokens, context // 2)
        for scale in _SCALES if remake is not None else ():
            if call.prompt_tokens() + reply <= context:
                break
            call = remake(scaled_limits(scale)) if remake is not None else call
        if remake is None and call.prompt_tokens() + reply > context:
            call = _clip_longest_message(call, context - reply)
        left = context - call.prompt_tokens()
        return msgspec.structs.replace(call, max_tokens=max(_LEAST, min(call.max_tokens, left)))

    def note_answer(self, model: ModelSpec) -> None:
        """Note that a request was not refused."""
        self._answered.add(model.cache_key)

    def learn_from_refusal(self, model: ModelSpec, call: Call, refusal: str) -> None:
        """Learn the context size from a refusal."""
        total = call.prompt_tokens() + call.max_tokens
        sizes = map(int, _SIZE_IN_REFUSAL.findall(join_thousands(refusal)))
        numbers = [size for size in sizes if size < total]
        known = self._learnt.get(model.cache_key, total)
        self._learnt[model.cache_key] = (
            min(max(numbers), known * 9 // 10) if numbers else known * 2 // 3
        )

    def give_up(self, model: ModelSpec, call: Call, refusal: str) -> None:
        """Stop shortening. Raises `UserError` if the model has answered no request at all."""
        if model.cache_key in self._answered:
            return
        raise UserError(
            f"{model.name} refuses every request as too long, also the shortest (about "
            f"{call.prompt_tokens():,} tokens "
            f"and {call.max_tokens:,} of the reply): {' '.join(refusal.split())[:300]}",
            where=f"--model {model.model}",
            fix="choose a model with a larger context, give a shorter initial program, or set the "
            "model's context and max_tokens in a models file",
        )

    def _context_size(self, model: ModelSpec) -> int | None:
        sizes = [size for size in (model.context, self._learnt.get(model.cache_key)) if size]
        return min(sizes, default=None)


def _clip_longest_message(call: Call, tokens: int) -> Call:
    """The request without the middle of its longest message."""
    longest = max(call.messages, key=lambda message: len(message.content))
    over = call.prompt_tokens() - tokens
    keep = max(200, len(longest.content) - 3 * over - 100)
    short = msgspec.structs.replace(longest, content=clip_middle(longest.content, keep))
    return msgspec.structs.replace(
        call, messages=tuple(short if m is longest else m for m in call.messages)
    )
