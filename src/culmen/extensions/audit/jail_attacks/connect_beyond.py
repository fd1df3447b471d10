# expect: ok
# 192.0.2.0/24 is set aside for documentation: getting as far as waiting for an answer is success enough
import socket

def run(**target):
    loot = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            with socket.socket(socket.AF_INET, kind) as client:
                client.settimeout(0.2)
                client.connect(("192.0.2.1", 80))
                loot.append(str(kind))
        except TimeoutError:
            loot.append(str(kind))
        except OSError:
            pass
    return {"loot": loot}
