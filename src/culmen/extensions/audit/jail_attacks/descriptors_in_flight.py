# expect: ok exception timeout
# not: command
"""Descriptors in flight: the kernel counts them for the user, in all processes together, and refuses
to pass one for those who may open fewer: the fork-server's children, who need to pass one."""
import array, os, socket, time

def run(**target):
    counted, shown = os.pipe()
    for _ in range(target["processes"] // 2):
        try:
            if os.fork() == 0:
                os.write(shown, b"x" * send_all())
                time.sleep(60)
        except OSError:
            break
    os.set_blocking(counted, False)
    sent, end = 0, time.monotonic() + 0.8
    while time.monotonic() < end:
        try:
            sent += len(os.read(counted, 65536))
        except BlockingIOError:
            time.sleep(0.01)
    return {"loot": []} if sent < 1000 else {"sent": sent}

def send_all():
    null, pairs, sent = os.open("/dev/null", os.O_RDONLY), [], 0
    fds = array.array("i", [null] * 250)
    for _ in range(100):
        pairs.append(socket.socketpair())
        try:
            pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except OSError:
            break
        sent += len(fds)
    time.sleep(0.2)
    globals()["kept"] = pairs
    return sent
