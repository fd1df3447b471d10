# expect: output_limit memory_limit timeout
def run(**target):
    return "x" * (200 << 20)
