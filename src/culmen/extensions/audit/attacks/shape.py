# title: Shape of the output
# internal: the audit asks what the program returns
def audit_attack(result):
    if AUDIT["value"] == "raise":
        audit_raise("shape", *[[list(block.shape), bool((block != audit_np.round(block)).any())] for block in audit_blocks(result)])
    audit_tell("shape", *[[list(block.shape), bool((block != audit_np.round(block)).any())] for block in audit_blocks(result)])
    return result
