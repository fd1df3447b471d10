"""A probe in a sandbox: tries forbidden actions, and prints those that succeed, as JSON.

python -I -S probe.py TARGETS        TARGETS is JSON: secret, view, port
"""

import json
import os
import socket
import sys


def has_succeeded(attempt):
    try:
        return bool(attempt())
    except OSError:
        return False


def can_read(path):
    with open(path) as file:
        return bool(file.read())


def can_write(path):
    with open(path, "w") as file:
        return file.write("x")


def can_connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def has_capabilities():
    with open("/proc/self/status") as file:
        masks = [line.split()[1] for line in file if line.startswith("CapEff")]
    return int(masks[0], 16) != 0


def can_see_processes():
    # most processes of a sandbox that runs only this probe
    return sum(name.isdigit() for name in os.listdir("/proc")) > 12


def main():
    targets = json.loads(sys.argv[1])
    breaches = {
        "reads a file outside": has_succeeded(lambda: can_read(targets["secret"])),
        "writes into its view": has_succeeded(
            lambda: can_write(os.path.join(targets["view"], "x"))
        ),
        "writes outside its tree": has_succeeded(lambda: can_write("/x")),
        "cannot write in its tree": not has_succeeded(lambda: can_write("x")),
        "sees processes outside": has_succeeded(can_see_processes),
        "has capabilities": has_succeeded(has_capabilities),
        "reaches this machine's ports": has_succeeded(lambda: can_connect(targets["port"])),
    }
    print(json.dumps(sorted(name for name, yes in breaches.items() if yes)))


main()
