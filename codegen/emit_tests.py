"""Writes what tests read: tests/facts.inc, compiled against our types and against cuda.h;
tests/exports.txt, the names that libraries must show; tests/sweep.inc (emit_sweep.py);
seeds/commands_fuzz/*, one valid input each."""

import struct

from emit_sweep import sweep
from family import CUDA
from layout import BUILTIN_SIZES, resolve, size_and_alignment
from model import Enum, Handle, Struct
from text import banner

FACTS_HEAD = """
// FACT_VALUE(name): an enum value or constant. FACT_TYPE(name): a type's size and alignment.
// FACT_MEMBER(type, path): a member's offset and type. FACT_FUNCTION(name): a prototype.
"""


def member_paths(struct_type, prefix=""):
    """Every member that has a name, through structs without one."""
    paths = []
    for field in struct_type.fields:
        path = f"{prefix}{field.name}" if field.name else prefix.rstrip(".")
        if field.name:
            paths.append(path)
        if isinstance(field.type, Struct) and not field.dimensions:
            paths += member_paths(field.type, f"{path}." if path else "")
    return paths


def facts(api):
    out = [banner("What is described, as facts that can be compared.") + FACTS_HEAD]
    for declared in api.types.values():
        out.append(f"FACT_TYPE({declared.name})")
        if isinstance(declared, Enum):
            out += [f"FACT_VALUE({name})" for name in declared.values]
        if isinstance(declared, Struct):
            out += [f"FACT_MEMBER({declared.name}, {path})" for path in member_paths(declared)]
    out += [f"FACT_VALUE({name})" for name in api.constants]
    out += [f"FACT_FUNCTION({export})" for call in api.calls if not call.bare
            for export in call.exports]
    return "\n".join(out) + "\n"


def exports(api):
    return "\n".join(sorted(export for call in api.calls for export in call.exports)) + "\n"


def sample_bytes(api, field):
    """A plausible encoding of one field."""
    if field.kind in ("string", "bytes"):
        text = b"kernel"[:field.limit]
        return struct.pack("<I", len(text)) + text
    size = 8
    kind = resolve(api, field.type, field.where)
    if not isinstance(api.types.get(kind.base), Handle):
        size = size_and_alignment(api, field.type, field.where)[0]
    value = (b"\x01" if kind.base in BUILTIN_SIZES else b"\x10").ljust(size, b"\x00")
    if field.kind == "list":
        return struct.pack("<I", 1) + value
    return b"\x01" + value if field.kind == "optional" else value


def seed(api, command):
    """The input of codegen/tests/commands_fuzz.cc: an op and a payload."""
    payload = b"".join(sample_bytes(api, field) for field in command.fields)
    return struct.pack("<H", command.op) + payload


def files(api):
    prefix = "" if api.family is CUDA else f"{api.family.folder}_"
    found = {f"tests/{prefix}facts.inc": facts(api), f"tests/{prefix}exports.txt": exports(api)}
    if api.family is CUDA:
        found["tests/sweep.inc"] = sweep(api)
    for command in api.commands:
        found[f"seeds/commands_fuzz/{command.handler}"] = seed(api, command)
    return found
