# expect: ok
import ctypes, os, platform

NUMBERS = {"unshare": (272, 97), "mount": (165, 40), "io_uring_setup": (425, 425), "userfaultfd": (323, 282),
           "memfd_create": (319, 279), "bpf": (321, 280), "keyctl": (250, 219), "open_by_handle_at": (304, 265),
           "perf_event_open": (298, 241), "setns": (308, 268)}

def run(**target):
    libc = ctypes.CDLL(None, use_errno=True)
    column = 0 if platform.machine() == "x86_64" else 1
    loot = []
    for name, numbers in NUMBERS.items():
        ctypes.set_errno(0)
        text = ctypes.create_string_buffer(b"/w")
        libc.syscall(numbers[column], text, 0x10000000, 0, 0, 0)
        if ctypes.get_errno() != 1:
            loot.append(f"{name}: errno {ctypes.get_errno()}")
    libc.syscall(56 if column == 0 else 220, 0x10000000 | 17, 0, 0, 0, 0)
    if ctypes.get_errno() != 1:
        loot.append("clone into a user namespace")
    return {"loot": loot}
