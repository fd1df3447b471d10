"""Writes cases.jsonl for one task of your own copy of VeriBench: python importing.py PROGRAM.py [TESTS.lean]"""

import json
import sys
from pathlib import Path


def main(program, tests=""):
    info = {"python": Path(program).read_text(encoding="utf-8")}
    if tests:
        info["tests"] = Path(tests).read_text(encoding="utf-8")
    row = json.dumps({"id": Path(program).stem, "input": info["python"], "info": info}, ensure_ascii=False)
    Path(__file__).with_name("cases.jsonl").write_text(row + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
