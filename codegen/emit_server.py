"""Writes the server's side: server/SUBJECT.cc, a handler per op, server/hooks_SUBJECT.h, the
bodies that are written by hand, and the table from op to handler."""

from layout import resolve
from model import Handle
from text import banner, wrap_call

HEAD = """\
#include "{family.server}/handlers_{subject}.h"

#include <string>
#include <vector>

#include "commands/{subject}.h"
{table}#include "{family.server}/hooks_{subject}.h"
#include "{family.server_request}"

namespace {family.server_space}::handlers {{
"""

TABLE_HEAD = """\
#pragma once

#include <cstdint>
#include <string_view>

#include "{family.server_request}"

namespace {family.server_space} {{

// Executes one command and answers it, now or later.
using Handler = void (*)(Request request);

struct HandlerRow {{
  std::string_view name;
  Handler run = nullptr;
  bool waits = false;  // The client waits for the answer.
  bool slow = false;   // Runs on a worker, so that later commands need not wait for it.
}};

// Null for a number that means nothing: the session ends.
const HandlerRow* find_handler(std::uint16_t op);

}}  // namespace {family.server_space}
"""


def answers_itself(command):
    """Whether the hook gets the request to answer: later, or with values that only it can keep."""
    return command.later or any(field.kind in ("string", "bytes", "list")
                                for field in command.reply)


def hook_declaration(family, command):
    if answers_itself(command):
        arguments = ["Request request", f"const commands::{command.struct}& command"]
        return wrap_call(f"void {command.handler}(", arguments, ");")
    arguments = ["Request& request", f"const commands::{command.struct}& command"]
    if command.reply:
        arguments.append(f"commands::{command.struct}::Reply& reply")
    return wrap_call(f"{family.result} {command.handler}(", arguments, ");")


def hook_body(family, command):
    if answers_itself(command):
        return [f"  hooks::{command.handler}(std::move(request), command);"]
    if not command.reply:
        return [f"  request.reply(hooks::{command.handler}(request, command));"]
    return [f"  commands::{command.struct}::Reply reply;",
            f"  const {family.result} result = hooks::{command.handler}(request, command, reply);",
            "  request.reply(result, reply);"]


def translate_handles(api, command):
    out = []
    for param in command.call.params:
        kind = resolve(api, param.type, param.where)
        if param.role in ("value", "drop") and isinstance(api.types.get(kind.base), Handle):
            how = "take" if param.role == "drop" else "resolve"
            out.append(f"  if (!request.{how}(command.{param.name})) "
                       f"return request.reply({api.family.bad_handle});")
    return out


def driver_argument(param):
    """What the driver gets for a parameter."""
    name = param.name
    if param.role == "value" or param.role == "drop":
        return f"command.{name}"
    if param.role == "string":
        return f"{name}.c_str()"
    if param.role == "new":
        return f"&{name}"
    if param.count is not None:
        return f"{name}.data()"
    if param.role == "out":
        return f"&reply.{name}"
    return f"command.{name} ? &*command.{name} : nullptr" if param.optional else f"&command.{name}"


def refuse_unless(family, condition):
    return [f"  if (!({condition})) {{",
            f"    return request.reply({family.invalid});", "  }"]


def locals_of(family, command):
    """Storage that the driver call reads or fills."""
    out = []
    for param in command.call.params:
        name, base = param.name, param.type.base
        if param.role == "string":
            out.append(f"  const std::string {name}(command.{name});")
        elif param.role == "new":
            out.append(f"  {base} {name}{{}};")
        elif param.count is not None and param.role == "in":
            out.append(f"  std::vector<{base}> {name} = command.{name}.to_vector();")
            length = (param.count if param.count.isdigit() else
                      f"static_cast<std::size_t>(command.{param.count})")
            out += refuse_unless(family, f"{name}.size() == {length}")
        elif param.count is not None:
            length = param.count if param.count.isdigit() else f"command.{param.count}"
            if not param.count.isdigit():
                most = f"static_cast<std::uint64_t>({length}) <= {param.limit}"
                out += refuse_unless(family, most)
            out.append(f"  std::vector<{base}> {name}(static_cast<std::size_t>({length}));")
    return out


def driver_body(api, command):
    call, family = command.call, api.family
    out = translate_handles(api, command) + locals_of(api.family, command)
    if command.reply:
        out.append(f"  commands::{command.struct}::Reply reply;")
    arguments = [driver_argument(param) for param in call.params]
    made = [param for param in call.params if param.role == "new"]
    if not command.reply and not made:
        return out + [wrap_call(f"  request.reply(request.driver().{call.name}(", arguments, "));",
                                "      ")]
    start = f"  const {family.result} result = request.driver().{call.name}("
    out.append(wrap_call(start, arguments, ");", "      "))
    for param in made:
        out.append(f"  if (result == {family.success} && !request.adopt(command.{param.name}, "
                   f"{param.name})) return;")
    for param in call.params:
        if param.role == "out" and param.count is not None:
            out.append(f"  reply.{param.name} = wire::List<{param.type.base}>({param.name});")
    return out + [f"  request.reply(result{', reply' if command.reply else ''});"]


def render_handler(api, command):
    out = [f"// {command.where} {command.name}", f"void {command.handler}(Request request) {{",
           f"  commands::{command.struct} command;",
           "  if (!request.decode(command)) return;"]
    out += hook_body(api.family, command) if command.server_hook else driver_body(api, command)
    return out + ["}", ""]


def table_include(family):
    return f"#include \"{family.table}.h\"\n" if family.table else ""


def source(api, subject):
    out = [banner(f"Handlers of {api.files[subject]}, server side."),
           HEAD.format(subject=subject, family=api.family, table=table_include(api.family))]
    for command in api.commands_of(subject):
        out += render_handler(api, command)
    return "\n".join(out + [f"}}  // namespace {api.family.server_space}::handlers"]) + "\n"


def handlers_header(api, subject):
    out = [banner(f"Handlers of {api.files[subject]}, server side."), "#pragma once", "",
           f"#include \"{api.family.server_request}\"", "",
           f"namespace {api.family.server_space}::handlers {{", ""]
    out += [f"void {command.handler}(Request request);" for command in api.commands_of(subject)]
    return "\n".join(out + ["", f"}}  // namespace {api.family.server_space}::handlers"]) + "\n"


def hooks_header(api, subject):
    out = [banner(f"Server sides of {api.files[subject]} that are written by hand, in "
                  f"{api.family.server_hooks}/{subject}.cc."),
           "#pragma once", "", f"#include \"commands/{subject}.h\"",
           f"#include \"{api.family.server_request}\"", "",
           f"namespace {api.family.server_space}::hooks {{", ""]
    for command in api.commands_of(subject):
        if command.server_hook:
            out += [f"// {command.where} {command.name}", hook_declaration(api.family, command)]
    return "\n".join(out + ["", f"}}  // namespace {api.family.server_space}::hooks"]) + "\n"


def table_source(api):
    highest = max((command.op for command in api.commands), default=0)
    by_op = {command.op: command for command in api.commands}
    rows = []
    for op in range(highest + 1):
        command = by_op.get(op)
        if command is None:
            rows.append("    {},")
            continue
        flags = f"{str(command.waits).lower()}, {str(command.slow).lower()}"
        rows.append(f"    {{\"{command.name}\", handlers::{command.handler}, {flags}}},")
    includes = [f"#include \"{api.family.server}/handlers_{subject}.h\""
                for subject in api.subjects]
    return "\n".join([
        banner("The handler of every op."), f"#include \"{api.family.handlers}.h\"", "",
        *includes, "", f"namespace {api.family.server_space} {{", "", "namespace {", "",
        "// By op; retired and never given numbers have an empty row.",
        "constexpr HandlerRow kRows[] = {", *rows, "};", "", "}  // namespace", "",
        "const HandlerRow* find_handler(std::uint16_t op) {",
        f"  if (op > {highest} || kRows[op].run == nullptr) return nullptr;",
        "  return &kRows[op];", "}", "", f"}}  // namespace {api.family.server_space}"]) + "\n"


def files(api):
    family = api.family
    found = {f"{family.handlers}.h": banner("From op to handler.") + "\n" +
             TABLE_HEAD.format(family=family),
             f"{family.handlers}.cc": table_source(api)}
    for subject in api.subjects:
        found[f"{family.server}/hooks_{subject}.h"] = hooks_header(api, subject)
        found[f"{family.server}/handlers_{subject}.h"] = handlers_header(api, subject)
        found[f"{family.server}/{subject}.cc"] = source(api, subject)
    return found
