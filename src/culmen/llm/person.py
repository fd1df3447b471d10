"""`--model ask`: a person answers the prompts, in $EDITOR on the terminal, in the dashboard, or by files in RUN/ask.

A reply is journaled as any model's, so a resumed or replayed run asks for none of them again. A prompt that nobody had
answered when a run was cut off is not asked anew: its answer, which may be there by now, is waited for.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path

from culmen.core.errors import UserError
from culmen.llm.call import Call, Reply, Tokens
from culmen.prompts.formats import Completion

NAME = "ask"
_LOOK = 0.3  # seconds between two looks for an answer
_LINE = "==== Write the answer below this line; leave it empty to answer nothing. ===="


class Person:
    """A model whose replies a person writes, one prompt after the other.

    On a terminal the prompt opens in $VISUAL or $EDITOR; elsewhere it lies in `folder` as N.prompt.md until N.reply.md
    is there, complete (write it under another name first), by hand or from the dashboard (store/questions.py); once it
    was read the prompt is called N.answered.md.
    """

    name = NAME

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("culmen-ask")
        self._turn = asyncio.Lock()

    async def complete(self, call: Call) -> Reply:
        """One reply, free of tokens and dollars."""
        async with self._turn:
            self._folder.mkdir(parents=True, exist_ok=True)
            prompt = self._waiting(call.prompt) or self._new(call.prompt)
            reply, answered = (prompt.with_name(prompt.name.replace("prompt", kind)) for kind in ("reply", "answered"))
            if (editor := _editor()) and not reply.is_file():
                await self._edit(editor, call.prompt, reply)
            elif not reply.is_file():
                told = f"the prompt is in {prompt}: answer it in culmen ui, or write the answer to {reply}"
                print(told, file=sys.stderr)  # noqa: T201
            while not reply.is_file():
                await asyncio.sleep(_LOOK)
            answer = reply.read_text(encoding="utf-8", errors="replace").strip()
            prompt.replace(answered)
            return Reply((Completion(answer),), Tokens(), 0.0)

    def _waiting(self, text: str) -> Path | None:
        """A prompt of this text whose answer nobody has read."""
        for prompt in sorted(self._folder.glob("[0-9]*.prompt.md")):
            if prompt.read_text(encoding="utf-8", errors="replace") == text:
                return prompt
        return None

    def _new(self, text: str) -> Path:
        number = 1 + max((int(path.name.partition(".")[0]) for path in self._folder.glob("[0-9]*.md")), default=0)
        prompt = self._folder / f"{number:04d}.prompt.md"
        prompt.write_text(text, encoding="utf-8")
        return prompt

    async def close(self) -> None:
        """Nothing is open."""

    async def _edit(self, editor: list[str], prompt: str, reply: Path) -> None:
        """Have the answer written in an editor that has the terminal while it runs."""
        draft = reply.with_suffix(".draft")
        draft.write_text(f"{prompt}\n\n{_LINE}\n", encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*editor, str(draft))
        except OSError as error:
            fix = "set EDITOR to an editor that is installed"
            raise UserError(f"the editor cannot be started: {error.strerror}", where=editor[0], fix=fix) from None
        if code := await process.wait():
            raise UserError(f"the editor ended with status {code}", where=editor[0], fix="culmen resume RUN asks again")
        answer = draft.read_text(encoding="utf-8", errors="replace").rpartition(_LINE)[2].strip()
        draft.write_text(answer, encoding="utf-8")
        draft.replace(reply)


def _editor() -> list[str]:
    """The editor's command, empty where there is no terminal or none is set."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return []
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
