"""Judges a description that was read, and makes the commands of the calls that travel."""

from emit_types import check_types
from layout import pointer_inside, resolve
from model import Alias, ApiError, Callback, Command, CType, Enum, Handle, Struct, WireField
from names import handler_name, struct_name

STRING_BYTES_MAX = 4096
COMMAND_BYTES_MAX = 4 << 20  # Larger things travel as bulk bytes, not as a field of a command.
INTEGERS = ("int", "unsigned int", "size_t", "unsigned long long", "long long", "uint32_t",
            "uint64_t", "int32_t", "int64_t")


def is_address(api, ctype):
    """Whether a value of this type points into device memory."""
    name = ctype.base
    while not ctype.stars and isinstance(api.types.get(name), Alias):
        if api.types[name].address:
            return True
        name = api.types[name].target.base
    return False


def is_handle(api, ctype, where):
    kind = resolve(api, ctype, where)
    return not kind.stars and isinstance(api.types.get(kind.base), Handle)


def check_wire_type(api, ctype, where, what):
    """A value of this type means the same in another process."""
    kind = resolve(api, ctype, where)
    declared = api.types.get(kind.base)
    if kind.stars or kind.base == "void" or isinstance(declared, Callback):
        raise ApiError(where, f"{what} is a pointer, which means nothing to the server")
    if isinstance(declared, Struct):
        inner = pointer_inside(api, declared)
        if inner:
            raise ApiError(where, f"{what} holds a pointer or handle ({declared.name}.{inner}); "
                           "write a hook that sends what it stands for")


def count_param(call, param):
    """The parameter that holds an array's length, or None for a fixed length."""
    if param.count.isdigit():
        return None
    for other in call.params:
        if other.name == param.count and other.role == "value":
            return other
    raise ApiError(param.where, f"the length of {param.name}, '{param.count}', is neither a number "
                   f"nor a parameter of {call.name}")


def array_field(api, call, param):
    counted = count_param(call, param)
    if counted and resolve(api, counted.type, counted.where).base not in INTEGERS:
        raise ApiError(param.where, f"the length of {param.name} must be an integer, "
                       f"{counted.name} is {counted.type}")
    limit = param.limit if counted else int(param.count)
    if limit is None:
        raise ApiError(param.where, f"array {param.name} needs a limit, as in "
                       f"{param.name}[{param.count}<=64]")
    element = CType(param.type.base, False, param.type.stars - 1)
    check_wire_type(api, element, param.where, f"an element of {param.name}")
    return WireField(param.name, "list", element, limit, param.where)


def param_field(api, call, param):
    """The field that carries one parameter, and whether it travels back."""
    where, back = param.where, param.role == "out"
    if param.role == "plain":
        raise ApiError(where, f"pointer {param.name} must say what it is: out, in, string, new, or "
                       f"an array {param.name}[count<=limit]; or make {call.name} local and "
                       "give its hook a command of its own")
    if param.role != "value" and not param.type.stars and param.role != "drop":
        raise ApiError(where, f"{param.role} {param.name} must be a pointer, it is {param.type}")
    if param.role == "string":
        if (param.type.base, param.type.stars) != ("char", 1):
            raise ApiError(where, f"string {param.name} must be const char*, it is {param.type}")
        return WireField(param.name, "string", None, STRING_BYTES_MAX, where), False
    if param.count is not None:
        if param.optional:
            raise ApiError(where, f"array {param.name} cannot be optional: an array that is not "
                           "there has no elements")
        return array_field(api, call, param), back
    if param.role in ("value", "drop"):
        check_wire_type(api, param.type, where, param.name)
        check_addresses(api, call, param)
        return WireField(param.name, "scalar", param.type, None, where), False
    pointee = CType(param.type.base, False, param.type.stars - 1)
    check_wire_type(api, pointee, where, param.name)
    optional = param.optional and param.role == "in"
    return WireField(param.name, "optional" if optional else "scalar", pointee, None, where), back


def check_addresses(api, call, param):
    if is_address(api, param.type) and not call.server_hook:
        raise ApiError(param.where, f"{param.name} is an address that the server must check: "
                       "use hook=server or hook=both, or make the call local with a command")


def command_of(api, call):
    fields, reply = [], []
    for param in call.params:
        field, back = param_field(api, call, param)
        if back and not call.waits:
            raise ApiError(param.where, f"{call.name} is a post, so nothing comes back for "
                           f"{param.name}; make it sync")
        if param.role in ("new", "drop"):
            if not is_handle(api, field.type, param.where):
                raise ApiError(param.where, f"{param.role} {param.name} must be a handle, "
                               f"it is {field.type}")
            if call.cls == "cached":
                raise ApiError(param.where, "a cached call makes and ends nothing")
        if back and field.kind != "scalar" and call.cls == "cached":
            raise ApiError(param.where, f"a cached answer has a fixed size, {param.name} has not")
        (reply if back else fields).append(field)
    return Command(call.name, struct_name(call.name), handler_name(call.name), call.waits,
                   call.has("slow"), call.has("later"), fields, reply, call.subject, call.where,
                   call)


def signature(api, call):
    return [str(resolve(api, param.type, param.where)) for param in call.params]


def check_attributes(api, call, exports):
    where, attrs = call.where, call.attrs
    if call.hook not in ("", "client", "server", "both"):
        raise ApiError(where, f"hook is client, server or both, not {call.hook}")
    if not call.on_wire:
        for name in ("hook", "slow", "later"):
            if name in attrs:
                raise ApiError(where, f"{name} is for calls with a command of their own; "
                           f"{call.name} has none")
    for name in ("same", "answer"):
        if name in attrs and call.cls != "local":
            raise ApiError(where, f"{name} is for local calls; {call.name} is {call.cls}")
    if "sync_point" in attrs and call.cls not in ("sync", "post"):
        raise ApiError(where, f"sync_point is for calls that wait; {call.name} is {call.cls}")
    if "later" in attrs and not call.server_hook:
        raise ApiError(where, "later needs a server hook, which answers when it is ready")
    if "same" in attrs:
        other = exports.get(attrs["same"])
        if other is None:
            raise ApiError(where, f"same={attrs['same']}: there is no such function")
        if signature(api, other) != signature(api, call):
            raise ApiError(where, f"same={other.name}: its parameters differ ({other.where})")
    if "answer" in attrs and attrs["answer"] not in api.types[api.family.result].values:
        raise ApiError(where, f"answer={attrs['answer']} is not a value of {api.family.result}")
    check_via(api, call)
    if api.family.versioned and "proc" not in attrs:
        raise ApiError(where, f"{call.name} needs proc=VERSION, the CUDA version that "
                       "introduced it (12030 is CUDA 12.3)")


def check_via(api, call):
    """The commands that a hook uses fit what the call's class promises."""
    declared = {command.name: command for command in api.commands if command.call is None}
    used = [declared.get(name) for name in call.attrs.get("via", [])]
    if None in used:
        name = call.attrs["via"][used.index(None)]
        raise ApiError(call.where, f"via={name}: there is no such command")
    waiting = [command.name for command in used if command.waits]
    if call.cls == "post" and used and len(waiting) == len(used):
        raise ApiError(call.where, f"{call.name} is a post, but each of its commands waits")
    if call.cls in ("sync", "cached") and used and not waiting:
        raise ApiError(call.where, f"{call.name} is {call.cls}, but none of its commands waits")
    if call.cls in ("local", "refused") and used:
        raise ApiError(call.where, f"{call.name} is {call.cls}, so it uses no command; "
                       "make it sync or post")


def check_call(api, call, exports):
    for export in call.exports:
        if export in exports:
            raise ApiError(call.where, f"{export} is described already at {exports[export].where}")
        exports[export] = call
    names = [param.name for param in call.params]
    for param in call.params:
        if names.count(param.name) > 1:
            raise ApiError(param.where, f"two parameters are called {param.name}")
        kind = resolve(api, param.type, param.where)
        if kind.base == "void" and not kind.stars:
            raise ApiError(param.where, f"parameter {param.name} cannot be void")


def check_command(api, command, taken):
    for key in (command.struct, command.handler):
        if key in taken:
            raise ApiError(command.where, f"{key} is taken by {taken[key]}")
        taken[key] = command.where
    for field in command.fields + command.reply:
        if field.kind in ("scalar", "optional", "list"):
            check_wire_type(api, field.type, field.where, field.name)
        if field.limit is not None and not 0 < field.limit <= COMMAND_BYTES_MAX:
            raise ApiError(field.where, f"the limit of {field.name} must be 1 to "
                           f"{COMMAND_BYTES_MAX}, it is {field.limit}")
    for fields in (command.fields, command.reply):
        names = [field.name for field in fields]
        for field in fields:
            if names.count(field.name) > 1:
                raise ApiError(field.where, f"two fields are called {field.name}")
    if command.reply and not command.waits:
        raise ApiError(command.where, f"{command.name} is a post and cannot answer; make it sync")


def check_values(api):
    taken = {}
    for declared in list(api.types.values()) + list(api.constants.values()):
        names = list(declared.values) if isinstance(declared, Enum) else []
        for name in names + [declared.name]:
            if name in taken and taken[name] is not declared:
                raise ApiError(declared.where, f"{name} is described already at "
                               f"{taken[name].where}")
            taken[name] = declared


def check(api):
    """Raises ApiError for the first mistake; adds the commands of calls to api.commands."""
    check_types(api)
    check_values(api)
    exports, taken = {}, {}
    for call in api.calls:
        check_call(api, call, exports)
    for call in api.calls:
        check_attributes(api, call, exports)
        if call.on_wire:
            api.commands.append(command_of(api, call))
    for command in api.commands:
        check_command(api, command, taken)
