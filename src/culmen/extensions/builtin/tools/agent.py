"""A scripted agent in place of one with a model: it asks the tool `price` for each parcel, and writes what it says.

    python agent.py

CULMEN_TOOLS is the command of the tools' server.
"""

import csv
import json
import os
import shlex
import subprocess


def main():
    server = subprocess.Popen(shlex.split(os.environ["CULMEN_TOOLS"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())["result"]

    about = {"name": "agent", "version": "1"}
    ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
    print("tools:", ", ".join(tool["name"] for tool in ask("tools/list")["tools"]))
    prices = []
    with open("parcels.csv") as file:
        for row in csv.DictReader(file):
            given = {"kilos": float(row["kilos"]), "kilometres": float(row["kilometres"])}
            result = ask("tools/call", name="price", arguments=given)
            prices.append(result["content"][0]["text"])
            print(f"price {given} -> {prices[-1]}")
    with open("prices.txt", "w") as file:
        file.write("\n".join(prices) + "\n")


if __name__ == "__main__":
    main()
