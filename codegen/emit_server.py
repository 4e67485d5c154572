"""Writes the server's side: server/SUBJECT.cc, a handler per op, server/hooks_SUBJECT.h, the
bodies that are written by hand, and the table from op to handler."""

from layout import resolve
from model import Handle
from text import banner, wrap_call

HEAD = """\
#include "server/handlers_{subject}.h"

#include <string>
#include <vector>

#include "commands/{subject}.h"
#include "driver/table.h"
#include "server/hooks_{subject}.h"
#include "server/request.h"

namespace flyt::server::handlers {{
"""

TABLE_HEAD = """\
#pragma once

#include <cstdint>
#include <string_view>

#include "server/request.h"

namespace flyt::server {

// Executes one command and answers it, now or later.
using Handler = void (*)(Request request);

struct HandlerRow {
  std::string_view name;
  Handler run = nullptr;
  bool waits = false;  // The client waits for the answer.
  bool slow = false;   // Runs on a worker, so that later commands need not wait for it.
};

// Null for a number that means nothing: the session ends.
const HandlerRow* find_handler(std::uint16_t op);

}  // namespace flyt::server
"""


def answers_itself(command):
    """Whether the hook gets the request to answer: later, or with values that only it can keep."""
    return command.later or any(field.kind in ("string", "bytes", "list")
                                for field in command.reply)


def hook_declaration(command):
    if answers_itself(command):
        arguments = ["Request request", f"const commands::{command.struct}& command"]
        return wrap_call(f"void {command.handler}(", arguments, ");")
    arguments = ["Request& request", f"const commands::{command.struct}& command"]
    if command.reply:
        arguments.append(f"commands::{command.struct}::Reply& reply")
    return wrap_call(f"CUresult {command.handler}(", arguments, ");")


def hook_body(command):
    if answers_itself(command):
        return [f"  hooks::{command.handler}(std::move(request), command);"]
    if not command.reply:
        return [f"  request.reply(hooks::{command.handler}(request, command));"]
    return [f"  commands::{command.struct}::Reply reply;",
            f"  const CUresult result = hooks::{command.handler}(request, command, reply);",
            "  request.reply(result, reply);"]


def translate_handles(api, command):
    out = []
    for param in command.call.params:
        kind = resolve(api, param.type, param.where)
        if param.role in ("value", "drop") and isinstance(api.types.get(kind.base), Handle):
            how = "take" if param.role == "drop" else "resolve"
            out.append(f"  if (!request.{how}(command.{param.name})) "
                       "return request.reply(CUDA_ERROR_INVALID_HANDLE);")
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


def refuse_unless(condition):
    return [f"  if (!({condition})) {{",
            "    return request.reply(CUDA_ERROR_INVALID_VALUE);", "  }"]


def locals_of(command):
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
            if not param.count.isdigit():
                out += refuse_unless(f"{name}.size() == static_cast<std::size_t>("
                                     f"command.{param.count})")
        elif param.count is not None:
            length = param.count if param.count.isdigit() else f"command.{param.count}"
            if not param.count.isdigit():
                out += refuse_unless(f"static_cast<std::uint64_t>({length}) <= {param.limit}")
            out.append(f"  std::vector<{base}> {name}(static_cast<std::size_t>({length}));")
    return out


def driver_body(api, command):
    call = command.call
    out = translate_handles(api, command) + locals_of(command)
    if command.reply:
        out.append(f"  commands::{command.struct}::Reply reply;")
    arguments = [driver_argument(param) for param in call.params]
    made = [param for param in call.params if param.role == "new"]
    if not command.reply and not made:
        return out + [wrap_call(f"  request.reply(request.driver().{call.name}(", arguments, "));",
                                "      ")]
    out.append(wrap_call(f"  const CUresult result = request.driver().{call.name}(", arguments,
                         ");", "      "))
    for param in made:
        out.append(f"  if (result == CUDA_SUCCESS && !request.adopt(command.{param.name}, "
                   f"{param.name})) return;")
    for param in call.params:
        if param.role == "out" and param.count is not None:
            out.append(f"  reply.{param.name} = wire::List<{param.type.base}>({param.name});")
    return out + [f"  request.reply(result{', reply' if command.reply else ''});"]


def render_handler(api, command):
    out = [f"// {command.where} {command.name}", f"void {command.handler}(Request request) {{",
           f"  commands::{command.struct} command;",
           "  if (!request.decode(command)) return;"]
    out += hook_body(command) if command.server_hook else driver_body(api, command)
    return out + ["}", ""]


def source(api, subject):
    out = [banner(f"Handlers of {api.files[subject]}, server side."), HEAD.format(subject=subject)]
    for command in api.commands_of(subject):
        out += render_handler(api, command)
    return "\n".join(out + ["}  // namespace flyt::server::handlers"]) + "\n"


def handlers_header(api, subject):
    out = [banner(f"Handlers of {api.files[subject]}, server side."), "#pragma once", "",
           "#include \"server/request.h\"", "", "namespace flyt::server::handlers {", ""]
    out += [f"void {command.handler}(Request request);" for command in api.commands_of(subject)]
    return "\n".join(out + ["", "}  // namespace flyt::server::handlers"]) + "\n"


def hooks_header(api, subject):
    out = [banner(f"Server sides of {api.files[subject]} that are written by hand, in "
                  f"src/server/hooks/{subject}.cc."),
           "#pragma once", "", f"#include \"commands/{subject}.h\"",
           "#include \"server/request.h\"", "", "namespace flyt::server::hooks {", ""]
    for command in api.commands_of(subject):
        if command.server_hook:
            out += [f"// {command.where} {command.name}", hook_declaration(command)]
    return "\n".join(out + ["", "}  // namespace flyt::server::hooks"]) + "\n"


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
    includes = [f"#include \"server/handlers_{subject}.h\"" for subject in api.subjects]
    return "\n".join([
        banner("The handler of every op."), "#include \"server/handlers.h\"", "", *includes, "",
        "namespace flyt::server {", "", "namespace {", "",
        "// By op; retired and never given numbers have an empty row.",
        "constexpr HandlerRow kRows[] = {", *rows, "};", "", "}  // namespace", "",
        "const HandlerRow* find_handler(std::uint16_t op) {",
        f"  if (op > {highest} || kRows[op].run == nullptr) return nullptr;",
        "  return &kRows[op];", "}", "", "}  // namespace flyt::server"]) + "\n"


def files(api):
    found = {"server/handlers.h": banner("From op to handler.") + "\n" + TABLE_HEAD,
             "server/handlers.cc": table_source(api)}
    for subject in api.subjects:
        found[f"server/hooks_{subject}.h"] = hooks_header(api, subject)
        found[f"server/handlers_{subject}.h"] = handlers_header(api, subject)
        found[f"server/{subject}.cc"] = source(api, subject)
    return found
