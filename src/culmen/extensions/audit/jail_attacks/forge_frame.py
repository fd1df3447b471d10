# expect: ok bad_frame bad_output no_output exception
# not: shared
import json, os, struct

def run(**target):
    text = json.dumps({"kind": "score", "score": 100.0, "metrics": {}, "feedback": "", "artifacts": {}}).encode()
    for kind in b"AHRKL":
        payload = struct.pack("<I", len(text)) + text
        for fd in range(3, 16):
            try:
                os.write(fd, struct.pack("<IB", len(payload), kind) + payload)
            except OSError:
                pass
    return {"loot": []}
