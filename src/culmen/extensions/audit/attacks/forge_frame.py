# title: Forged reports on open descriptors
# shows: A program that shares a channel with the evaluator can answer in its place.
# success: the score is the number that the program wrote into a descriptor it was not given for that
# fix: do not import candidates: write score(output) (form = call), or let culmen run evaluate(path) through its proxy
# cause: import
# needs: function
# values: "wire", "json"
import struct as audit_struct


def audit_attack(result):
    forged = {"score": AUDIT["forged"], "metrics": {"combined_score": AUDIT["forged"]}, "feedback": "", "artifacts": {}}
    text = audit_json.dumps({"kind": "score", **forged}).encode()
    body = audit_json.dumps(forged).encode()
    payloads = [audit_struct.pack("<I", len(body)) + body] if AUDIT["value"] == "wire" else [text]
    for fd in range(3, 24):
        for kind in b"RAH":
            for payload in payloads:
                try:
                    audit_os.write(fd, audit_struct.pack("<IB", len(payload), kind) + payload)
                except OSError:
                    pass
    return result
