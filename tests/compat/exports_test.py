#!/usr/bin/env python3
"""A shared library shows exactly the described functions: LIBRARY NAMES [EXTRA ...].

LIBRARY is read with nm; NAMES is a file with one name a line, or the generated facts, whose
functions are those that cuda.h declares; EXTRA names are shown as well.
"""

import re
import subprocess
import sys


NAMES_MIN = 300  # Fewer are a list that was not read.


def exported(library):
    """The names of all defined dynamic symbols."""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def names_of(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    facts = re.findall(r"^FACT_FUNCTION\((\w+)\)", text, re.M)
    return set(facts or text.split())


def main(arguments):
    wanted = names_of(arguments[1]) | set(arguments[2:])
    found = exported(arguments[0])
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    for name in missing:
        print(f"missing: {name}")
    for name in extra:
        print(f"not described: {name}")
    print(f"{len(found)} names, {len(missing)} missing, {len(extra)} not described")
    return 1 if missing or extra or len(wanted) < NAMES_MIN else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
