#!/usr/bin/env python3
"""Every function that nvml.h declares is described: NAMES HEADER

NAMES is the generated list of exports. Functions that are described and not declared are those of
other releases, or undocumented ones.
"""

import re
import sys


def declared(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.S)
    return set(re.findall(r"\bDECLDIR\s+(nvml[A-Z]\w*)\s*\(", text))


def main(arguments):
    with open(arguments[0], encoding="utf-8") as file:
        described = set(file.read().split())
    names = declared(arguments[1])
    missing = sorted(names - described)
    for name in missing:
        print(f"not described: {name}")
    print(f"{len(names)} declared, {len(missing)} of them not described")
    return 1 if missing or len(names) < 100 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
