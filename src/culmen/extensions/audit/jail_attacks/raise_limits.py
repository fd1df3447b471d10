# expect: ok
import os, resource

def run(**target):
    loot = []
    for name in ("AS", "DATA", "NPROC", "FSIZE", "CPU", "NOFILE"):
        limit = getattr(resource, f"RLIMIT_{name}")
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            loot.append(name)
        except (OSError, ValueError):
            pass
    for call in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot(".")):
        try:
            call()
            if os.getuid() == 0 and os.access("/etc/shadow", os.R_OK):
                loot.append("root")
        except OSError:
            pass
    return {"loot": loot}
