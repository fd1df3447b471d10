# expect: ok memory_limit timeout exception
# not: command
"""Memory that the kernel holds in the queues of sockets, of any size, for a process and its children."""
import mmap, os, socket, struct, time

def run(**target):
    sent, end = mmap.mmap(-1, 8 * 64), time.monotonic() + 0.6
    for place in range(1, target["processes"] // 2):
        try:
            if os.fork() == 0:
                fill(sent, place, end)
                time.sleep(60)
        except OSError:
            break
    fill(sent, 0, end)
    time.sleep(0.3)
    total = sum(struct.unpack("64Q", sent[:])) >> 20
    return {"loot": [f"{total} MB in sockets"] if total > 1.5 * target["memory_mb"] else []}

def fill(sent, place, end):
    data, kept = b"x" * 65536, []
    try:
        while time.monotonic() < end:
            kept += socket.socketpair()
            for one in kept[-2:]:
                try:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
                except OSError:
                    pass
                one.setblocking(False)
                try:
                    while True:
                        count = one.send(data) + struct.unpack_from("Q", sent, 8 * place)[0]
                        struct.pack_into("Q", sent, 8 * place, count)
                except BlockingIOError:
                    pass
    except OSError:
        pass
    globals()["kept"] = kept
