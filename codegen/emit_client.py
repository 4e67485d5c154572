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

#include "client/call.h"
#include "client/hooks_{subject}.h"
#include "client/trace.h"
#include "commands/{subject}.h"
#include "cuda/default_stream.h"
#include "cuda/functions.h"

namespace client = flyt::client;
namespace commands = flyt::commands;
namespace hooks = flyt::client::hooks;
namespace wire = flyt::wire;
"""


def argument_names(call):
    return [param.name for param in call.params]


def needs(call):
    if call.has("before_init"):
        return "client::Needs::kNothing"
    if call.has("in_callback"):
        return "client::Needs::kQuery"
    return f"client::Needs::{'kInit' if call.has('noctx') else 'kContext'}"


def enter(call):
    line = (f"  if (const CUresult no = client::enter({needs(call)}); no != CUDA_SUCCESS) "
            "return no;")
    streams = [param.name for param in call.params if str(param.type) == "CUstream"]
    if not streams or call.has("noctx") or call.has("before_init"):
        return line
    # Natively a stream brings its context along.
    return f"  const client::ContextOfStream scope({streams[0]});\n" + line


def null_test(param):
    """Whether a pointer is missing; an array of nothing needs none."""
    if param.count is None or param.count.isdigit():
        return f"{param.name} == nullptr"
    return f"({param.name} == nullptr && {param.count} != 0)"


def checks(api, call):
    """What native refuses at once: null pointers, bad handles, arrays over their limit."""
    out = []
    nulls = [null_test(param) for param in call.params
             if param.role in ("out", "in", "string", "new") and not param.optional]
    if nulls:
        test = " || ".join(nulls)
        test = test[1:-1] if len(nulls) == 1 and test.startswith("(") else test
        out.append(f"  if ({test}) return CUDA_ERROR_INVALID_VALUE;")
    for param in call.params:
        if param.role == "string":
            limit = f"commands::{struct_name(call.name)}::{limit_name(param.name, 'Bytes')}"
            out.append(f"  if (std::strlen({param.name}) > {limit}) "
                       "return CUDA_ERROR_INVALID_VALUE;")
        kind = resolve(api, param.type, param.where)
        if param.role in ("value", "drop") and isinstance(api.types.get(kind.base), Handle):
            out.append(f"  if (const CUresult no = client::check({param.name}); "
                       "no != CUDA_SUCCESS) return no;")
        if param.count is not None and not param.count.isdigit():
            limit = f"commands::{struct_name(call.name)}::"
            limit += ("Reply::" if param.role == "out" else "") + limit_name(param.name, "Count")
            out += [f"  if (static_cast<std::uint64_t>({param.count}) > {limit}) {{",
                    "    return CUDA_ERROR_INVALID_VALUE;", "  }"]
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


def deliver(call):
    """Copies a reply's values to where the caller wants them."""
    out = []
    for param in call.params:
        if param.role != "out":
            continue
        if param.count is not None:
            out.append(f"  reply.{param.name}.copy_to({{{param.name}, "
                       f"static_cast<std::size_t>({param.count})}});")
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
    out = [enter(call)] + checks(api, call) + [fill_command(call)]
    made = [param for param in call.params if param.role == "new"]
    dropped = [param for param in call.params if param.role == "drop"]
    if call.waits:
        out.append(f"  commands::{struct_name(call.name)}::Reply reply;")
    if has_views(call):
        out.append("  flyt::rpc::Reply answer;")
    for param in made:
        out.append(f"  if (const CUresult no = client::make(command.{param.name}); "
                   "no != CUDA_SUCCESS) return no;")
    if not made and not dropped and not deliver(call):
        return out + [f"  return {send(call)};"]
    out.append(f"  const CUresult result = {send(call)};")
    for param in dropped:
        out.append(f"  client::forget({param.name});")
    for param in made:
        out.append(f"  if (result != CUDA_SUCCESS) client::forget(command.{param.name});")
    if dropped and not made and not deliver(call):
        return out + ["  return result;"]
    out.append("  if (result != CUDA_SUCCESS) return result;")
    out += [f"  *{param.name} = command.{param.name};" for param in made] + deliver(call)
    return out + ["  return CUDA_SUCCESS;"]


def body(api, call):
    arguments = argument_names(call)
    if call.cls == "refused":
        return [f"  return client::refused(\"{call.name}\", \"{call.reason}\");"]
    if call.has("same"):
        return [wrap_call(f"  return ::{call.attrs['same']}(", arguments, ");", "      ")]
    if call.has("answer"):
        return [enter(call), f"  return {call.attrs['answer']};"]
    if call.client_hook:
        return [enter(call), wrap_call(f"  return hooks::{call.name}(", arguments, ");", "      ")]
    return body_on_wire(api, call)


def head(call, name, used):
    """The first line of a definition; parameters that a body does not use stay unnamed."""
    params = parameter_list(call) if used else [str(param.type) for param in call.params]
    return wrap_call(f"CUresult {name}(", params, ") {")


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


def source(api, subject):
    out = [banner(f"Exports of {api.files[subject]}, client side."),
           HEAD.format(subject=subject), "namespace {", "namespace bodies {", ""]
    for call in api.calls_of(subject):
        out += [f"// {call.where}", head(call, call.name, uses_parameters(call))]
        out += body(api, call) + ["}", ""]
        for suffix in call.variants:
            out += [f"// {call.where}"] + variant_body(call, suffix, f"bodies::{call.name}")
    out += ["}  // namespace bodies", "}  // namespace", "", "extern \"C\" {", ""]
    for call in api.calls_of(subject):
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
                  f"src/client/hooks/{subject}.cc."),
           "#pragma once", "", "#include \"cuda/types.h\"", "", "namespace flyt::client::hooks {",
           ""]
    for call in api.calls_of(subject):
        if call.client_hook:
            out += [f"// {call.where}",
                    wrap_call(f"CUresult {call.name}(", parameter_list(call), ");")]
    return "\n".join(out + ["", "}  // namespace flyt::client::hooks"]) + "\n"


def files(api):
    found = exports_list(api)
    for subject in api.subjects:
        found[f"client/hooks_{subject}.h"] = hooks_header(api, subject)
        if api.calls_of(subject):
            found[f"client/{subject}.cc"] = source(api, subject)
    return found
