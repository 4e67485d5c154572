"""Writes the client library's side: client/SUBJECT.cc, an extern "C" function for every export;
client/hooks_SUBJECT.h, the bodies that are written by hand; client/exports.h and .cc, the list of
exports by which calls are traced."""

from emit_types import parameter_list
from layout import resolve
from model import Handle
from names import limit_name, struct_name
from text import banner, wrap_call

HEAD = """\
#include <cstring>

{includes}

namespace client = {family.client_space};
namespace commands = flyt::commands;
namespace hooks = flyt::client::hooks;
namespace wire = flyt::wire;
"""


INCLUDES = """\
#include "{family.client_call}"
#include "{family.client}/hooks_{subject}.h"
#include "commands/{subject}.h"
#include "{family.folder}/functions.h\""""


# Natively calls with one of these need no current context.
BRING_THEIR_CONTEXT = ("CUstream", "CUtexref", "CUsurfref")


def argument_names(call):
    return [param.name for param in call.params]


def needs(call):
    if call.has("before_init"):
        return "client::Needs::kNothing"
    if call.has("in_callback"):
        return "client::Needs::kQuery"
    return f"client::Needs::{'kInit' if call.has('noctx') else 'kContext'}"


def unless(family, test):
    """Returns what a test says unless it is the family's success."""
    return f"  if (const {family.result} no = {test}; no != {family.success}) return no;"


def enter(family, call):
    line = unless(family, f"client::enter({needs(call)})")
    homes = [param.name for param in call.params if str(param.type) in BRING_THEIR_CONTEXT]
    if not homes or call.has("noctx") or call.has("before_init"):
        return line
    return f"  const client::ContextScope scope(client::home_of({homes[0]}));\n" + line


def null_test(param):
    """Whether a pointer is missing; an array of nothing needs none."""
    if param.count is None or param.count.isdigit():
        return f"{param.name} == nullptr"
    return f"({param.name} == nullptr && {param.count} != 0)"


def checks(api, call):
    """What native refuses at once: null pointers, bad handles, arrays over their limit."""
    out, family = [], api.family
    nulls = [null_test(param) for param in call.params
             if param.role in ("out", "in", "string", "new") and not param.optional]
    if nulls:
        test = " || ".join(nulls)
        test = test[1:-1] if len(nulls) == 1 and test.startswith("(") else test
        out.append(f"  if ({test}) return {family.invalid};")
    for param in call.params:
        if param.role == "string":
            limit = f"commands::{struct_name(call.name)}::{limit_name(param.name, 'Bytes')}"
            out.append(f"  if (std::strlen({param.name}) > {limit}) "
                       f"return {family.invalid};")
        kind = resolve(api, param.type, param.where)
        if param.role in ("value", "drop") and isinstance(api.types.get(kind.base), Handle):
            out.append(unless(family, f"client::check({param.name})"))
        if param.count is not None and not param.count.isdigit():
            limit = f"commands::{struct_name(call.name)}::"
            limit += ("Reply::" if param.role == "out" else "") + limit_name(param.name, "Count")
            out += [f"  if (static_cast<std::uint64_t>({param.count}) > {limit}) {{",
                    f"    return {family.invalid};", "  }"]
    return out


def field_value(param):
    """The initialiser of a command's field, from the parameter."""
    if param.role in ("value", "drop"):
        return param.name
    if param.role == "string":
        return f"{param.name}"
    if param.count is not None:
        element = f"const {param.type.base}"
        return (f"wire::List<{param.type.base}>(std::span<{element}>({param.name}, "
                f"static_cast<std::size_t>({param.count})))")
    if param.optional:
        return (f"{param.name} ? std::optional<{param.type.base}>(*{param.name}) : std::nullopt")
    return f"*{param.name}"


def fill_command(call):
    fields = [f".{param.name} = {field_value(param)}" for param in call.params
              if param.role not in ("out", "new")]
    const = "" if any(param.role == "new" for param in call.params) else "const "
    start = f"  {const}commands::{struct_name(call.name)} command{{"
    return wrap_call(start, fields, "};", "      ")


def deliver(family, call):
    """Copies a reply's values to where the caller wants them."""
    out = []
    for param in call.params:
        if param.role != "out":
            continue
        if param.count is not None:
            values = [f"reply.{param.name}",
                      f"{{{param.name}, static_cast<std::size_t>({param.count})}}"]
            out.append(wrap_call(f"  if (const {family.result} no = client::deliver(", values,
                                 f"); no != {family.success}) return no;", "      "))
        else:
            null = f"if ({param.name} != nullptr) " if param.optional else ""
            out.append(f"  {null}*{param.name} = reply.{param.name};")
    return out


def send(call):
    """The statement that sends the command; its value is the result."""
    how = {"sync": "call", "cached": "cached", "post": "post"}[call.cls]
    views = ", answer" if has_views(call) else ""
    return f"client::{how}(command{'' if call.cls == 'post' else ', reply'}{views})"


def has_views(call):
    """Whether the reply looks into the received answer, which must then be kept."""
    return any(param.role == "out" and param.count is not None for param in call.params)


def body_on_wire(api, call):
    family = api.family
    out = [enter(family, call)] + checks(api, call) + [fill_command(call)]
    made = [param for param in call.params if param.role == "new"]
    dropped = [param for param in call.params if param.role == "drop"]
    if call.waits:
        out.append(f"  commands::{struct_name(call.name)}::Reply reply;")
    if has_views(call):
        out.append("  flyt::rpc::Reply answer;")
    for param in made:
        out.append(unless(family, f"client::make(command.{param.name})"))
    if not made and not dropped and not deliver(api.family, call):
        return out + [f"  return {send(call)};"]
    out.append(f"  const {family.result} result = {send(call)};")
    for param in dropped:
        out.append(f"  client::forget({param.name});")
    for param in made:
        out.append(f"  if (result != {family.success}) client::forget(command.{param.name});")
    if dropped and not made and not deliver(api.family, call):
        return out + ["  return result;"]
    out.append(f"  if (result != {family.success}) return result;")
    out += [f"  *{param.name} = command.{param.name};" for param in made]
    out += deliver(api.family, call)
    return out + [f"  return {family.success};"]


def body(api, call):
    arguments = argument_names(call)
    if call.cls == "refused":
        return [f"  return client::refused(\"{call.name}\", \"{call.reason}\");"]
    if call.has("same"):
        return [wrap_call(f"  return ::{call.attrs['same']}(", arguments, ");", "      ")]
    if call.has("answer"):
        entered = [] if call.bare else [enter(api.family, call)]
        return entered + [f"  return {call.attrs['answer']};"]
    if call.client_hook:
        return [enter(api.family, call),
                wrap_call(f"  return hooks::{call.name}(", arguments, ");", "      ")]
    return body_on_wire(api, call)


def head(call, name, used, result="CUresult"):
    """The first line of a definition; parameters that a body does not use stay unnamed."""
    params = parameter_list(call) if used else [str(param.type) for param in call.params]
    return wrap_call(f"{result} {name}(", params, ") {")


def uses_parameters(call):
    return not (call.cls == "refused" or call.has("answer"))


def variant_body(call, suffix, callee):
    """The function whose stream 0 is the calling thread's own default stream."""
    return [head(call, f"{call.name}_{suffix}", True),
            "  const flyt::cuda::PerThreadDefaultStream scope;",
            wrap_call(f"  return {callee}(", argument_names(call), ");", "      "), "}", ""]


def export(call, name):
    """What a program calls: the body, under the eyes of the trace if there is one."""
    start = f"  return client::exported<client::Export::{name}, bodies::{name}>("
    return [head(call, name, True), wrap_call(start, argument_names(call), ");", "      "), "}", ""]


def includes(family, subject):
    lines = INCLUDES.format(family=family, subject=subject).splitlines()
    if family.traced:
        lines += ["#include \"client/trace.h\"", "#include \"cuda/default_stream.h\""]
    return "\n".join(sorted(lines))


# Bodies that a trace looks at stand apart from the exports that call them.
TRACED_START = ["namespace {", "namespace bodies {", ""]
PLAIN_START = ["extern \"C\" {", ""]


def source(api, subject):
    out = [banner(f"Exports of {api.files[subject]}, client side."),
           HEAD.format(includes=includes(api.family, subject), family=api.family)]
    calls = [call for call in api.calls_of(subject) if not call.by_hand]
    out += TRACED_START if api.family.traced else PLAIN_START
    for call in calls:
        out += [f"// {call.where}",
                head(call, call.name, uses_parameters(call), api.family.result)]
        out += body(api, call) + ["}", ""]
        for suffix in call.variants:
            out += [f"// {call.where}"] + variant_body(call, suffix, f"bodies::{call.name}")
    if api.family.traced:
        out += ["}  // namespace bodies", "}  // namespace", "", "extern \"C\" {", ""]
        for call in calls:
            for name in call.exports:
                out += [f"// {call.where}"] + export(call, name)
    return "\n".join(out + ["}  // extern \"C\""]) + "\n"


EXPORTS_HEADER = """\
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace flyt::client {{

enum class Export : std::uint16_t {{
{names}
}};

struct ExportFacts {{
  std::string_view name;
  bool sync_point = false;  // Waiting is what a program calls it for.
}};

// By Export.
std::span<const ExportFacts> export_facts();

}}  // namespace flyt::client
"""

EXPORTS_SOURCE = """\
#include "client/exports.h"

namespace flyt::client {{

std::span<const ExportFacts> export_facts() {{
  static constexpr ExportFacts kFacts[] = {{
{rows}
  }};
  return kFacts;
}}

}}  // namespace flyt::client
"""


def exports_list(api):
    """client/exports.h and .cc."""
    named = [(name, call) for call in api.calls for name in call.exports]
    rows = [f"      {{\"{name}\", {'true' if call.has('sync_point') else 'false'}}},"
            for name, call in named]
    names = [f"  {name}," for name, _ in named]
    return {"client/exports.h": banner("The exports, by number.") + "\n" +
            EXPORTS_HEADER.format(names="\n".join(names)),
            "client/exports.cc": banner("What is known of each export.") + "\n" +
            EXPORTS_SOURCE.format(rows="\n".join(rows))}


def hooks_header(api, subject):
    out = [banner(f"Client sides of {api.files[subject]} that are written by hand, in "
                  f"{api.family.client_hooks}/{subject}.cc."),
           "#pragma once", "", f"#include \"{api.family.folder}/types.h\"", "",
           "namespace flyt::client::hooks {", ""]
    for call in api.calls_of(subject):
        if call.client_hook:
            out += [f"// {call.where}",
                    wrap_call(f"{api.family.result} {call.name}(", parameter_list(call), ");")]
    return "\n".join(out + ["", "}  // namespace flyt::client::hooks"]) + "\n"


def files(api):
    found = exports_list(api) if api.family.traced else {}
    for subject in api.subjects:
        found[f"{api.family.client}/hooks_{subject}.h"] = hooks_header(api, subject)
        if api.calls_of(subject):
            found[f"{api.family.client}/{subject}.cc"] = source(api, subject)
    return found
