"""Writes cuda/types.h, every described type under its CUDA name, and cuda/functions.h, every
export's prototype. Both are usable from C and C++."""

from layout import resolve, struct_layout
from model import Alias, ApiError, Callback, Enum, Handle, Struct
from text import banner, wrap_call

TYPES_HEAD = """\
#pragma once

#include <stddef.h>
#include <stdint.h>

// In C++ an enum gets its underlying type, so that a value nobody named is still a value.
#ifdef __cplusplus
#define FLYT_ENUM(type) : type
#define FLYT_ALIGN(bytes) alignas(bytes)
#else
#define FLYT_ENUM(type)
#define FLYT_ALIGN(bytes) _Alignas(bytes)
#endif
"""

TYPES_FOOT = """\
#undef FLYT_ENUM
#undef FLYT_ALIGN
"""


def declare(kind, name):
    """A parameter or member: `CUevent event`, `const char* name`, `void`."""
    return f"{kind} {name}" if name else str(kind)


def render_fields(struct, indent):
    lines = []
    for position, field in enumerate(struct.fields):
        lengths = "".join(f"[{length}]" for length in field.dimensions)
        if isinstance(field.type, Struct):
            tag = f"{field.type.tag} " if field.type.tag else ""
            lines.append(f"{indent}{field.type.kind} {tag}{{")
            lines += render_fields(field.type, indent + "  ")
            lines.append(f"{indent}}}{' ' + field.name if field.name else ''}{lengths};")
        else:
            align = f"FLYT_ALIGN({struct.align}) " if struct.align and position == 0 else ""
            lines.append(f"{indent}{align}{field.type} {field.name}{lengths};")
    return lines


def render_enum(enum):
    values = [int(value, 0) for value in enum.values.values()]
    underlying = "int" if min(values, default=0) < 0 else "unsigned int"
    tag = f"{enum.tag} " if enum.tag else ""
    lines = [f"typedef enum {tag}FLYT_ENUM({underlying}) {{"]
    lines += [f"  {name} = {value}," for name, value in enum.values.items()]
    return lines + [f"}} {enum.name};"]


def render_struct(api, struct):
    size, _, offsets = struct_layout(api, struct)
    tag = f"{struct.tag} " if struct.tag else ""
    lines = [f"typedef {struct.kind} {tag}{{"] + render_fields(struct, "  ")
    lines.append(f"}} {struct.name};")
    checks = [f"static_assert(sizeof({struct.name}) == {size}, \"{struct.where}\");"]
    for field, offset in offsets:
        if field.name and struct.kind == "struct":
            checks.append(f"static_assert(offsetof({struct.name}, {field.name}) == {offset}, "
                          f"\"{field.where}\");")
    return lines + ["#ifdef __cplusplus"] + checks + ["#endif"]


def render_type(api, declared):
    if isinstance(declared, Alias):
        return [f"typedef {declared.target} {declared.name};"]
    if isinstance(declared, Handle):
        return [f"typedef struct {declared.tag}* {declared.name};"]
    if isinstance(declared, Enum):
        return render_enum(declared)
    if isinstance(declared, Struct):
        return render_struct(api, declared)
    params = ", ".join(declare(param.type, param.name) for param in declared.params)
    return [f"typedef {declared.result} (*{declared.name})({params or 'void'});"]


def named_within(kind):
    """The types that must be known before `kind` is declared."""
    if isinstance(kind, Alias):
        return [kind.target.base]
    if isinstance(kind, Callback):
        return [kind.result.base] + [param.type.base for param in kind.params]
    if isinstance(kind, Struct):
        found = []
        for field in kind.fields:
            if isinstance(field.type, Struct):
                found += named_within(field.type)
            else:
                found.append(field.type.base)
        return found
    return []


def in_order(api):
    """Every type after those that it names; otherwise as described."""
    done, ordered = set(), []

    def visit(declared):
        if declared.name in done:
            return
        done.add(declared.name)
        for name in named_within(declared):
            if name in api.types:
                visit(api.types[name])
        ordered.append(declared)

    for declared in api.types.values():
        visit(declared)
    return ordered


def types_header(api):
    out = [banner(f"Types of {api.family.title}, under their own names."), TYPES_HEAD]
    for declared in in_order(api):
        out.append(f"// {declared.where}")
        out += render_type(api, declared)
        if isinstance(declared, (Enum, Struct)):
            out.append("")
    out.append("")
    for constant in api.constants.values():
        value = constant.value
        value = value if value.replace("_", "").isalnum() else f"({value})"
        out.append(f"#define {constant.name} {value}")
    return "\n".join(out) + "\n\n" + TYPES_FOOT


def parameter_list(call):
    return [declare(param.type, param.name) for param in call.params]


def functions_header(api):
    out = [banner(f"Prototypes of every function that {api.family.loaded} exports."),
           f"#pragma once\n\n#include \"{api.family.folder}/types.h\"\n",
           "// Defined in one library, they are what that library shows to the world.\n"
           "#pragma GCC visibility push(default)\n"
           "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"]
    for subject in api.subjects:
        calls = [call for call in api.calls_of(subject) if not call.by_hand]
        if not calls:
            continue
        out.append(f"// {api.files[subject]}")
        for call in calls:
            for export in call.exports:
                params = parameter_list(call) or ["void"]
                out.append(wrap_call(f"{api.family.result} {export}(", params, ");"))
        out.append("")
    out.append("#ifdef __cplusplus\n}  // extern \"C\"\n#endif\n#pragma GCC visibility pop")
    return "\n".join(out) + "\n"


def refuse_flags(struct):
    """A struct may come from a peer as raw bytes, and not every byte is a bool."""
    for field in struct.fields:
        if isinstance(field.type, Struct):
            refuse_flags(field.type)
        elif field.type.base == "bool":
            raise ApiError(field.where, f"member {field.name} cannot be bool; use unsigned char")


def check_types(api):
    """Every name that a type uses is described; layouts can be computed."""
    for declared in api.types.values():
        if isinstance(declared, Struct):
            struct_layout(api, declared)
            refuse_flags(declared)
        if isinstance(declared, Alias):
            resolve(api, declared.target, declared.where)
        if isinstance(declared, Callback):
            for param in declared.params:
                resolve(api, param.type, param.where)
