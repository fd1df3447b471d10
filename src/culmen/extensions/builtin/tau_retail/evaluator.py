"""Lets an agent and a simulated customer talk, both models, and compares the shop's database with what it should be.

Reward as in tau-bench: 1 if all rows are as after the task's right actions and each required output was said, else 0.
"""

import gzip
import json
from pathlib import Path

from store import TOOLS, Store

HERE = Path(__file__).parent
POLICY = (HERE / "policy.md").read_text(encoding="utf-8")
TASKS = [json.loads(line) for line in gzip.decompress((HERE / "tasks.jsonl.gz").read_bytes()).splitlines()]
OFFERED = [{"type": "function", "function": tool} for tool in TOOLS]
STEPS = 30  # the agent's turns: a message or a tool call each
END = "###STOP###"
CUSTOMER = """You play a customer who writes to a shop's support. Who you are and what you want:

{instruction}

Write one short message at a time, in your own words. Tell only what is needed at that point, and make nothing up
that is not above: if asked for such a thing, say that you do not remember. When all you want is done, or you
are handed to a person, write {end} and nothing else."""


def score(parts, case, ask):
    task = TASKS[case.info]
    shop, said = Store(), []
    ended = talk(shop, task, parts["instructions.md"], ask, said)
    wanted = right(task)
    wrong = [
        f"{kind} {name}"
        for kind, rows in shop.rows().items()
        for name, row in rows.items()
        if row != wanted[kind][name]
    ]
    unsaid = [output for output in task["outputs"] if not any(output.lower() in told(text) for text in said)]
    good = not wrong and not unsaid
    feedback = [f"What the customer wanted: {task['instruction']}", f"The conversation ended: {ended}."]
    feedback += [f"Not as it should be in the database: {', '.join(wrong)}."] if wrong else []
    feedback += [f"Never said: {', '.join(unsaid)}."] if unsaid else []
    feedback += ["Right actions: " + "; ".join(f"{a['name']}({json.dumps(a['kwargs'])})" for a in task["actions"])] * (
        not good
    )
    metrics = {"database": float(not wrong), "said": float(not unsaid)}
    return {"score": float(good), "feedback": "\n".join(feedback), "metrics": metrics}


def right(task):
    """The rows after the task's right actions."""
    shop = Store()
    for action in task["actions"]:
        shop.use(action["name"], action["kwargs"])
    return shop.rows()


def told(text):
    return text.lower().replace(",", "")


def talk(shop, task, instructions, ask, said):
    """Both talk until one of them ends it; what the agent tells the customer is added to `said`. How it ended."""
    agent = [{"role": "system", "content": f"{POLICY}\n{instructions}"}]
    prompt = CUSTOMER.format(instruction=task["instruction"], end=END)
    customer = [{"role": "system", "content": prompt}, {"role": "user", "content": "Hello! What can I do for you?"}]
    heard = True
    for _ in range(STEPS):
        if heard:
            reply = ask(customer, role="user", temperature=1.0)
            customer.append({"role": "assistant", "content": reply.text})
            if END in reply.text:
                return "by the customer"
            agent.append({"role": "user", "content": reply.text})
        reply = ask(agent, role="agent", tools=OFFERED, temperature=0.0)
        agent.append(reply.message)
        heard = not reply.tool_calls
        if heard:
            said.append(reply.text)
            customer.append({"role": "user", "content": reply.text})
        elif used(shop, reply.tool_calls, agent):
            return "the agent handed over to a person"
    return f"after {STEPS} turns of the agent"


def used(shop, calls, agent):
    """Uses the first tool that was called (the policy allows one at a time); True if it ends the conversation."""
    for number, call in enumerate(calls):
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
            found = shop.use(name, arguments) if not number else "Error: only one tool call at a time"
        except (ValueError, TypeError) as error:
            found = f"Error: {error}"
        agent.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    return calls[0]["function"]["name"] == "transfer_to_human_agents"
