"""An MCP server over orders.csv of the working directory, with names that tell nothing. Customers are known in capitals,
dates as YYYY-MM-DD; everything else is "unknown".
"""

import csv
import json
import sys

CUSTOMER = {"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]}
DAY = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


def rows_of(customer):
    with open("orders.csv") as file:
        return [row for row in csv.DictReader(file) if row["customer"].upper() == customer]


def paid(customer):
    return str(sum(int(row["amount"]) for row in rows_of(customer) if row["state"] == "paid") or "unknown")


def ordered(customer):
    return str(sum(int(row["amount"]) for row in rows_of(customer)) or "unknown")


def last(customer):
    return max((row["day"] for row in rows_of(customer)), default="unknown")


def open_on(day):
    with open("orders.csv") as file:
        return str(sum(row["day"] == day and row["state"] == "open" for row in csv.DictReader(file)) or "unknown")


TOOLS = {"lookup_1": (paid, CUSTOMER), "lookup_2": (ordered, CUSTOMER), "lookup_3": (last, CUSTOMER), "lookup_4": (open_on, DAY)}


def answer(method, params):
    if method == "initialize":
        known = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {**known, "serverInfo": {"name": "orders", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": schema} for name, (_, schema) in TOOLS.items()]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": TOOLS[params["name"]][0](**params["arguments"])}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        found = answer(request["method"], request.get("params", {}))
        body = {"error": {"code": -32601, "message": "unknown method"}} if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
