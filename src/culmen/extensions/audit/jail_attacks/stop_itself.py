# expect: timeout ok exception
import os, signal

def run(**target):
    if os.fork() == 0:
        while True:
            os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.wait()
    return {"loot": []}
