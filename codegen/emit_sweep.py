"""Writes tests/sweep.inc: every call that is not refused, with its parameters, as a test needs them
that makes each call with one argument after the other changed (tests/conformance/sweep_calls.h)."""

from layout import resolve, size_and_alignment, struct_layout
from model import Callback, Enum, Handle, Struct
from text import banner

HEAD = """
// SWEEP_ENUM_VALUE(enum, value). SWEEP_FIELD(struct, path, offset, bytes, kind, type).
// SWEEP_PARAMETER(kind, type, name, stars, is_const), in order; SWEEP_CALL(export, call, first
// parameter, how many parameters).
"""

KINDS = ((Enum, "kEnum"), (Handle, "kHandle"), (Callback, "kCallback"), (Struct, "kStruct"))


def kind_of(api, ctype, where):
    """(kind, the name by which values are chosen, stars)."""
    resolved = resolve(api, ctype, where)
    declared = api.types.get(resolved.base)
    name = resolved.base if declared else ctype.base
    if resolved.stars:
        return "kPointer", name, resolved.stars
    for model, kind in KINDS:
        if isinstance(declared, model):
            return kind, name, 0
    return ("kFloat" if resolved.base in ("float", "double") else "kInteger"), name, 0


def fields(api, struct, name, prefix="", base=0):
    """A row for each member that has a value of its own; a union is one value."""
    rows = []
    for field, offset in struct_layout(api, struct)[2]:
        size = size_and_alignment(api, field.type, field.where)[0]
        path = f"{prefix}{field.name or 'union'}"
        inner = field.type
        if not isinstance(inner, Struct):
            resolved = resolve(api, inner, field.where)
            inner = None if resolved.stars else api.types.get(resolved.base)
        if field.dimensions or (isinstance(inner, Struct) and inner.kind == "union"):
            for length in field.dimensions:
                size *= length
            rows.append((name, path, base + offset, size, "kStruct", ""))
        elif isinstance(inner, Struct):
            rows += fields(api, inner, name, f"{path}.", base + offset)
        else:
            kind, type_name, _ = kind_of(api, field.type, field.where)
            rows.append((name, path, base + offset, size, kind, type_name))
    return rows


def rows(api):
    """(parameters, calls, the names of the types that parameters have)."""
    parameters, calls, used = [], [], set()
    for call in api.calls:
        if call.cls == "refused" or call.bare:
            continue
        first = len(parameters)
        for param in call.params:
            kind, name, stars = kind_of(api, param.type, param.where)
            used.add(name)
            const = "true" if param.type.const else "false"
            parameters.append(f"SWEEP_PARAMETER({kind}, \"{name}\", \"{param.name}\", {stars}, "
                              f"{const})")
        calls.append(f"// {call.where}")
        calls += [f"SWEEP_CALL({export}, {call.name}, {first}, {len(call.params)})"
                  for export in call.exports]
    return parameters, calls, used


def sweep(api):
    parameters, calls, used = rows(api)
    members = [row for name in sorted(used) if isinstance(api.types.get(name), Struct)
               for row in fields(api, api.types[name], name)]
    used |= {row[5] for row in members}
    values = [f"SWEEP_ENUM_VALUE(\"{name}\", {value})" for name in sorted(used)
              if isinstance(api.types.get(name), Enum)
              for value in dict.fromkeys(int(text, 0) for text in api.types[name].values.values())]
    out = [banner("Every call that is not refused, as a sweep over its arguments needs it.") + HEAD]
    for macro, lines in (("ENUM_VALUE", values), ("FIELD", [
            f"SWEEP_FIELD(\"{name}\", \"{path}\", {offset}, {size}, {kind}, \"{type_name}\")"
            for name, path, offset, size, kind, type_name in members]),
            ("PARAMETER", parameters), ("CALL", calls)):
        out += [f"#ifdef SWEEP_{macro}"] + lines + ["#endif"]
    return "\n".join(out) + "\n"
