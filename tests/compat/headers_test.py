#!/usr/bin/env python3
"""Everything that CUDA's headers declare is described: FACTS COMPILER HEADER ...

FACTS is the generated list of what is described. Compared are the names of functions, of enum
values and of types; abi_test compares what they are.
"""

import os
import re
import subprocess
import sys


def preprocessed(compiler, headers):
    """The headers with every version of every function asked for, without comments and macros."""
    command = [compiler, "-E", "-P", "-x", "c", "-I", os.path.dirname(headers[0]),
               "-D__CUDA_API_VERSION_INTERNAL", "-D__CUDA_API_VERSION_INTERNAL_ODR"]
    for header in headers:
        command += ["-include", header]
    return subprocess.run(command + ["/dev/null"], check=True, capture_output=True,
                          text=True).stdout


def declared(text):
    """The names of functions, enum values and types."""
    functions = set(re.findall(r"\bCUresult\s+(cu\w+)\s*\(", text))
    values = set()
    for body in re.findall(r"\benum\b[^{};]*\{([^}]*)\}", text):
        values |= set(re.findall(r"\b(CU\w+)\s*(?:=[^,]*)?(?:,|$)", body))
    types = set(re.findall(r"\}\s*(CU\w+)\s*;", text))
    types |= set(re.findall(r"\btypedef\s[^;{}()]*\b(CU\w+|cu\w+)\s*;", text))
    types |= set(re.findall(r"\btypedef\s[^;{}]*\(\s*\*\s*(CU\w+)\s*\)", text))
    return {"FUNCTION": functions, "VALUE": values, "TYPE": types}


def described(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return {kind: set(re.findall(rf"^FACT_{kind}\((\w+)\)", text, re.M))
            for kind in ("FUNCTION", "VALUE", "TYPE")}


def main(arguments):
    ours, theirs = described(arguments[0]), declared(preprocessed(arguments[1], arguments[2:]))
    missing = 0
    for kind, names in theirs.items():
        print(f"{kind.lower()}: {len(names)} declared, {len(ours[kind])} described")
        for name in sorted(names - ours[kind]):
            print(f"not described: {name}")
            missing += 1
    few = min(len(names) for names in theirs.values()) < 200
    extra = ours["FUNCTION"] - theirs["FUNCTION"]
    for name in sorted(extra):
        print(f"declared nowhere: {name}")
    return 1 if missing or extra or few else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
