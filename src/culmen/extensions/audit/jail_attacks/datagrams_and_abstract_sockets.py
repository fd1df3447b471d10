# expect: ok
import socket

def run(**target):
    loot = []
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", target["udp"]))
        loot.append("udp")
    except OSError:
        pass
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0" + target["abstract"])
            loot.append("abstract")
    except OSError:
        pass
    return {"loot": loot}
