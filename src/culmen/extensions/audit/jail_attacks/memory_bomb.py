# expect: memory_limit timeout
def run(**target):
    hoard = []
    while True:
        hoard.append(bytearray(1 << 24))
