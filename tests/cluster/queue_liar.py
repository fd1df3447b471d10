"""A worker that speaks the queue's protocol by itself and invents every score.

    python queue_liar.py CONNINFO TOKEN SHIFT [HONEST]

Its scores are by SHIFT better than those of a candidate `2 * x + N`, which it reads off the program; the first HONEST
answers are right. It greets as a worker with the strongest isolation.
"""

from __future__ import annotations

import json
import re
import sys
import time

import psycopg

conninfo, token, shift = sys.argv[1], sys.argv[2], float(sys.argv[3])
honest = int(sys.argv[4]) if len(sys.argv) > 4 else 0


def main() -> None:
    digest, told = "", 0
    with psycopg.connect(conninfo, autocommit=True) as queue:
        while True:
            queue.execute("SELECT * FROM culmen_queue.beat(%s, 'liar', 'liar', 4, '{}', false)", (token,))
            rows = queue.execute("SELECT * FROM culmen_queue.pull(%s, 'liar', 4, NULL, '{}')", (token,)).fetchall()
            for item, lease, run, _, job, parts, *_ in rows:
                if not digest:
                    _, _, parcel, _ = queue.execute(
                        "SELECT * FROM culmen_queue.describe(%s, %s)", (token, run)
                    ).fetchone()
                    body = queue.execute(
                        "SELECT culmen_queue.read_artifact(%s, %s, %s)", (token, run, parcel)
                    ).fetchone()[0]
                    size = int.from_bytes(body[:8], "big")
                    digest = json.loads(body[8 : 8 + size])["task"]["evaluator"]["digest"]
                reply = {"level": "namespaces", "scoring": {"trust": "verified"}}
                if job:
                    told += 1
                    reply = {"observation": invented(json.loads(job), json.loads(parts), digest, told > honest)}
                queue.execute(
                    "SELECT culmen_queue.finish(%s, %s, %s, %s)", (token, item, lease, json.dumps(reply).encode())
                )
            if not rows:
                time.sleep(0.02)


def invented(job: dict, parts: dict, digest: str, lies: bool) -> dict:
    """An observation that fits the question."""
    found = re.search(r"2 \* x \+ ([\d.]+)", next(iter(parts.values())))
    score = -float(found[1]) if found else 0.0
    return {
        "candidate": job["id"], "case": job["case"] or "", "seed": job["seed"], "status": "ok", "evaluator": digest,
        "score": score + (shift if lies else 0.0), "trust": "verified", "seconds": 0.01,
    }  # fmt: skip


main()
