"""A worker that speaks the queue's protocol by itself and invents every score.

    python queue_liar.py CONNINFO TOKEN SHIFT

Its scores are by SHIFT better than those of a candidate `2 * x + N`, which it reads off the program. It greets as a
worker with the strongest isolation.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time

import psycopg

conninfo, token, shift = sys.argv[1], sys.argv[2], float(sys.argv[3])


def main() -> None:
    """Lie until the process is killed; a server that crashes is waited for."""
    while True:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(conninfo, autocommit=True) as queue:
            lie(queue)
        time.sleep(0.05)


def lie(queue: psycopg.Connection) -> None:
    digest = ""
    while True:
        queue.execute("SELECT * FROM culmen_queue.beat(%s, 'liar', 'liar', 4, '{}', false)", (token,))
        rows = queue.execute("SELECT * FROM culmen_queue.pull(%s, 'liar', 4, NULL, '{}')", (token,)).fetchall()
        for item, lease, run, _, job, parts, *_ in rows:
            digest = digest or read_digest(queue, run)
            reply = {"level": "namespaces", "scoring": {"trust": "verified"}}
            if job:
                reply = {"observation": invented(json.loads(job), json.loads(parts), digest)}
            queue.execute(
                "SELECT culmen_queue.finish(%s, %s, %s, %s)", (token, item, lease, json.dumps(reply).encode())
            )
        if not rows:
            time.sleep(0.02)


def read_digest(queue: psycopg.Connection, run: int) -> str:
    """The evaluator's digest, out of the run's parcel."""
    _, _, parcel, _ = queue.execute("SELECT * FROM culmen_queue.describe(%s, %s)", (token, run)).fetchone()
    body = queue.execute("SELECT culmen_queue.read_artifact(%s, %s, %s)", (token, run, parcel)).fetchone()[0]
    size = int.from_bytes(body[:8], "big")
    return json.loads(body[8 : 8 + size])["task"]["evaluator"]["digest"]


def invented(job: dict, parts: dict, digest: str) -> dict:
    """An observation that fits the question."""
    found = re.search(r"2 \* x \+ ([\d.]+)", next(iter(parts.values())))
    score = -float(found[1]) if found else 0.0
    return {
        "candidate": job["id"], "case": job["case"] or "", "seed": job["seed"], "status": "ok", "evaluator": digest,
        "score": score + shift, "trust": "verified", "seconds": 0.01,
    }  # fmt: skip


main()
