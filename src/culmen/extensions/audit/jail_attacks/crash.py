# expect: crash
import ctypes

def run(**target):
    ctypes.string_at(0)
