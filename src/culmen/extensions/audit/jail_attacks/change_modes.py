# expect: ok
"""Owners, modes, times and attributes of files that belong to the user: no right to write is needed for them."""
import ctypes, fcntl, os, platform, struct, sys

LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = 0 if platform.machine() == "x86_64" else 1
CALLS = {"fchmodat2": (452, 452), "setxattrat": (463, 463), "file_setattr": (469, 469)}

def run(**target):
    loot = []
    readable = os.path.join(os.path.dirname(os.__file__), "os.py")
    paths = [target["run_folder"], target["task_folder"], os.path.join(target["run_folder"], "journal"),
             os.path.join(target["task_folder"], "evaluator.py"), readable, sys.prefix]
    for path in paths:
        for name, call in attempts(path).items():
            try:
                call()
                loot.append(f"{name} {path}")
            except (OSError, ValueError):
                pass
    return {"loot": loot}

def attempts(path):
    try:
        mode, mtime = os.stat(path).st_mode & 0o7777, os.stat(path).st_mtime_ns
    except OSError:
        mode, mtime = 0o777, 0
    uid = os.getuid()
    return {
        "chmod": lambda: os.chmod(path, mode),
        "chown": lambda: os.chown(path, uid, -1),
        "lchown": lambda: os.lchown(path, uid, -1),
        "utime": lambda: os.utime(path, ns=(mtime, mtime)),
        "setxattr": lambda: os.setxattr(path, "user.culmen", b"x"),
        "removexattr": lambda: os.removexattr(path, "user.culmen-none") if taken(path) else None,
        "fchmod": lambda: held(path, lambda fd: os.fchmod(fd, mode)),
        "fchown": lambda: held(path, lambda fd: os.fchown(fd, uid, -1)),
        "futimens": lambda: held(path, lambda fd: os.utime(fd, ns=(mtime, mtime))),
        "fsetxattr": lambda: held(path, lambda fd: os.setxattr(fd, "user.culmen", b"x")),
        "through a descriptor's name": lambda: held(path, lambda fd: os.chmod(f"/proc/self/fd/{fd}", mode), os.O_PATH),
        "through a link": lambda: linked(path, mode),
        "flags": lambda: held(path, lambda fd: fcntl.ioctl(fd, 0x40086602, struct.pack("q", 0x40))),
        "project": lambda: held(path, lambda fd: fcntl.ioctl(fd, 0x401C5820, struct.pack("IIIII8x", 0x40, 0, 0, 0, 0))),
        "fchmodat2": lambda: raw("fchmodat2", -100, path.encode(), mode, 0),
        "file_setattr": lambda: raw("file_setattr", -100, path.encode(), ctypes.create_string_buffer(24), 24, 0),
    }

def taken(path):
    os.setxattr(path, "user.culmen-none", b"x")
    return True

def held(path, call, flags=os.O_RDONLY):
    fd = os.open(path, flags)
    try:
        call(fd)
    finally:
        os.close(fd)

def linked(path, mode):
    name = f"link-{abs(hash(path))}"
    os.symlink(path, name)
    os.chmod(name, mode)

def raw(name, *arguments):
    if LIBC.syscall(CALLS[name][COLUMN], *arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
