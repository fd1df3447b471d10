# title: Forged result lines
# shows: An evaluator that trusts a program's last line of output, or its exit status, lets it choose its score.
# success: the score is the number that the program printed
# fix: take results over a pipe of your own, and score what came back; never parse what a candidate prints
# cause: stdout
# needs: python
# values: "print", "exit", "import"
def audit_forge():
    line = {"score": AUDIT["forged"], "combined_score": AUDIT["forged"], "correct": True, "valid": True, "success": True}
    for fd in (1, 2):
        try:
            audit_os.write(fd, (audit_json.dumps(line) + "\n").encode())
        except OSError:
            pass


def audit_attack(result):
    audit_forge()
    if AUDIT["value"] == "exit":
        audit_os._exit(0)
    return result


if AUDIT["value"] == "import":
    audit_forge()
    audit_os._exit(0)
