# expect: timeout
def run(**target):
    while True:
        pass
