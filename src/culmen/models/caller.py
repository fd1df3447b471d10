"""The policy above every backend, and the callers of a run.

Lanes, limits, outages, a deadline, retries, spending.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from culmen.core.brief import (
    BILLED_ERROR,
    BY_BYTES,
    BY_CUT,
    MISCOUNTED,
    OVER_LIMIT,
    SERVER_ERROR,
    SILENT,
)
from culmen.core.errors import NoAnswer, UserError
from culmen.core.foreign import UNREADABLE, Unreadable
from culmen.core.ports import with_protocol_defaults
from culmen.core.spread import Spread
from culmen.core.usage import Usage
from culmen.models.call import (
    COUNTED_MORE,
    BadResponse,
    Call,
    CallFailed,
    Completion,
    Declined,
    Interrupted,
    MinimalModel,
    ModelBackend,
    RateLimited,
    Reply,
    ServerFailed,
    Tokens,
)
from culmen.models.lessons import Lessons
from culmen.models.limits import AsyncClock, Health, RateLimiter, RealClock
from culmen.models.spec import Key, ModelSpec, PriceList, Provider, RetryPolicy

RAW_KEPT = 20_000  # characters of a bad response that are stored
_RAW_READ = RAW_KEPT + 2_000  # of these, so that no part of a key is left at the end
# refused requests in a row after which the settings are wrong, not the requests
DECLINED_IN_A_ROW = 3


class CallOutcome(msgspec.Struct, frozen=True):
    """Outcome of one call.

    `choices` (none if `fault` is set), the cost of all attempts, the number of failed ones by kind
    and their raw texts.
    """

    choices: tuple[Completion, ...]
    usage: Usage
    faults: dict[str, int]
    raws: tuple[str, ...] = ()
    fault: str = ""


class RequestSpending:
    """Possible cost of all attempts at one request: ended, in flight, and future ones.

    `permit` must allow future attempts; it is called with the sum.
    """

    def __init__(self, permit: Callable[[Usage], bool] | None = None) -> None:
        self._permit, self.cost, self.flight = permit or _permit_always, Usage(), Usage()

    def begin_attempts(self, largest: Usage) -> None:
        """Begin first attempts, which are permitted already."""
        self.flight = self.flight + largest

    def permit_retry(self, largest: Usage) -> bool:
        """Begin further attempts of at most this cost; False if they are not permitted."""
        allowed = self._permit(self.cost + self.flight + largest)
        if allowed:
            self.begin_attempts(largest)
        return allowed

    def settle_attempt(self, largest: Usage, cost: Usage) -> None:
        """Replace the reservation of an ended attempt by its cost."""
        self.flight, self.cost = self.flight - largest, self.cost + cost


@dataclass
class _Progress:
    """State of one call so far."""

    left: float
    usage: Usage = field(default_factory=Usage)
    faults: Counter[str] = field(default_factory=Counter)
    raws: list[str] = field(default_factory=list)
    tries: int = 0
    bad: int = 0

    def to_outcome(self, choices: tuple[Completion, ...] = (), fault: str = "") -> CallOutcome:
        return CallOutcome(choices, self.usage, dict(self.faults), tuple(self.raws), fault)


_DENSER = 1.2  # most tokens a byte of prompts, as a multiple of those of cut replies; assumed
_TELLING_BYTES = 200  # of a cut reply, at least, to learn from


class Unreported:
    """Attempts at one model whose cost the provider did not report, such as replies cut off.

    Before the first report each counts with its largest cost, a whole reply with its bytes. Then
    replies are taken to be as long as those that were reported: n of them as n times their mean,
    with three standard deviations of that sum and two of the mean. Prompts count with the most
    tokens for a byte seen so far, and whole replies with no more than their bytes suggest. A reply
    that its limit cut off tells, too: it had no more tokens than the limit for the bytes it shows.
    Without any report, prompts count as the densest of these, and `_DENSER` times as much.
    """

    def __init__(self) -> None:
        self._samples = self._attempts = self._priced = 0
        self._reported, self._ratio = Spread(), 0.0  # tokens of a reply
        self._rates, self._whole = Spread(), [0, 0, 0]  # tokens a byte; replies, samples, bytes
        self._bytes = self._prompts = self._longest = self._longest_whole = 0
        self._densest = 0.0  # most tokens a byte of a reply that was cut off
        self._held = Usage()

    def add_report(self, call: Call, tokens: Tokens, size: int | None) -> None:
        """Count an attempt with known tokens; `size` are the bytes of a whole reply."""
        self._reported.add(tokens.output / call.samples)
        if size:
            self._rates.add(tokens.output / size)
        self._ratio = max(self._ratio, tokens.input / call.most_prompt_tokens())

    def add_cut(self, call: Call, size: int) -> None:
        """Learn from a reply that its limit cut off after `size` bytes."""
        if size >= _TELLING_BYTES:
            self._rates.add(call.samples * call.max_tokens / size)
            self._densest = max(self._densest, call.samples * call.max_tokens / size)

    def add_attempt(
        self, call: Call, prompt: int, reply: int, size: int | None, is_unpriced: bool
    ) -> None:
        """Count an attempt without a report; `prompt` and `reply` bound its tokens."""
        if size is not None:
            self._longest_whole += reply
            one = 1, call.samples, size
            self._whole = [sum(pair) for pair in zip(self._whole, one, strict=True)]
        self._attempts += 1
        self._priced += is_unpriced
        self._samples += call.samples
        self._bytes += call.most_prompt_tokens()
        self._prompts += prompt
        self._longest += reply

    def settle(self, prices: PriceList) -> Usage:
        """The change of the likely cost of all these attempts since the last call."""
        if not self._attempts:
            return Usage()
        n = self._attempts
        prompt, reply = -(-self._prompt_tokens() // n), -(-self._reply_tokens() // n)
        each = prices.largest_usage(Tokens(prompt, reply))
        bound = Usage(
            input_tokens=n * each.input_tokens,
            output_tokens=n * each.output_tokens,
            dollars=self._priced * each.dollars,
        )
        change, self._held = bound - self._held, bound
        return change

    def _prompt_tokens(self) -> int:
        ratio = self._ratio if self._reported.count else _DENSER * self._densest
        return min(self._prompts, math.ceil(ratio * self._bytes) if ratio else self._prompts)

    def _reply_tokens(self) -> int:
        replies, samples, size = self._whole
        reported = self._reported
        likely = reported.likely_sum(self._samples) if reported.count else float(self._longest)
        if replies and self._rates.count:
            others = self._longest - self._longest_whole
            rest = reported.likely_sum(self._samples - samples) if reported.count else others
            likely = min(likely, rest + size * self._rates.likely_sum(replies) / replies)
        return min(self._longest, math.ceil(likely) + self._attempts)


_THINNER = 0.9  # least tokens a byte of a prompt, as a multiple of those of one like it; assumed


class SplitTotals:
    """Replies of one model of which the provider reported the total of tokens alone.

    Each is charged with the likely split, and may have cost the dearest one that the bytes of its
    prompt and reply allow. A reply that its limit cut off has as many tokens as the limit, so its
    prompt had the rest: a prompt of about its length has at least `_THINNER` times as many.
    """

    def __init__(self) -> None:
        self._replies: list[tuple[int, int, int, int]] = []  # total; most of prompt, reply; bytes
        self._known: dict[int, tuple[int, int]] = {}  # by length: tokens and bytes of a prompt
        self._charged = self._dearest = self._held = 0.0

    def add_reply(
        self, call: Call, total: int, most: tuple[int, int], prices: PriceList, charged: float
    ) -> None:
        """Count a reply that was charged as these dollars; `most` bounds prompt and reply."""
        self._replies.append((total, *most, call.most_prompt_tokens()))
        self._charged += charged
        self._dearest += self._most_dollars(self._replies[-1], prices)

    def learn_prompt(self, call: Call, tokens: int, prices: PriceList) -> None:
        """Learn the tokens of a prompt."""
        size = call.most_prompt_tokens()
        key = round(4 * math.log2(size))
        least, near = self._known.get(key, (math.inf, 1))
        if tokens / size < least / near:
            self._known[key] = tokens, size
            self._dearest = sum(self._most_dollars(reply, prices) for reply in self._replies)

    def settle(self) -> float:
        """The change of the dollars that all replies may have cost above their charges."""
        held, self._held = self._held, max(0.0, self._dearest - self._charged)
        return self._held - held

    def _most_dollars(self, reply: tuple[int, int, int, int], prices: PriceList) -> float:
        total, prompt, written, size = reply
        least = math.floor(_THINNER * self._prompt_tokens(size))
        return prices.dollars_for(prices.dearest_split(total, prompt, written, least)) or 0.0

    def _prompt_tokens(self, size: int) -> float:
        """The tokens of a prompt of this size, or fewer (0 while none are known)."""
        known = sorted(self._known.values())
        tokens, near = min(known, key=lambda each: abs(each[1] - size), default=(0, 1))
        if size <= near:
            return tokens * size / near
        # part of a prompt's tokens may be the server's own: only what is between two tells of more
        rises = [(tokens - less) / (near - short) for less, short in known if short < 0.8 * near]
        return tokens + (size - near) * min([*rises, tokens / near]) if rises else tokens


def _permit_always(_: Usage) -> bool:
    return True


def _log_warning(sentence: str) -> None:
    import logging

    logging.getLogger("culmen.models").warning("%s", sentence)


class Caller:
    """Calls one provider.

    `lanes`, `limiter` and `health` are shared by all callers of that provider.
    """

    def __init__(
        self,
        backend: MinimalModel,
        *,
        policy: RetryPolicy | None = None,
        lanes: asyncio.Semaphore | None = None,
        limiter: RateLimiter | None = None,
        health: Health | None = None,
        key: Key | None = None,
        clock: AsyncClock | None = None,
        rng: random.Random | None = None,
        tell: Callable[[str], None] = _log_warning,
        provider: Provider | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        self._provider, self._lessons = provider or Provider(""), lessons or Lessons()
        self.policy, self._key = policy or RetryPolicy(), key or Key()
        self._tell = tell
        self._clock, self._rng = clock or RealClock(), rng or random.Random()
        self._lanes = lanes or asyncio.Semaphore(64)
        self.limiter = limiter or RateLimiter(clock=self._clock)
        self._health = health or Health(clock=self._clock)
        self._begin(backend)

    def _begin(self, backend: MinimalModel) -> None:
        """Take a backend, of which nothing is known."""
        self.backend, self._declined = with_protocol_defaults(ModelBackend, backend), 0
        # by model: largest ratio of counted prompt tokens to bytes, and tokens beyond any ratio
        self._ratios: dict[str, tuple[float, int]] = {}
        self._has_told = False
        self._unreported: dict[str, Unreported] = {}
        self._totals: dict[str, SplitTotals] = {}

    async def call(
        self, call: Call, prices: PriceList, spending: RequestSpending | None = None
    ) -> CallOutcome:
        """Make the call until it succeeds, fails for good or its deadline ends.

        `spending` must permit each attempt after a billed one; if it refuses, the call ends with
        its present fault. The first attempt has begun there (None: everything is permitted). Raises
        `UserError` (wrong key or model) and `Unavailable` (outage).
        """
        so_far, largest = _Progress(self.policy.deadline), self.largest_cost(call, prices)
        if spending is None:
            spending = RequestSpending()
            spending.begin_attempts(largest)
        while True:
            try:
                reply = await self._make_attempt(call, prices, so_far)
            except CallFailed as failure:
                self._note_failure(call, failure.kind, failure.message)
                cost = self._count_failure(failure, call, prices, so_far, largest)
                if not self._should_retry(failure, so_far):
                    spending.settle_attempt(largest, cost)
                    return so_far.to_outcome(fault=failure.kind)
                if self._is_billed(failure):
                    spending.settle_attempt(largest, cost)
                    if not spending.permit_retry(largest):
                        return so_far.to_outcome(fault=failure.kind)
                pause = self._retry_pause(failure, so_far)
                so_far.left -= max(pause, self._requested_wait(failure))
                if so_far.left <= 0:
                    spending.settle_attempt(largest, Usage())
                    return so_far.to_outcome(fault="deadline")
                await self._clock.sleep(pause)
            else:
                self._note_reply(call, reply)
                cost = self._reply_cost(call, reply, prices, largest, so_far)
                spending.settle_attempt(largest, cost)
                so_far.usage = so_far.usage + cost
                return so_far.to_outcome(tuple(map(self._stored_choice, reply.choices)))

    def _note_reply(self, call: Call, reply: Reply) -> None:
        """Note that a reply can be used, or why none of its samples can."""
        if any(choice.is_usable for choice in reply.choices):
            self._lessons.count_answer(f"{self._provider.name}/{call.model}")
        elif reply.choices:
            first = reply.choices[0]
            fault = "empty" if first.finish in ("stop", "length") else first.finish
            self._note_failure(call, fault, first.text if fault == "refused" else "")

    def _note_failure(self, call: Call, fault: str, words: str) -> None:
        """Note an attempt without a usable answer.

        Raises `NoAnswer` if there is nothing at an endpoint of the user's own: an outage would be
        waited for in vain.
        """
        if fault == "too_long":  # it is asked again, shorter
            return
        provider, words = self._provider, self._key.scrub(clean_text(words[:_RAW_READ]))
        address = provider.effective_base_url or ""
        model = f"{provider.name}/{call.model}"
        attempts = self._lessons.count_failure(model, fault, words, address)
        is_vain = fault == "no_connection" and attempts >= SILENT and not self._health.has_served
        if is_vain and provider.is_own:
            raise NoAnswer(
                f"nothing answers at {address}: {words}",
                where=f"base_url of {provider.name}",
                fix="start the server, or correct the address",
            )

    def largest_cost(self, call: Call, prices: PriceList) -> Usage:
        """The largest cost of one attempt.

        A token for each byte of the prompt, or more if the provider has ever counted more, and all
        the tokens allowed for the reply.
        """
        prompt = self._most_prompt_tokens(call)
        return prices.largest_usage(Tokens(prompt, call.samples * call.max_tokens))

    def _most_prompt_tokens(self, call: Call) -> int:
        ratio, more = self._ratios.get(call.model, (1.0, 0))
        return math.ceil(call.most_prompt_tokens() * ratio) + more

    def _reply_cost(
        self, call: Call, reply: Reply, prices: PriceList, largest: Usage, so_far: _Progress
    ) -> Usage:
        """Cost of a reply; learns the provider's token count, and counts replies over the limit."""
        tokens = reply.tokens
        is_split = tokens is not None and reply.total is None
        if not is_split and prices.token_bytes == 1 and self._provider.effective_base_url:
            so_far.faults[BY_BYTES] += 1
            if reply.cut_bytes() >= _TELLING_BYTES:
                so_far.faults[BY_CUT] += 1
        if tokens is not None and reply.total is not None:  # how it splits is not known
            return self._total_cost(call, reply, prices)
        if tokens is not None:
            size, (ratio, more) = (
                call.most_prompt_tokens(),
                self._ratios.get(call.model, (1.0, 0)),
            )
            ratio = max(ratio, min(tokens.input / size, COUNTED_MORE))
            self._ratios[call.model] = ratio, max(more, tokens.input - COUNTED_MORE * size)
            if tokens.output > call.samples * call.max_tokens:
                so_far.faults[OVER_LIMIT] += 1
        return self._with_uncertain_cost(
            prices.usage_for(tokens, reply.dollars), tokens, call, prices, reply
        )

    def _total_cost(self, call: Call, reply: Reply, prices: PriceList) -> Usage:
        """The cost of a reply with a total alone, with the change of the largest cost of such."""
        cost = prices.usage_for(reply.tokens, reply.dollars)
        if reply.dollars is not None or cost.unpriced or reply.total is None:
            return cost
        totals = self._totals.setdefault(call.model, SplitTotals())
        rest = reply.total - call.samples * call.max_tokens
        if reply.cut_bytes() and rest > 0:
            totals.learn_prompt(call, rest, prices)
        else:
            # bytes bound no reasoning that is not shown, unless they are known to have few tokens
            most = self._most_tokens(call, prices, reply if prices.token_bytes > 1 else None)
            totals.add_reply(call, reply.total, most, prices, cost.dollars)
        return msgspec.structs.replace(cost, uncertain_dollars=totals.settle())

    def _likely_split(self, call: Call, reply: Reply, total: int) -> Tokens:
        """The likely tokens of a prompt and a reply with this total, in proportion to their bytes.

        Of a reply that its limit cut off they are known.
        """
        most, read = call.samples * call.max_tokens, call.most_prompt_tokens()
        shown = reply.whole_bytes() or 0
        written = total * shown // (read + shown)
        if reply.cut_bytes() and total > most:
            written = most
        return Tokens(total - written, written)

    def _with_uncertain_cost(
        self,
        cost: Usage,
        tokens: Tokens | None,
        call: Call,
        prices: PriceList,
        reply: Reply | None = None,
    ) -> Usage:
        """The cost of an attempt, with the change of the likely cost of attempts without a report.

        A reply with a report tells more about those before it, so the change may be negative.
        """
        unreported = self._unreported.setdefault(call.model, Unreported())
        size = None if reply is None else reply.whole_bytes()
        if tokens is None:
            prompt, written = self._most_tokens(call, prices, reply)
            unreported.add_attempt(call, prompt, written, size, is_unpriced=cost.unpriced > 0)
            unreported.add_cut(call, 0 if reply is None else reply.cut_bytes())
        else:
            unreported.add_report(call, tokens, size)
        change = unreported.settle(prices)
        return msgspec.structs.replace(
            cost, uncertain_tokens=change.tokens, uncertain_dollars=change.dollars
        )

    def _most_tokens(self, call: Call, prices: PriceList, reply: Reply | None) -> tuple[int, int]:
        """The most tokens of a prompt and of its reply (None: it did not come) with no report."""
        prompt = self._most_prompt_tokens(call)
        if reply is None:
            return prompt, call.samples * call.max_tokens
        each = prices.token_bytes
        return math.ceil(prompt / each), reply.most_tokens(call, each)

    def _stored_choice(self, choice: Completion) -> Completion:
        """A choice as it may be stored: without the provider's key."""
        calls = tuple(self._key.hide_in(call) for call in choice.tool_calls)
        text = self._key.hide(clean_text(choice.text))
        return msgspec.structs.replace(choice, text=text, tool_calls=calls)

    def with_backend(self, backend: MinimalModel) -> Caller:
        """A caller of another backend of the same provider; lanes, limits and health are shared."""
        other = copy.copy(self)
        other._begin(backend)
        return other

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()

    async def _make_attempt(self, call: Call, prices: PriceList, so_far: _Progress) -> Reply:
        tokens = call.prompt_tokens() + call.samples * call.max_tokens
        async with (
            self._lanes,
            self._health.attempt_turn(),
            self.limiter.admitted(tokens) as slot,
        ):
            started = self._clock.now()
            try:
                reply = await self._complete_within(call, min(self.policy.timeout, so_far.left))
                texts = sum(len(choice.text) for choice in reply.choices)
                if reply.tokens is None and reply.total is not None:
                    tokens = self._likely_split(call, reply, reply.total)
                    reply = msgspec.structs.replace(reply, tokens=tokens)
                if not self._is_believable(call, reply.tokens, texts, so_far):
                    reply = msgspec.structs.replace(reply, tokens=None, dollars=None, total=None)
            except CallFailed as failure:
                if not self._is_believable(call, failure.tokens, len(failure.raw), so_far):
                    failure.tokens = None
                self._report_failure(failure)
                most = slot.tokens if self._is_billed(failure) else 0
                slot.tokens = _used_tokens(failure.tokens, most)
                raise
            finally:
                so_far.left -= self._clock.now() - started
            self._health.report_success()
            self._declined = 0
            slot.tokens = _used_tokens(reply.tokens, slot.tokens)
            return reply

    def _is_believable(
        self, call: Call, tokens: Tokens | None, characters: int, so_far: _Progress
    ) -> bool:
        """False if a request and a reply of this length cannot have this number of tokens."""
        written = call.samples * call.max_tokens + characters
        if tokens is None or tokens.are_believable(call.most_prompt_tokens(), written):
            return True
        so_far.faults[MISCOUNTED] += 1
        if not self._has_told:
            self._has_told = True
            read, written = (min(number, 2**63) for number in (tokens.input, tokens.output))
            self._tell(
                f"{call.model}: the provider counted {read:.6g} tokens of a prompt and "
                f"{written:.6g} of a reply, more than the request can have: budgets count the "
                "most that it could have cost"
            )
        return False

    async def _complete_within(self, call: Call, seconds: float) -> Reply:
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                reply = await self.backend.complete(call)
        except TimeoutError:
            raise Interrupted("timeout") from None
        except ServerFailed as error:
            if self._provider.bills_errors and error.kind == SERVER_ERROR:
                error.kind = BILLED_ERROR
            raise
        except Unreadable as error:
            raise BadResponse(UNREADABLE, error.what) from None
        return _as_reply(reply)

    def _report_failure(self, failure: CallFailed) -> None:
        """Update the provider's shared health from this failure."""
        if isinstance(failure, RateLimited):
            self._health.report_refusal(failure.kind, self._requested_wait(failure))
        elif isinstance(failure, ServerFailed | Interrupted):
            self._health.report_failure(failure.kind)
        else:
            self._health.report_success()
        if isinstance(failure, Declined) and failure.kind == "bad_request":
            self._declined += 1
            if self._declined >= DECLINED_IN_A_ROW:
                reason = self._key.scrub(str(failure)[:_RAW_READ])[:300]
                raise UserError(
                    f"the provider rejects every request: {reason}",
                    fix=(
                        "check the model's options (temperature, max_tokens, extra) in the models "
                        "file"
                    ),
                ) from None

    def _count_failure(
        self,
        failure: CallFailed,
        call: Call,
        prices: PriceList,
        so_far: _Progress,
        largest: Usage,
    ) -> Usage:
        """Note a failed attempt; its cost."""
        so_far.faults[failure.kind] += 1
        if failure.raw:
            raw = self._key.scrub(clean_text(failure.raw[:_RAW_READ]))
            so_far.raws.append(f"[{failure.kind}] {raw[:RAW_KEPT]}")
        if not self._is_billed(failure) and failure.tokens is None:
            return Usage()
        cost = self._with_uncertain_cost(
            prices.usage_for(failure.tokens), failure.tokens, call, prices
        )
        so_far.usage = so_far.usage + cost
        return cost

    def _is_billed(self, failure: CallFailed) -> bool:
        """True if the provider may have charged for this attempt."""
        return failure.billed or failure.kind == BILLED_ERROR

    def _should_retry(self, failure: CallFailed, so_far: _Progress) -> bool:
        if isinstance(failure, Declined):
            return False
        if isinstance(failure, BadResponse):
            so_far.bad += 1
            return so_far.bad <= self.policy.bad_retries
        if isinstance(failure, RateLimited):
            return True  # the deadline ends it
        if isinstance(failure, Interrupted) or not self._health.is_down:
            so_far.tries += 1  # an outage does not use up this call's retries
        return so_far.tries <= self.policy.retries

    def _retry_pause(self, failure: CallFailed, so_far: _Progress) -> float:
        if self._health.is_down:
            return 0.0  # the shared pause comes instead
        if (asked := self._requested_wait(failure)) > 0:
            return asked
        growth = 2.0 ** min(max(0, sum(so_far.faults.values()) - 1), 16)
        return min(self.policy.cap, self.policy.base * growth) * self._rng.uniform(0.5, 1.0)

    def _requested_wait(self, failure: CallFailed) -> float:
        """Seconds that the provider asked to wait, up to the policy's cap."""
        return min(getattr(failure, "retry_after", None) or 0.0, self.policy.cap)


class Providers:
    """One `Caller` for each provider and backend, made when first needed.

    `tell` gets a message at outages, and when something is learnt of a model (`lessons`).
    """

    def __init__(
        self, clock: AsyncClock | None = None, tell: Callable[[str], None] = _log_warning
    ) -> None:
        self._clock, self._tell = clock or RealClock(), tell
        self._callers: dict[object, Caller] = {}
        self.lessons = Lessons(tell)

    def caller_for(self, model: ModelSpec) -> Caller:
        """The caller for this model."""
        key = (
            id(model.backend)
            if model.backend
            else (model.provider.name, model.max_tokens_name, model.send_seed)
        )
        caller = self._callers.get(key)
        if caller is None:
            shared = next(
                (
                    c
                    for k, c in self._callers.items()
                    if isinstance(k, tuple) and k[0] == model.provider.name
                ),
                None,
            )
            caller = self._callers[key] = self._make_caller(
                model, None if model.backend else shared
            )
        return caller

    async def close(self) -> None:
        """Close all backends."""
        callers, self._callers = list(self._callers.values()), {}
        for caller in callers:
            await caller.close()

    def _make_caller(self, model: ModelSpec, shared: Caller | None) -> Caller:
        provider = model.provider
        if shared is not None:
            return shared.with_backend(make_backend(model, shared.limiter, self.lessons))
        limiter = RateLimiter(provider.rpm, provider.tpm, self._clock)
        return Caller(
            model.backend or make_backend(model, limiter, self.lessons),
            policy=provider.retry_policy,
            lanes=asyncio.Semaphore(provider.concurrency),
            limiter=limiter,
            health=self._make_health(provider),
            key=provider.key,
            clock=self._clock,
            tell=self._tell,
            provider=provider,
            lessons=self.lessons,
        )

    def _make_health(self, provider: Provider) -> Health:
        longest = max(provider.base, provider.cap)
        return Health(
            f"provider '{provider.name}'",
            first_pause=provider.base,
            longest_pause=longest,
            patience=provider.patience,
            clock=self._clock,
            tell=self._tell,
            has_served=self.lessons.has_answered(provider.name),
        )


def make_backend(model: ModelSpec, limiter: RateLimiter, lessons: Lessons) -> MinimalModel:
    """The backend of a model's provider, whose limits `limiter` learns, and fields `lessons`."""
    provider = model.provider
    if provider.name == "litellm":
        from culmen.models.backends import LiteLLMBackend

        return LiteLLMBackend(provider.key, base_url=provider.base_url, send_seed=model.send_seed)
    from culmen.models.backends import OpenAIBackend
    from culmen.models.endpoint import Endpoint

    endpoint = Endpoint(
        provider.key,
        provider.effective_base_url,
        provider.timeout,
        note_headers=limiter.note_headers,
    )
    return OpenAIBackend(
        endpoint,
        max_tokens_name=model.max_tokens_name,
        send_seed=model.send_seed,
        provider=provider.name,
        lessons=lessons,
    )


def likely_cost(call: Call, prices: PriceList) -> Usage:
    """Likely upper bound of the cost of one attempt; pure, so that replays agree."""
    # rounded up, so that few different prices need to be worked out
    prompt = -(-call.prompt_tokens() // 256) * 256
    return prices.usage_for(Tokens(prompt, call.samples * call.max_tokens))


def clean_text(text: str) -> str:
    """The text in the form that a store accepts: Unix line ends, no NUL, no lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\0", "")
    return text.encode("utf-8", "replace").decode("utf-8")


def _used_tokens(tokens: Tokens | None, otherwise: int) -> int:
    return otherwise if tokens is None else tokens.input + tokens.output


def _as_reply(reply: object) -> Reply:
    """The reply of a user's backend, which may also be a text or a list of texts."""
    if isinstance(reply, Reply):
        return reply
    if isinstance(reply, str):
        return Reply((Completion(reply),))
    if isinstance(reply, list | tuple) and all(isinstance(text, str) for text in reply):
        return Reply(tuple(Completion(text) for text in reply))
    raise TypeError(
        f"a model backend must return a Reply, a str or a list of str, not {type(reply).__name__}"
    )
