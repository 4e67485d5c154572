#!/usr/bin/env python3
"""Writes everything that follows from api/: run by the build, and by hand with --out or --check.

Only files whose content changes are written, so that a build recompiles what it must.
"""

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "codegen"))

import artefacts  # noqa: E402
import lock  # noqa: E402
from model import ApiError  # noqa: E402


def load(root):
    """The checked descriptions under root/api, with op numbers from root/api/api.lock."""
    api = lock.unnumbered(root)
    lock.apply(api, os.path.join(root, "api", "api.lock"))
    return api


def write_if_changed(path, content):
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=ROOT, help="the folder that holds api/")
    parser.add_argument("--out", help="the folder to write into")
    parser.add_argument("--stamp", help="a file to touch when done")
    parser.add_argument("--list", action="store_true", help="print the paths that --out writes")
    parser.add_argument("--docs", action="store_true",
                        help="renew the pages of what each function does")
    parser.add_argument("--check", action="store_true", help="only judge the description")
    options = parser.parse_args()
    try:
        api = load(options.root)
        files = artefacts.render(api)
    except ApiError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.list:
        print("\n".join(sorted(files)))
    if options.docs:
        for page in (each.family.page for each in api.together if each.family.exports):
            write_if_changed(os.path.join(options.root, page), files[page])
    if options.check:
        print("the description is consistent")
    if options.out:
        for path, content in files.items():
            write_if_changed(os.path.join(options.out, path), content)
    if options.stamp:
        with open(options.stamp, "w", encoding="utf-8"):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
