"""Tools in a sandbox for an agent without a process: one JSON line in, one out.

    python -I -S toolbox.py ALONE        ALONE is 1 in a process namespace of its own, else 0

It runs until stdin ends. After each command all processes that it started are killed. All texts
that go out are bounded.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

HEAD, TAIL = 8_000, 8_000  # bytes of a command's output that are kept
LINES, READ = 2_000, 16_000  # lines and characters of a file that are read at once
NAMES = 1_000  # entries of a folder that are listed
LARGEST = 1 << 20  # bytes of a file that is edited
ALONE = sys.argv[1] == "1"


class Fault(Exception):
    """A fault of a tool call: its word, and a text."""


def run_shell_command(command, seconds):
    process = subprocess.Popen(
        ["/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output, ended = read_output(process, time.monotonic() + seconds)
    end_all(process)
    if process.stdout is not None:
        process.stdout.close()
    code = process.wait()
    if not ended:
        return {
            "text": f"{output}\n[ended after {seconds:g} seconds]",
            "fault": "timeout",
            "code": code,
        }
    return {"text": output, "code": code}


def read_output(process, deadline):
    """Output of a process until it has ended, and True if that was before the deadline.

    Other processes may still hold its output.
    """
    pipe, head, tail, length = process.stdout.fileno(), b"", b"", 0
    os.set_blocking(pipe, False)
    while True:
        gone = process.poll() is not None
        ready = select.select([pipe], [], [], 0 if gone else 0.02)[0]
        data = os.read(pipe, 65536) if ready else None
        if data:
            length += len(data)
            head_left = HEAD - len(head)
            head, tail = (
                head + data[: max(0, head_left)],
                (tail + data[max(0, head_left) :])[-TAIL:],
            )
        elif gone:
            return joined_output(head, tail, length), True
        elif data == b"":
            time.sleep(0.02)  # the process closed its output and goes on
        if time.monotonic() > deadline:
            return joined_output(head, tail, length), False


def joined_output(head, tail, length):
    lost = length - len(head) - len(tail)
    middle = f"\n[... {lost} bytes left out ...]\n" if lost else ""
    return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")


def end_all(process):
    for _ in range(3):  # a process started during the kill may slip through once
        try:
            if ALONE:
                os.kill(-1, signal.SIGKILL)  # all of this namespace except this and the first one
            else:
                os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def read_lines(path, offset=0, limit=LINES):
    text = file_text(path, 64 << 20)
    lines = text.splitlines(keepends=True)
    chosen = "".join(lines[max(0, offset) : max(0, offset) + max(0, min(limit, LINES))])
    cut = chosen[:READ]
    shown = cut.count("\n") + (not cut.endswith("\n") and bool(cut))
    rest = len(lines) - max(0, offset) - shown
    return {
        "text": cut
        + (f"\n[{rest} more lines; go on with offset {max(0, offset) + shown}]" if rest > 0 else "")
    }


def file_text(path, limit):
    """Text of a file."""
    if os.path.isdir(path):
        raise Fault("is_a_folder", f"{path} is a folder")
    if not os.path.isfile(path):
        raise Fault("missing", f"there is no file {path}")
    if os.path.getsize(path) > limit:
        raise Fault("too_large", f"{path} has {os.path.getsize(path)} bytes")
    with open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")


def replace_passage(path, old, new):
    """Text of a file with one passage replaced; nothing is written."""
    text = file_text(path, LARGEST)
    count = text.count(old) if old else 0
    if count != 1:
        fault, why = (
            ("missing", "is not in") if not count else ("ambiguous", f"stands {count} times in")
        )
        raise Fault(fault, f"the text to replace {why} {path}")
    return {"text": text.replace(old, new)}


def append_text(path, text):
    """Text of a file with a text added at its end; nothing is written."""
    return {"text": (file_text(path, LARGEST) if os.path.lexists(path) else "") + text}


def save_text(path, text):
    if os.path.isdir(path):
        raise Fault("is_a_folder", f"{path} is a folder")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    new = os.path.join(os.path.dirname(os.path.abspath(path)), f".new-{os.getpid()}")
    with open(new, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    os.replace(new, path)
    return {"text": f"{path} has {len(text)} characters"}


def list_folder(path="."):
    if not os.path.isdir(path):
        raise Fault("missing", f"there is no folder {path}")
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in os.scandir(path))
    more = f"\n[... and {len(names) - NAMES} more]" if len(names) > NAMES else ""
    return {"text": "\n".join(names[:NAMES]) + more}


TOOLS = {
    "command": run_shell_command,
    "read": read_lines,
    "edit": replace_passage,
    "append": append_text,
    "write": save_text,
    "list": list_folder,
}


def answer_request(line):
    request = json.loads(line)
    try:
        return TOOLS[request["tool"]](**request["arguments"])
    except Fault as fault:
        return {"text": fault.args[1], "fault": fault.args[0]}
    except TypeError as error:
        return {"text": str(error), "fault": "bad_arguments"}
    except (OSError, ValueError) as error:
        return {"text": f"{type(error).__name__}: {error}", "fault": "failed"}


def main():
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with open(0, "rb") as requests:
        for line in requests:
            reply = json.dumps(answer_request(line)).encode() + b"\n"
            while reply:
                reply = reply[os.write(out, reply) :]


main()
