#!/usr/bin/env python3
"""Op numbers and the shapes they stand for: api/api.lock, append-only.

A line is `NUMBER NAME SHAPE`. A number keeps its shape for ever: a command that changes its fields
gets a new number, and the old line stays, marked `retired`.
"""

import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from layout import BUILTIN_SIZES, resolve, struct_layout  # noqa: E402
from model import ApiError, Enum, Handle, Struct, Where  # noqa: E402

OP_MIN = 16  # Smaller numbers are the protocol's own.
OP_MAX = 65535
UNRELEASED = "# unreleased"
HEADER = """\
# Op numbers of the wire protocol. Append-only: python3 codegen/lock.py --append
# NUMBER NAME SHAPE; shapes are explained in docs/api-format.md.
"""


def type_shape(api, ctype, where):
    kind = resolve(api, ctype, where)
    declared = api.types.get(kind.base)
    if isinstance(declared, Handle):
        return "handle"
    if isinstance(declared, Enum):
        return "e4"
    if isinstance(declared, Struct):
        members = ",".join(
            f"{offset}:{member_shape(api, field)}"
            for field, offset in struct_layout(api, declared)[2])
        return f"{{{struct_layout(api, declared)[0]}:{members}}}"
    if kind.base in ("float", "double"):
        return f"f{BUILTIN_SIZES[kind.base]}"
    if kind.base == "bool":
        return "b1"
    signed = kind.base in ("char", "signed char", "short", "int", "long", "long long") or \
        re.match(r"int\d", kind.base)
    return f"{'i' if signed else 'u'}{BUILTIN_SIZES[kind.base]}"


def member_shape(api, field):
    lengths = "".join(f"*{length}" for length in field.dimensions)
    if isinstance(field.type, Struct):
        members = ",".join(f"{offset}:{member_shape(api, inner)}"
                           for inner, offset in struct_layout(api, field.type)[2])
        return f"{{{members}}}{lengths}"
    return type_shape(api, field.type, field.where) + lengths


def field_shape(api, field):
    if field.kind == "scalar":
        return type_shape(api, field.type, field.where)
    if field.kind == "optional":
        return type_shape(api, field.type, field.where) + "?"
    if field.kind == "list":
        return f"{type_shape(api, field.type, field.where)}[{field.limit}]"
    return f"{field.kind}[{field.limit}]"


def shape(api, command):
    """What must not change under one number: kind, field types and limits, in order."""
    fields = ";".join(field_shape(api, field) for field in command.fields)
    reply = ";".join(field_shape(api, field) for field in command.reply)
    return f"{'sync' if command.waits else 'post'}({fields})" + (
        f"->({reply})" if command.waits else "")


def shapes(api):
    """[(command, shape)] of all descriptions that share the numbers."""
    return [(command, shape(each, command)) for each in api.together for command in each.commands]


def read(path):
    """{name: (number, shape, place)} and the last number; numbers rise and are used once."""
    rows, last = {}, OP_MIN - 1
    shown = os.path.join("api", os.path.basename(path))
    if not os.path.exists(path):
        return rows, last
    with open(path, encoding="utf-8") as file:
        for line_number, line in enumerate(file, 1):
            text = line.split("#")[0].split()
            if not text:
                continue
            where = Where(shown, line_number)
            formed = len(text) >= 3 and text[0].isdigit() and text[3:] in ([], ["retired"])
            if not formed:
                raise ApiError(where, "expected NUMBER NAME SHAPE [retired]")
            number, name = int(text[0]), text[1]
            if number <= last or number > OP_MAX:
                raise ApiError(where, f"number {number} is not above {last}: numbers rise and are "
                               "never used again")
            last = number
            if text[3:]:
                continue
            if name in rows:
                raise ApiError(where, f"{name} is there twice; retire the older line")
            rows[name] = (number, text[2], where)
    return rows, last


def unreleased(path):
    """Whether the lock says that no release has used its numbers yet: they may still change."""
    with open(path, encoding="utf-8") as file:
        return any(line.startswith(UNRELEASED) for line in file)


def apply(api, path):
    """Gives every command its number, or says what the lock does not agree with."""
    rows, _ = read(path)
    if unreleased(path):
        rows = {command.name: (number, locked, command.where)
                for number, (command, locked) in enumerate(shapes(api), OP_MIN)}
    seen = set()
    for command, now in shapes(api):
        if command.name not in rows:
            raise ApiError(command.where, f"{command.name} has no op number: "
                           "run python3 codegen/lock.py --append")
        number, locked, where = rows[command.name]
        if locked != now:
            raise ApiError(command.where, f"{command.name} changed its shape from {locked} to "
                           f"{now} under op {number} ({where}): an encoding never "
                           "changes; run python3 codegen/lock.py --append to give the new shape a "
                           "new number")
        command.op = number
        if command.call:
            command.call.op = number
        seen.add(command.name)
    for name, (number, _, where) in rows.items():
        if name not in seen:
            raise ApiError(where, f"op {number}, {name}, is described nowhere: "
                           "run python3 codegen/lock.py --append to retire it")
    for each in api.together:
        each.commands.sort(key=lambda command: command.op)


def write(path, lines, keep_mark=True):
    mark = f"{UNRELEASED}: numbers may still change; remove this line to fix them\n"
    head = HEADER + (mark if keep_mark and os.path.exists(path) and unreleased(path) else "")
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + "".join(line + "\n" for line in lines))


def append(api, path):
    """Numbers what is new; retires lines whose command is gone or has another shape now."""
    rows, last = read(path)
    described = {command.name: text for command, text in shapes(api)}
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.split("#")[0].split()]
    kept = set()
    for position, line in enumerate(lines):
        _, name, locked = line.split()[:3]
        if not line.endswith(" retired"):
            if described.get(name) == locked:
                kept.add(name)
            else:
                lines[position] = line + " retired"
    for name, text in described.items():
        if name not in kept:
            last += 1
            lines.append(f"{last} {name} {text}")
    write(path, lines)


def renew(api, path, keep_mark=True):
    """Numbers everything afresh: only before a first release."""
    write(path, [f"{number} {command.name} {text}"
                 for number, (command, text) in enumerate(shapes(api), OP_MIN)], keep_mark)


def freeze(api, path):
    """Numbers everything a last time; from now on the lock is append-only."""
    renew(api, path, keep_mark=False)


def unnumbered(root):
    """The checked descriptions under root/api, without op numbers."""
    import check
    import family
    import reader
    api = reader.parse_folder(os.path.join(root, "api", "cuda"), root)
    check.check(api)
    for other in family.OTHERS:
        folder = os.path.join(root, "api", other.folder)
        if os.path.isdir(folder):
            api.others.append(reader.parse_folder(folder, root, other))
            check.check(api.others[-1])
    return api


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(
        os.path.abspath(__file__))))
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--append", action="store_true",
                        help="number new commands, retire the lines of changed and gone ones")
    action.add_argument("--renew", action="store_true", help="renumber all (before a release only)")
    action.add_argument("--freeze", action="store_true",
                        help="renumber a last time and end the unreleased state")
    options = parser.parse_args()
    path = os.path.join(options.root, "api", "api.lock")
    try:
        action = append if options.append else freeze if options.freeze else renew
        action(unnumbered(options.root), path)
    except ApiError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
