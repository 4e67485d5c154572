"""Writes commands/SUBJECT.h: one struct per command with the list of its fields, from which
wire/fields.h encodes and decodes; and the tables over all commands."""

from names import limit_name
from text import banner

HEAD = """\
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "{folder}/types.h"
#include "wire/fields.h"

namespace flyt::commands {{

using wire::decode;
using wire::encode;
using wire::encoded_size;
"""

ALL_HEAD = """\
// All: every command as a type, for code that treats them alike.
#pragma once

#include "wire/command_list.h"
"""


def limit_of(field):
    return limit_name(field.name, "Count" if field.kind == "list" else "Bytes")


def field_type(field):
    if field.kind == "string":
        return "std::string_view"
    if field.kind == "bytes":
        return "Bytes"
    if field.kind == "list":
        return f"wire::List<{field.type}>"
    if field.kind == "optional":
        return f"std::optional<{field.type}>"
    return str(field.type)


def members(fields, indent):
    """The limits, the values, and the function that shows each value to a visitor."""
    out = []
    for field in fields:
        if field.limit is not None:
            out.append(f"{indent}static constexpr std::uint32_t {limit_of(field)} = "
                       f"{field.limit};")
    out += [f"{indent}{field_type(field)} {field.name}{{}};" for field in fields]
    out.append("")
    if not fields:
        out += [f"{indent}template <class Self, class Visitor>",
                f"{indent}static void each(Self&, Visitor&&) {{}}"]
        return out
    out += [f"{indent}template <class Self, class Visitor>",
            f"{indent}static void each(Self& self, Visitor&& visit) {{"]
    for field in fields:
        limit = f", {limit_of(field)}" if field.limit is not None else ""
        out.append(f"{indent}  visit(\"{field.name}\", self.{field.name}{limit});")
    return out + [f"{indent}}}"]


def render_command(command):
    out = [f"// {command.where} {command.name}", f"struct {command.struct} {{",
           f"  static constexpr std::uint16_t kOp = {command.op};",
           f"  static constexpr bool kWaits = {str(command.waits).lower()};",
           f"  static constexpr std::string_view kName = \"{command.name}\";"]
    out += members(command.fields, "  ")
    out += ["", "  struct Reply {"] + members(command.reply, "    ") + ["  };", "};", ""]
    return out


def header(api, subject):
    out = [banner(f"Commands of {api.files[subject]}."), HEAD.format(folder=api.family.folder)]
    for command in api.commands_of(subject):
        out += render_command(command)
    return "\n".join(out + ["}  // namespace flyt::commands"]) + "\n"


def numbered(api):
    """The commands of all descriptions, by op."""
    commands = [command for each in api.together for command in each.commands]
    return sorted(commands, key=lambda command: command.op)


def all_header(api):
    names = [f"    {command.struct}" for command in numbered(api)]
    out = [banner("Every command."), ALL_HEAD]
    out += [f"#include \"commands/{subject}.h\"" for each in api.together
            for subject in each.subjects]
    out += ["", "namespace flyt::commands {", "", "using All = wire::CommandList<",
            ",\n".join(names) + ">;", "", "}  // namespace flyt::commands"]
    return "\n".join(out) + "\n"


def ops_header(api):
    return "\n".join([
        banner("Op numbers: how many, and what they are called."), "#pragma once", "",
        "#include <cstdint>", "#include <string>", "#include <string_view>", "",
        "#include \"base/bytes.h\"", "", "namespace flyt::commands {", "",
        "// Ops are 1 to kOpMax; some numbers may be retired.",
        f"inline constexpr std::uint16_t kOpMax = {max((c.op for c in numbered(api)), default=0)};",
        "", "// The command's name, empty for a number that means nothing.",
        "std::string_view command_name(std::uint16_t op);", "",
        "// A command as text for traces, as name(field=value, ...).",
        "std::string describe(std::uint16_t op, Bytes payload);", "",
        "}  // namespace flyt::commands"]) + "\n"


def ops_source(api):
    names = [f"    case {command.op}: return \"{command.name}\";" for command in numbered(api)]
    traced = [f"    case {command.op}: return wire::describe<{command.struct}>(payload);"
              for command in numbered(api)]
    return "\n".join([
        banner("Tables over all commands."), "#include \"commands/ops.h\"", "",
        "#include \"commands/all.h\"", "#include \"wire/describe.h\"", "",
        "namespace flyt::commands {", "", "std::string_view command_name(std::uint16_t op) {",
        "  switch (op) {", *names, "  }", "  return {};", "}", "",
        "std::string describe(std::uint16_t op, Bytes payload) {", "  switch (op) {", *traced,
        "  }", "  return \"unknown op\";", "}", "", "}  // namespace flyt::commands"]) + "\n"


def files(api):
    found = {f"commands/{subject}.h": header(each, subject) for each in api.together
             for subject in each.subjects}
    found["commands/all.h"] = all_header(api)
    found["commands/ops.h"] = ops_header(api)
    found["commands/ops.cc"] = ops_source(api)
    return found


