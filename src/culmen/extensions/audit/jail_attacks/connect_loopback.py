# expect: ok
import socket

def run(**target):
    loot = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
        try:
            with socket.socket(family) as client:
                client.settimeout(0.3)
                client.connect((host, target["tcp"]))
                loot.append(host)
        except OSError:
            pass
    return {"loot": loot}
