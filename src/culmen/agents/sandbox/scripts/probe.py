"""A probe in a sandbox: tries forbidden actions, and prints those that succeed, as JSON.

python -I -S probe.py TARGETS        TARGETS is JSON: secret, view, port
"""

import json
import os
import socket
import sys

_FEW = 12  # processes of a sandbox that only runs this


def worked(attempt):
    try:
        return bool(attempt())
    except OSError:
        return False


def reads(path):
    with open(path) as file:
        return bool(file.read())


def writes(path):
    with open(path, "w") as file:
        return file.write("x")


def connects(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def capable():
    with open("/proc/self/status") as file:
        found = [line.split()[1] for line in file if line.startswith("CapEff")]
    return int(found[0], 16) != 0


def crowded():
    return sum(name.isdigit() for name in os.listdir("/proc")) > _FEW


def main():
    targets = json.loads(sys.argv[1])
    broken = {
        "reads a file outside": worked(lambda: reads(targets["secret"])),
        "writes into its view": worked(lambda: writes(os.path.join(targets["view"], "x"))),
        "writes outside its tree": worked(lambda: writes("/x")),
        "cannot write in its tree": not worked(lambda: writes("x")),
        "sees processes outside": worked(crowded),
        "has capabilities": worked(capable),
        "reaches this machine's ports": worked(lambda: connects(targets["port"])),
    }
    print(json.dumps(sorted(name for name, yes in broken.items() if yes)))


main()
