"""A scripted agent in place of one with a model: it answers a question with one of the tools that it is served.

    python agent.py QUESTION

Which tool it takes, and how it writes the argument, depends on what the tools' descriptions say. So the true pass rate
of every set of descriptions is known, and real processes still decide. CULMEN_SEED seeds its dice, CULMEN_TOOLS is the
command of the tools' server.
"""

import json
import os
import random
import re
import shlex
import subprocess
import sys

CLAIMS = {  # by the tool that is right: what the question asks, and what a description says that offers it
    "lookup_1": (r"has (\w+) paid", r"what a customer has paid"),
    "lookup_2": (r"has (\w+) ordered for", r"what a customer has ordered for"),
    "lookup_3": (r"did (\w+) order last", r"when a customer ordered last"),
    "lookup_4": (r"open orders are there of ([\d.]+)", r"open orders of a day"),
}
ANY = r"for any question"  # a description that offers everything
HABITS = (r"in capitals", r"YYYY-MM-DD")
KEPT, GUESSED, REMEMBERED = 0.95, 0.2, 0.1


def kind_of(question):
    """The tool that is right for a question, and its argument as the question has it."""
    for tool, (asked, _) in CLAIMS.items():
        found = re.search(asked, question)
        if found:
            return tool, found[1]
    raise SystemExit("cannot read the question")


def chances(descriptions, right):
    """The probabilities that the right tool is taken, that its argument is right, and that it is used at all."""
    claim = CLAIMS[right][1]
    offered = [name for name, text in descriptions.items() if re.search(claim + "|" + ANY, text)]
    taken = (right in offered) / len(offered) if offered else 1 / len(descriptions)
    own = descriptions.get(right, "")
    form = KEPT if re.search(HABITS[right == "lookup_4"], own) else GUESSED
    return taken, form, REMEMBERED if re.search(r"from memory", own) else 1.0


def draw(descriptions, right, seed):
    """Whether the agent takes the right tool, writes its argument right, and uses it at all, with this seed."""
    dice = random.Random(f"{seed}/{right}")
    return [dice.random() < chance for chance in chances(descriptions, right)]


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, method, **params):
        message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == method:
                return answer["result"]
        raise SystemExit("the server has ended")


def main():
    server = Server(os.environ["CULMEN_TOOLS"])
    about = {"name": "agent", "version": "1"}
    server.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
    tools = {tool["name"]: tool for tool in server.ask("tools/list")["tools"]}
    right, word = kind_of(sys.argv[1])
    descriptions = {name: tool["description"] for name, tool in tools.items()}
    is_taken, is_formed, is_used = draw(descriptions, right, os.environ.get("CULMEN_SEED", "0"))
    name = right if is_taken and right in tools else min(set(tools) - {right})
    form = "-".join(reversed(word.split("."))) if right == "lookup_4" else word.upper()
    given = {next(iter(tools[name]["inputSchema"]["properties"])): form if is_formed else word}
    text = "unknown"
    if is_used:
        text = server.ask("tools/call", name=name, arguments=given)["content"][0]["text"]
    print(f"{name} {given} -> {text}" if is_used else "answers from memory")
    with open("answer.txt", "w") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    main()
