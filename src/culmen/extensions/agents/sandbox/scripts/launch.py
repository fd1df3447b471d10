"""The first program in an agent's sandbox: sets limits and uid, then becomes the command.

    python -I -S launch.py SETTINGS COMMAND...

SETTINGS is JSON: uid (null: stay), processes, file_mb, die (true: die with the parent).
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


def set_limit(kind, value):
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def main():
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # out of memory, agents end first
            file.write("1000")
    except OSError:
        pass
    set_limit(resource.RLIMIT_CORE, 0)
    set_limit(resource.RLIMIT_FSIZE, settings["file_mb"] << 20)
    set_limit(resource.RLIMIT_NOFILE, 8192)
    set_limit(resource.RLIMIT_MEMLOCK, 0)
    set_limit(resource.RLIMIT_MSGQUEUE, 0)
    if settings["processes"]:
        set_limit(resource.RLIMIT_NPROC, settings["processes"])
    uid = settings["uid"]
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if settings["die"]:
        parent = os.getppid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if parent != os.getppid():
            os._exit(1)
    os.umask(0o022)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        os._exit(127)


main()
