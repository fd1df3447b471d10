# expect: timeout output_limit
import os

def run(**target):
    while True:
        os.write(1, b"x" * 65536)
