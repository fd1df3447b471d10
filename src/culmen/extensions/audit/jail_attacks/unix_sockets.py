# expect: ok
"""Sockets that lie in the file system: what ssh-agent, D-Bus, tmux, Docker and PostgreSQL listen on."""
import ctypes, mmap, os, platform, socket, struct

def run(**target):
    loot = []

    def attempt(name, call):
        try:
            if call() is not False:
                loot.append(name)
        except OSError:
            pass

    def connect(kind, path):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(1)
            client.connect(path)

    def pair(kind, call):
        for end in socket.socketpair(socket.AF_UNIX, kind):
            with end:
                call(end)

    stream, datagram = target["unix"], target["unix_datagram"]
    attempt("stream", lambda: connect(socket.SOCK_STREAM, stream))
    attempt("datagram", lambda: connect(socket.SOCK_DGRAM, datagram))
    attempt("packets", lambda: connect(socket.SOCK_SEQPACKET, stream))
    attempt("a pair's end that sends elsewhere", lambda: pair(socket.SOCK_DGRAM, lambda e: e.sendto(b"x", datagram)))
    attempt("the same, raw", lambda: pair(socket.SOCK_RAW, lambda e: e.sendto(b"x", datagram)))
    attempt("a message", lambda: pair(socket.SOCK_DGRAM, lambda e: e.sendmsg([b"x"], [], 0, datagram)))
    attempt("a pair's end that connects anew", lambda: pair(socket.SOCK_DGRAM, lambda e: e.connect(datagram)))
    for fd in (3, 4):
        attempt(f"descriptor {fd}", lambda fd=fd: socket.socket(fileno=os.dup(fd)).connect(stream))
    attempt("the calls of 32-bit programs", lambda: compat_socket() < 0x80000000)
    return {"loot": loot}

def compat_socket():
    """socketcall(socket, AF_UNIX, SOCK_STREAM) by int 0x80; x86-64 kernels still take the numbers of i386."""
    if platform.machine() != "x86_64":
        return 0xFFFFFFFF
    low = 0x40  # MAP_32BIT: the kernel reads the arguments at a 32-bit address
    data = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | low, mmap.PROT_READ | mmap.PROT_WRITE)
    data.write(struct.pack("<III", 1, 1, 0))
    place = ctypes.addressof(ctypes.c_char.from_buffer(data))
    code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8" + struct.pack("<I", 102) + b"\xbb" + struct.pack("<I", 1) + b"\xb9" + struct.pack("<I", place)
               + b"\xcd\x80\x5b\xc3")
    return ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
