"""Reads .api files into the model. The format is docs/api-format.md.

A statement starts in the first column; indented lines and a closing brace continue it.
"""

import os
import re

from family import CUDA
from model import (Alias, Api, ApiError, Call, Callback, Command, Constant, CType, Enum, Field,
                   Handle, Param, Struct, Where, WireField)
from names import camel

CLASSES = ("sync", "post", "cached", "local", "refused")
TYPE_WORDS = ("constant", "alias", "address", "handle", "enum", "struct", "union", "callback")
BUILTIN_WORDS = {"void", "char", "signed", "unsigned", "short", "int", "long", "float", "double"}
CALL_FLAGS = {"slow", "later", "noctx", "before_init", "in_callback", "sync_point"}
CALL_VALUES = {"hook", "ptsz", "ptds", "proc", "same", "answer", "via"}
COMMAND_FLAGS = {"slow", "later"}
WIRE_SCALARS = {
    "bool": "bool", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "i32": "int32_t", "i64": "int64_t", "f32": "float", "f64": "double",
}
TOKEN = re.compile(r'\s*(?:("[^"]*")|([A-Za-z_]\w*)|(-?0[xX][0-9a-fA-F]+|-?\d+)|(->|<=|.))')


class Statement:
    """The tokens of one statement, taken from the front."""

    def __init__(self, lines, where):
        self.lines = lines  # [(line number, text)]
        self.where = where
        self.tokens = []  # [(text, line number)]
        for number, text in lines:
            position = 0
            text = text.rstrip()
            while position < len(text):
                match = TOKEN.match(text, position)
                self.tokens.append((match.group(0).strip(), number))
                position = match.end()
        self.next = 0

    def place(self):
        index = min(self.next, len(self.tokens) - 1)
        return Where(self.where.file, self.tokens[index][1])

    def peek(self, ahead=0):
        index = self.next + ahead
        return self.tokens[index][0] if index < len(self.tokens) else ""

    def take(self):
        token = self.peek()
        self.next += 1
        return token

    def accept(self, token):
        if self.peek() != token:
            return False
        self.next += 1
        return True

    def expect(self, token, after):
        if not self.accept(token):
            found = f"'{self.peek()}'" if self.peek() else "the end of the statement"
            self.fail(f"expected '{token}' after {after}, found {found}")

    def name(self, what):
        if not re.fullmatch(r"[A-Za-z_]\w*", self.peek()):
            found = f"'{self.peek()}'" if self.peek() else "the end of the statement"
            self.fail(f"expected {what}, found {found}")
        return self.take()

    def number(self, what):
        if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", self.peek()):
            self.fail(f"expected {what} (a number), found '{self.peek()}'")
        return int(self.take(), 0)

    def end(self):
        if self.peek():
            self.fail(f"nothing was expected here, found '{self.peek()}'")

    def fail(self, message):
        raise ApiError(self.place(), message)


def statements(path, shown):
    """Cuts a file into statements; '#' starts a comment outside of quotes."""
    found, current = [], []
    with open(path, encoding="utf-8") as file:
        for number, raw in enumerate(file, 1):
            text = re.sub(r'#(?=(?:[^"]*"[^"]*")*[^"]*$).*', "", raw.rstrip("\n")).rstrip()
            if not text:
                continue
            continues = text[0] in " \t" or text[0] == "}"
            if continues and not current:
                raise ApiError(Where(shown, number), "an indented line continues nothing")
            if not continues and current:
                found.append(current)
                current = []
            current.append((number, text))
    if current:
        found.append(current)
    return [Statement(lines, Where(shown, lines[0][0])) for lines in found]


def parse_ctype(statement, what):
    """const unsigned long long** and the like."""
    const = statement.accept("const")
    words = [statement.name(what)]
    while words[-1] in BUILTIN_WORDS and statement.peek() in BUILTIN_WORDS:
        words.append(statement.take())
    if words == ["unsigned"]:
        words.append("int")
    stars = 0
    while statement.accept("*"):
        stars += 1
    return CType(" ".join(words), const, stars)


def parse_tag(statement):
    if statement.peek() == "tag" and statement.peek(1) == "=":
        statement.take()
        statement.take()
        return statement.name("a tag")
    return None


def parse_fields(statement):
    fields = []
    while not statement.accept("}"):
        where = statement.place()
        if statement.peek() in ("struct", "union"):
            kind, tag = statement.take(), parse_tag(statement)
            statement.expect("{", f"an inner {kind}")
            kind = Struct(kind, None, tag, 0, parse_fields(statement), where)
            # A name on the closing brace's line names the member; otherwise it is anonymous.
            closing = statement.tokens[statement.next - 1][1]
            named = statement.peek() not in ("", "}") and statement.place().line == closing
            name = statement.name("a member's name") if named else None
        elif not statement.peek():
            statement.fail("expected '}' at the end of the struct")
        else:
            kind = parse_ctype(statement, "a member's type")
            name = statement.name("a member's name")
        dimensions = []
        while statement.accept("["):
            dimensions.append(statement.number("an array's length"))
            statement.expect("]", "an array's length")
        fields.append(Field(name, kind, dimensions, where))
    return fields


def parse_enum(statement, where):
    name = statement.name("the enum's name")
    tag = parse_tag(statement)
    statement.expect("{", "the enum's name")
    values = {}
    while not statement.accept("}"):
        value_name = statement.name("the name of an enum value, or '}'")
        if value_name in values:
            statement.fail(f"{value_name} is there twice")
        statement.expect("=", value_name)
        place = statement.tokens[statement.next][0] if statement.peek() else ""
        statement.number(f"the value of {value_name}")
        values[value_name] = place
    return Enum(name, tag, values, where)


def parse_struct(statement, kind, where):
    name = statement.name(f"the {kind}'s name")
    tag, align = parse_tag(statement), 0
    if statement.peek() == "align":
        statement.take()
        statement.expect("=", "align")
        align = statement.number("an alignment")
    statement.expect("{", f"the {kind}'s name")
    return Struct(kind, name, tag, align, parse_fields(statement), where)


def parse_type(statement, word):
    where = statement.where
    if word == "constant":
        name = statement.name("the constant's name")
        statement.expect("=", name)
        value = " ".join(text for text, _ in statement.tokens[statement.next:])
        if not value:
            statement.fail(f"expected the value of {name}")
        statement.next = len(statement.tokens)
        return Constant(name, re.sub(r" ?([()*]) ?", r"\1", value), where)
    if word in ("alias", "address"):
        name = statement.name("the new name")
        statement.expect("=", name)
        return Alias(name, parse_ctype(statement, "a type"), word == "address", where)
    if word == "handle":
        name = statement.name("the handle's name")
        return Handle(name, parse_tag(statement) or f"{name}_st", where)
    if word == "enum":
        return parse_enum(statement, where)
    if word == "callback":
        result = parse_ctype(statement, "the callback's result")
        name = statement.name("the callback's name")
        return Callback(name, result, parse_params(statement, name), where)
    return parse_struct(statement, word, where)


def parse_param(statement):
    where, role, optional = statement.place(), None, False
    if statement.peek() in ("out", "in", "string", "new", "drop"):
        role = statement.take()
        optional = statement.accept("?")
    kind = parse_ctype(statement, "a parameter's type")
    name = statement.name("a parameter's name")
    count = limit = None
    if statement.accept("["):
        count = statement.take()
        if statement.accept("<="):
            limit = statement.number("the most elements of the array")
        statement.expect("]", "the array's length")
    if role is None:
        role = "plain" if kind.stars else "value"
    if count is not None:
        kind = CType(kind.base, kind.const, kind.stars + 1)
    return Param(name, kind, role, optional, count, limit, where)


def parse_params(statement, name):
    statement.expect("(", name)
    params = []
    if statement.accept(")"):
        return params
    while True:
        params.append(parse_param(statement))
        if statement.accept(")"):
            return params
        statement.expect(",", f"parameter {params[-1].name}")


def parse_attributes(statement, flags, values):
    attrs = {}
    if not statement.accept(":"):
        statement.end()
        return attrs
    while statement.peek():
        name = statement.name("an attribute")
        if name in attrs:
            statement.fail(f"attribute {name} is there twice")
        if name in flags:
            attrs[name] = True
        elif name in values:
            attrs[name] = parse_value(statement, name)
        else:
            known = ", ".join(sorted(flags | values))
            statement.fail(f"unknown attribute '{name}'; there are: {known}")
    return attrs


def parse_value(statement, name):
    if name in ("ptsz", "ptds") and statement.peek() != "=":
        return None  # Introduced together with the call itself.
    statement.expect("=", f"attribute {name}")
    if name in ("ptsz", "ptds"):
        return statement.number(f"the CUDA version that introduced _{name}")
    if name == "via":
        commands = [statement.name("a command")]
        while statement.accept(","):
            commands.append(statement.name("a command"))
        return commands
    if name != "proc":
        return statement.name(f"the value of {name}")
    rows = []
    while True:
        version = statement.number("a CUDA version such as 12030")
        other = statement.name("another name") if statement.accept(":") else None
        rows.append((version, other))
        if not statement.accept(","):
            return rows


def parse_wire_type(statement):
    """bool u8 .. f64, a described type, bytes<=N, string<=N, T[]<=N."""
    where = statement.place()
    word = statement.name("a type")
    if word in ("bytes", "string"):
        statement.expect("<=", f"{word} (which needs a limit)")
        return word, None, statement.number(f"the most bytes of {word}"), where
    optional = statement.accept("?")
    kind = CType(WIRE_SCALARS.get(word, word))
    if statement.accept("["):
        statement.expect("]", "'['")
        statement.expect("<=", f"{word}[] (which needs a limit)")
        return "list", kind, statement.number("the most elements"), where
    return ("optional" if optional else "scalar"), kind, None, where


def parse_wire_fields(statement, after):
    statement.expect("(", after)
    fields = []
    if statement.accept(")"):
        return fields
    while True:
        kind, ctype, limit, where = parse_wire_type(statement)
        name = statement.name("a field's name")
        fields.append(WireField(name, kind, ctype, limit, where))
        if statement.accept(")"):
            return fields
        statement.expect(",", f"field {name}")


def parse_command(statement, cls, subject):
    where = statement.where
    statement.take()
    name = statement.name("the command's name")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.startswith("cu_"):
        statement.fail(f"a command's name is in snake_case and not CUDA's, '{name}' is not")
    fields = parse_wire_fields(statement, name)
    reply = parse_wire_fields(statement, "'->'") if statement.accept("->") else []
    attrs = parse_attributes(statement, COMMAND_FLAGS, set())
    return Command(name, camel(name), name, cls == "sync", "slow" in attrs, "later" in attrs,
                   fields, reply, subject, where)


def parse_reason(statement, cls):
    if cls != "refused":
        return None
    reason = statement.take()
    if not reason.startswith('"') or len(reason) < 3:
        statement.next -= 1
        statement.fail('expected the reason in quotes after refused, as in: '
                       'refused "graphs come later" cuName(...)')
    return reason[1:-1]


def parse_names(statement, cls, reason, subject):
    """Exports of which only the names are described."""
    names = []
    while not statement.accept("}"):
        where = statement.place()
        names.append((statement.name("a function's name, or '}'"), where))
    attrs = parse_attributes(statement, set(), {"answer", "proc", "ptds", "ptsz"})
    if cls not in ("local", "refused"):
        raise ApiError(statement.where, f"names without parameters are local or refused, not {cls}")
    return [Call(cls, reason, name, [], dict(attrs, bare=True), subject, where)
            for name, where in names]


def parse_call(statement, cls, reason, subject):
    name = statement.name("the function's name")
    params = parse_params(statement, name)
    attrs = parse_attributes(statement, CALL_FLAGS, CALL_VALUES)
    return Call(cls, reason, name, params, attrs, subject, statement.where)


def parse_statement(api, statement, subject):
    word = statement.take()
    if word in TYPE_WORDS:
        declared = parse_type(statement, word)
        statement.end()
        home = api.constants if word == "constant" else api.types
        if declared.name in home:
            raise ApiError(statement.where, f"{declared.name} is described already at "
                           f"{home[declared.name].where}")
        home[declared.name] = declared
        return
    if word not in CLASSES:
        raise ApiError(statement.where, f"expected a class ({', '.join(CLASSES)}) or a type word "
                       f"({', '.join(TYPE_WORDS)}), found '{word}'")
    if statement.peek() == "command" and statement.peek(1) != "(":
        if word not in ("sync", "post"):
            raise ApiError(statement.where, f"a command is sync or post, not {word}")
        api.commands.append(parse_command(statement, word, subject))
        return
    reason = parse_reason(statement, word)
    if statement.accept("{"):
        api.calls += parse_names(statement, word, reason, subject)
    else:
        api.calls.append(parse_call(statement, word, reason, subject))


def parse_folder(folder, root, family=CUDA):
    """All .api files of `folder`; places are shown relative to `root`."""
    api = Api(family)
    for entry in sorted(os.listdir(folder)):
        if not entry.endswith(".api"):
            continue
        path = os.path.join(folder, entry)
        shown, subject = os.path.relpath(path, root), entry[:-len(".api")]
        api.subjects.append(subject)
        api.files[subject] = shown
        for statement in statements(path, shown):
            parse_statement(api, statement, subject)
    return api


