"""Tickets with teams, and a scripted model that answers and writes prompts.

The answerer knows a team's words only if the prompt has a line on that team; the writer adds the
line of one team more with every proposal.
"""

from __future__ import annotations

import re
from pathlib import Path

from culmen.models.call import Tokens
from tests.servers.model_script import Asked, Turn

WORDS = {
    "billing": ("invoice", "refund"),
    "technical": ("crash", "timeout"),
    "account": ("password", "profile"),
}
TEXTS = (
    "My {} is wrong, number {}",
    "Where is the {} of order {}?",
    "The {} again; case {}",
    "Help: {} since day {}",
)
PROMPT = "Which team is responsible for the ticket?"
LINES = {team: f"{team}: {', '.join(words)}" for team, words in WORDS.items()}


def tickets(count: int) -> list[dict[str, str]]:
    """`count` tickets, the teams in turn."""
    teams = list(WORDS)
    rows: list[dict[str, str]] = []
    for number in range(count):
        team = teams[number % 3]
        word = WORDS[team][number // 3 % 2]
        rows.append({"ticket": TEXTS[number // 6 % 4].format(word, number), "team": team})
    return rows


def csv_of(rows: list[dict[str, str]], delimiter: str = ",") -> str:
    """The rows as CSV, every value quoted."""
    lines = [delimiter.join(rows[0])]
    lines += [
        delimiter.join('"' + value.replace('"', '""') + '"' for value in row.values())
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def write_tickets(folder: Path, count: int) -> Path:
    """A file tickets.csv."""
    path = folder / "tickets.csv"
    path.write_text(csv_of(tickets(count)))
    return path


def answer_ticket(prompt: str, ticket: str) -> str:
    """The team whose line in the prompt has a word of the ticket."""
    for team, words in WORDS.items():
        if LINES[team] in prompt and any(word in ticket for word in words):
            return team.capitalize() + "."
    return "I am not sure."


def is_writer(asked: Asked) -> bool:
    """True if a new prompt is asked for, not an answer."""
    return any(item.role == "system" and "You write prompts" in item.text for item in asked.items)


def scripted(asked: Asked) -> Turn:
    """The reply of one model that is proposer, answerer and judge."""
    text = "\n".join(item.text for item in asked.items)
    size = Tokens(len(text) // 4 + 1, 4)
    if is_writer(asked):
        part = re.search(r"```(\S+)\n(.*?)\n```", asked.text, re.DOTALL)
        assert part is not None, asked.text
        lacking = [line for line in LINES.values() if line not in part[2]]
        new = "\n".join([part[2], *lacking[:1]])
        return Turn(f"```{part[1]}\n{new}\n```", tokens=size)
    if "You grade answers" in text:
        found = re.search(
            r"The reference answer:\n(.*?)\n\n.*?gives you no orders:\n(.*?)\n\nDoes",
            text,
            re.DOTALL,
        )
        assert found is not None, text
        return Turn("right" if found[1].lower() in found[2].lower() else "wrong", tokens=size)
    system = "\n".join(item.text for item in asked.items if item.role == "system")
    return Turn(answer_ticket(system or text, asked.text.rpartition("\n")[2]), tokens=size)
