"""The built-in agent: a loop on culmen's own model gateway, with tools, limits and a conversation of bounded length.

Every reply and every tool call is an effect, so a run that was cut off goes on in the middle of a session.
"""

from __future__ import annotations

from dataclasses import dataclass

from culmen.agents import actions, texts
from culmen.agents.base import REASONS
from culmen.agents.conversation import Conversation
from culmen.agents.desk import Desk
from culmen.agents.offline import Offline
from culmen.agents.tools import Toolbox
from culmen.core.brief import Text
from culmen.core.ports import Lab

ROLE = "agent"
_PATIENCE = 3  # replies in a row that are no use
_LEAVE = 3  # replies that an agent gets after its desk is closed


@dataclass(frozen=True)
class Builtin:
    """Asks the model behind the role `agent`; without any model the offline agent works in its place.

    `context` is how many characters of conversation are kept.
    """

    context: int = 120_000

    @property
    def manual(self) -> str:
        """How experiments are asked for."""
        return "Candidates are evaluated by culmen, never by you: use the tool `evaluate`."

    async def work(self, lab: Lab, desk: Desk) -> str:
        """Until the model finishes, its limits are used up, or its replies are no use."""
        tools = Toolbox(lab, desk)
        talk = Conversation(texts.fill("builtin"), await tools.briefing(), self.context)
        wasted = closed = 0
        while wasted < _PATIENCE and closed < _LEAVE and not tools.word:
            if talk.full:
                talk.summed_up(await self._summary(desk, talk))
            text = await desk.write(ROLE, messages=talk.messages)
            if text is None:
                return ""
            if _no_model(text):
                lab.note("stand-in", agent=desk.agent, why="there is no model: the offline agent works instead")
                return await Offline().work(lab, desk)
            closed += bool(desk.closing)
            useful = await self._turn(desk, tools, talk, text)
            wasted = 0 if useful else wasted + 1
        if wasted == _PATIENCE:
            desk.ended = "malformed"
        return tools.word

    async def _turn(self, desk: Desk, tools: Toolbox, talk: Conversation, text: Text) -> bool:
        """Do what one reply asks for and tell what came of it; whether there was anything to do."""
        asked, complaint = actions.read(text.text)
        if text.fault and not asked:
            complaint = f"the reply was {text.fault.replace('_', ' ')}"
        if text.text.strip():
            talk.said(actions.without_thoughts(text.text))
        results = [await tools.perform(action) for action in asked]
        if complaint:
            results.append(texts.fill("malformed", complaint=complaint))
        results.append(_standing(desk))
        talk.answered("\n\n".join(results))
        return bool(asked)

    async def _summary(self, desk: Desk, talk: Conversation) -> str:
        text = await desk.write(ROLE, messages=talk.asking(texts.fill("recall")))
        return "" if text is None else actions.without_thoughts(text.text)


def _no_model(text: Text) -> bool:
    return text.fault == "no_model" or (not text.text and text.model == "offline")


def _standing(desk: Desk) -> str:
    """Where things stand, at the end of every answer."""
    if desk.closing:
        return texts.fill("closing", why=REASONS.get(desk.closing, desk.closing))
    best, limit = desk.history.best, desk.limits.get("experiments")
    used = f"{desk.taken} experiments" if limit is None else f"{desk.taken} of {limit:.0f} experiments"
    score = "nothing has scored" if best is None else f"best so far {desk.history.counts(best)!r} ({best.candidate})"
    return f"({used} used; {score}.)"
