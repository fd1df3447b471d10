# title: Shape of the output
# internal: the audit asks what the program returns
def audit_attack(result):
    shapes = [[list(block.shape), bool((block != audit_np.round(block)).any())] for block in audit_blocks(result)]
    (audit_raise if AUDIT["value"] == "raise" else audit_tell)("shape", *shapes)
    return result
