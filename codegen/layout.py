"""Sizes and offsets of described types, by the rules of the x86-64 System V ABI."""

from model import Alias, ApiError, Callback, CType, Enum, Handle, Struct

BUILTIN_SIZES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "uint8_t": 1, "int8_t": 1,
    "short": 2, "unsigned short": 2, "uint16_t": 2, "int16_t": 2,
    "int": 4, "unsigned int": 4, "uint32_t": 4, "int32_t": 4, "float": 4,
    "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "double": 8,
    "size_t": 8, "uint64_t": 8, "int64_t": 8, "uintptr_t": 8,
}


def resolve(api, ctype, where):
    """Follows aliases: a CType whose base is built in or a declaration that is not an alias."""
    while ctype.base in api.types and isinstance(api.types[ctype.base], Alias):
        target = api.types[ctype.base].target
        ctype = CType(target.base, ctype.const or target.const, ctype.stars + target.stars)
    if ctype.base not in api.types and ctype.base not in BUILTIN_SIZES and ctype.base != "void":
        raise ApiError(where, f"unknown type '{ctype.base}': describe it in an .api file, "
                       "or is it misspelled?")
    return ctype


def size_and_alignment(api, kind, where):
    """Of a CType or a Struct without a name."""
    if isinstance(kind, Struct):
        return struct_layout(api, kind)[:2]
    kind = resolve(api, kind, where)
    if kind.stars:
        return 8, 8
    declared = api.types.get(kind.base)
    if isinstance(declared, Struct):
        return struct_layout(api, declared)[:2]
    if isinstance(declared, Enum):
        return 4, 4
    if isinstance(declared, (Handle, Callback)):
        return 8, 8
    if kind.base == "void":
        raise ApiError(where, "a value cannot be void")
    return BUILTIN_SIZES[kind.base], BUILTIN_SIZES[kind.base]


def struct_layout(api, struct):
    """(size, alignment, [(field, offset)])"""
    size, alignment, offsets = 0, max(struct.align, 1), []
    for field in struct.fields:
        field_size, field_alignment = size_and_alignment(api, field.type, field.where)
        for length in field.dimensions:
            field_size *= length
        alignment = max(alignment, field_alignment)
        offset = 0
        if struct.kind == "struct":
            offset = -(-size // field_alignment) * field_alignment
        offsets.append((field, offset))
        size = max(size, offset + field_size)
    return -(-size // alignment) * alignment, alignment, offsets


def pointer_inside(api, struct):
    """The path of a first pointer or handle within a struct, or None: such a struct's bytes mean
    nothing to another process."""
    for field in struct.fields:
        kind = field.type
        if not isinstance(kind, Struct):
            kind = resolve(api, kind, field.where)
            declared = api.types.get(kind.base)
            if kind.stars or isinstance(declared, (Handle, Callback)):
                return field.name
            if not isinstance(declared, Struct):
                continue
            kind = declared
        inner = pointer_inside(api, kind)
        if inner:
            return f"{field.name}.{inner}" if field.name else inner
    return None
