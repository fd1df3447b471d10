"""A candidate that tries to escape: it runs inside the jail and reports its attempts.

`quick` runs at every start.
"""

import contextlib
import ctypes
import os
import resource
import socket
import time


def quick(target):
    """name -> True if the attempt was stopped; a fast subset."""
    return {name: attempt(target) for name, attempt in QUICK.items()}


def run(target):
    """name -> True if the attempt was stopped, for all attempts."""
    return {name: is_stopped(attempt, target) for name, attempt in {**QUICK, **MORE}.items()}


def is_stopped(attempt, target):
    """True if the attempt was stopped, also if the system has no such call."""
    try:
        return attempt(target)
    except AttributeError:
        return True


def linger(target):
    """Leave a daemon behind and a shared memory segment."""
    ctypes.CDLL(None).shmget(target["shm_key"], 4096, 0o1666)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", target["nap"]])
        os._exit(0)
    return True


def fill_disk(target):
    """Write files that are too large only together; True if that was refused at once."""
    half = target["files_mb"] // 2 + 4
    held = is_refused(lambda: [_fill_file(name, half) for name in ("a", "b", "c")])
    time.sleep(0 if held else 1.0)
    return held


def spin(target):
    """Never end."""
    while True:
        pass


def is_refused(attempt):
    """True if an operation was refused."""
    try:
        attempt()
    except OSError:
        return True
    return False


def read_file(target):
    return is_refused(lambda: open(target["secret"]).read())


def write_file(target):
    return is_refused(lambda: open(target["secret"] + ".new", "w").close())


def signal_others(target):
    # its number is this process's own where process 1 of a container asks process 1 of a jail
    return target["victim"] == os.getpid() or is_refused(lambda: os.kill(target["victim"], 0))


def connect_tcp(target):
    return is_refused(lambda: socket.create_connection(("127.0.0.1", target["tcp"]), 1).close())


def find_descriptors(target):
    return not any(_is_open(fd) for fd in range(4, 64))


def _is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def send_udp(target):
    return is_refused(
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
            b"x", ("127.0.0.1", target["udp"])
        )
    )


def unix_sockets(target):
    def attempt():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", target["unix"])

    def pair():
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
            with end:
                end.sendto(b"x", target["unix"])

    return is_refused(attempt) and is_refused(pair)


def change_mode(target):
    """Change the mode of a file that the user owns; root's candidates have a uid of their own."""
    return is_refused(lambda: os.chmod(target["secret"], 0o666)) and is_refused(
        lambda: os.utime(target["secret"])
    )


def abstract_socket(target):
    def attempt():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0" + target["abstract"])

    return is_refused(attempt)


def foreign_keys(target):
    names = ["self", str(os.getppid()), str(target["victim"])]
    with contextlib.suppress(OSError):
        names += os.listdir("/proc")
    for name in names:
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if target["key"].encode() in file.read():
                    return False
    return target["key"] not in os.environ.values()


def others_limits(target):
    """Set the limits of another process to their present values: success does no harm."""
    number, word = {"x86_64": 302}.get(os.uname().machine, 261), ctypes.c_ulong * 2
    libc, limits = ctypes.CDLL(None, use_errno=True), word(1 << 20, 1 << 20)
    same = libc.syscall(
        number, target["victim"], resource.RLIMIT_NOFILE, None, ctypes.byref(limits)
    )
    return (
        same != 0
        or libc.syscall(
            number, target["victim"], resource.RLIMIT_NOFILE, ctypes.byref(limits), None
        )
        != 0
    )


def process_list(target):
    return not os.path.exists(f"/proc/{target['victim']}/stat") or is_refused(
        lambda: open(f"/proc/{target['victim']}/stat").read()
    )


def system_calls(target):
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.unshare(0x10000000) != 0 and libc.ptrace(16, target["victim"], 0, 0) != 0


def exceed_memory(target):
    try:
        bytearray((target["memory_mb"] + 64) << 20)
    except MemoryError:
        return True
    return False


def exceed_processes(target):
    children, refused = [], False
    for _ in range(target["processes"] + 8):
        try:
            pid = os.fork()
        except OSError:
            refused = True
            break
        if pid == 0:
            os.read(3, 1)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return refused


def disk_file(target):
    return is_refused(lambda: _fill_file("one", target["files_mb"] + 8))


def _fill_file(name, megabytes):
    try:
        with open(name, "wb", buffering=0) as file:
            for _ in range(megabytes):
                if file.write(b"\1" * (1 << 20)) < (1 << 20):
                    raise OSError("short write")
    except OSError:
        os.unlink(name)
        raise


def core_dumps(target):
    return resource.getrlimit(resource.RLIMIT_CORE)[1] == 0


QUICK = {
    "reading files of the user": read_file,
    "writing outside the work folder": write_file,
    "modes of files of the user": change_mode,
    "signals to other processes": signal_others,
    "TCP": connect_tcp,
    "Unix sockets": unix_sockets,
    "inherited descriptors": find_descriptors,
}
MORE = {
    "UDP": send_udp,
    "abstract sockets": abstract_socket,
    "environment of other processes": foreign_keys,
    "limits of other processes": others_limits,
    "list of other processes": process_list,
    "ptrace and new namespaces": system_calls,
    "memory limit": exceed_memory,
    "process limit": exceed_processes,
    "file size limit": disk_file,
    "core dumps": core_dumps,
}
