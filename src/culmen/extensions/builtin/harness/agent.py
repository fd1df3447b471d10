"""The harness under test: asks a model for the answer to a question, and writes it to answer.txt.

    python agent.py QUESTION

The candidate is this file. Its model is reached at OPENAI_BASE_URL, metered and limited by culmen.
"""

import json
import os
import sys
import urllib.request

SYSTEM = "You answer questions on the files of a folder."


def ask(messages):
    """The model's reply to a conversation."""
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    body = json.dumps({"model": "any", "max_tokens": 500, "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def main(question):
    if "OPENAI_BASE_URL" not in os.environ:
        raise SystemExit("no model is lent to this harness: culmen run ... --model agent=MODEL")
    names = ", ".join(sorted(os.listdir()))
    prompt = f"{question}\nThe files are: {names}"
    reply = ask([{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}])
    print(reply)
    with open("answer.txt", "w") as file:
        file.write(reply + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
