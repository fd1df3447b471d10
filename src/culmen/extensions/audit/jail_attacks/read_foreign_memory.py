# expect: ok
import ctypes, os

def run(**target):
    loot = []
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in (os.getppid(), target["orchestrator"], target["victim"]):
        if pid and pid != os.getpid():
            if libc.ptrace(16, pid, None, None) == 0:  # PTRACE_ATTACH
                loot.append(f"ptrace {pid}")
            try:
                open(f"/proc/{pid}/mem", "rb").close()
                loot.append(f"mem {pid}")
            except OSError:
                pass
            buffer = ctypes.create_string_buffer(8)
            vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
            if libc.process_vm_readv(pid, vector, 1, vector, 1, 0) > 0:
                loot.append(f"vm {pid}")
    return {"loot": loot}
