#!/usr/bin/env bash
# skills-ref 0.1.1 (strictyaml 1.7.3)
# A description with three hyphens is cut at them without an error, and the fields after it are lost.
# A folded description (>) of 1,024 characters is refused: its line end is counted.
. "$(dirname "$0")/environment.sh"
in_environment skills-ref==0.1.1 strictyaml==1.7.3 <<'PYTHON'
from pathlib import Path

from skills_ref import read_properties, validate

skill = Path("demo")
skill.mkdir()


def read(description):
    (skill / "SKILL.md").write_text(f"---\nname: demo\ndescription: {description}\nlicense: MIT\n---\nBody.\n")
    found = read_properties(skill)
    return validate(skill), found.description, found.license


faults, description, license = read("Convert a --- b to a dash")
print("three hyphens:", faults, repr(description), license)
assert (faults, description, license) == ([], "Convert a", None)

words = f"{'d' * 511}\n  {'d' * 512}"  # 1,024 characters with the space between the lines
for style, expected in ((">-", []), (">", ["Description exceeds 1024 character limit (1025 chars)"])):
    faults, description, license = read(f"{style}\n  {words}")
    print(f"folded with {style}:", faults, len(description))
    assert faults == expected and len(description) == 1024
PYTHON
