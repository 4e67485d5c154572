"""Writes what concerns exports as such: driver/table.h and .cc, a function pointer per export;
the software GPU's weak exports; the rows of cuGetProcAddress; the linker's export lists."""

from emit_client import argument_names, variant_body
from emit_types import parameter_list
from family import CUDA
from names import base_name
from text import banner, wrap_call

# Tells whoever loads a driver that this library only forwards calls (src/driver/load.h).
CLIENT_MARKER = "flyt_client_library"
# The same, that this one is the software GPU.
SOFT_MARKER = "flyt_softgpu_library"

TABLE_HEAD = """\
#pragma once

#include <string_view>

#include "{family.folder}/functions.h"

namespace flyt::driver {{

// Every function of a driver. One that the driver lacks answers {family.unsupported}.
struct {family.table_name} {{"""

TABLE_FOOT = """\
}};

// Looks up a driver's function by its exact export name; null if there is none.
using Lookup = void* (*)(void* library, const char* name);

// Fills `table`; calls `missing` with the name of each function that was not found.
using Missing = void (*)(void* argument, std::string_view name);
void fill({table}& table, Lookup lookup, void* library, Missing missing, void* argument);

}}  // namespace flyt::driver
"""

FILL = """\
namespace flyt::driver {{

namespace {{

// One per signature, for functions that a driver lacks.
template <class... Arguments>
{family.result} lacking(Arguments...) {{
  return {family.unsupported};
}}

struct Filler {{
  Lookup lookup;
  void* library;
  Missing missing;
  void* argument;

  template <class... Arguments>
  void operator()(const char* name, {family.result} (*&slot)(Arguments...)) const {{
    void* found = lookup(library, name);
    if (found == nullptr) missing(argument, name);
    slot = found ? reinterpret_cast<{family.result} (*)(Arguments...)>(found)
                 : lacking<Arguments...>;
  }}
}};
"""

ROWS_HEAD = """\
#include "cuda/functions.h"
#include "cuda/proc_address.h"

namespace flyt::cuda {

std::span<const ProcAddressRow> proc_address_rows() {
  // Sorted by name, then by version. The second pair is the per-thread default stream variant.
  // Made at the first call, for a guest has no global constructors.
  static const ProcAddressRow kRows[] = {"""

ROWS_FOOT = """\
  };
  return kRows;
}

}  // namespace flyt::cuda
"""

WEAK_HEAD = """\
#include "cuda/functions.h"

// Refused until another file of the library defines the function: that definition then wins.
#define FLYT_WEAK __attribute__((weak))

extern "C" {
"""


def full(calls):
    """Those whose parameters are described."""
    return [call for call in calls if not call.bare]


def table_header(api):
    out = [banner("The functions of one driver."), TABLE_HEAD.format(family=api.family)]
    for call in full(api.calls):
        for export in call.exports:
            out.append(f"  decltype(&::{export}) {export} = nullptr;")
    return "\n".join(out) + "\n" + TABLE_FOOT.format(table=api.family.table_name)


def table_source(api):
    family = api.family
    out = [banner("Fills a driver's table by name."), f"#include \"{family.table}.h\"", "",
           FILL.format(family=family)]
    names = []
    for subject in api.subjects:
        calls = full(api.calls_of(subject))
        if not calls:
            continue
        names.append(f"fill_{subject}")
        out += [f"// {api.files[subject]}", f"void fill_{subject}({family.table_name}& table, "
                "const Filler& fill) {"]
        out += [f"  fill(\"{export}\", table.{export});" for call in calls
                for export in call.exports]
        out += ["}", ""]
    out += ["}  // namespace", "",
            f"void fill({family.table_name}& table, Lookup lookup, void* library, "
            "Missing missing, void* argument) {",
            "  const Filler fill{lookup, library, missing, argument};"]
    out += [f"  {name}(table, fill);" for name in names]
    return "\n".join(out + ["}", "", "}  // namespace flyt::driver"]) + "\n"


def weak_source(api):
    out = [banner("Exports that the software GPU refuses unless it defines them."), WEAK_HEAD]
    for call in api.calls:
        kinds = [str(param.type) for param in call.params]
        out += [f"// {call.where}", wrap_call(f"FLYT_WEAK CUresult {call.name}(", kinds, ") {")]
        if call.has("same"):
            out[-1] = wrap_call(f"FLYT_WEAK CUresult {call.name}(", parameter_list(call), ") {")
            out.append(wrap_call(f"  return {call.attrs['same']}(", argument_names(call), ");",
                                 "      "))
        else:
            out.append("  return CUDA_ERROR_NOT_SUPPORTED;")
        out += ["}", ""]
    return "\n".join(out + ["}  // extern \"C\""]) + "\n"


def variants_source(api):
    out = [banner("Exports whose stream 0 is the calling thread's own default stream."),
           "#include \"cuda/default_stream.h\"\n#include \"cuda/functions.h\"\n",
           "extern \"C\" {", ""]
    for call in api.calls:
        for suffix in call.variants:
            out += [f"// {call.where}"] + variant_body(call, suffix, call.name)
    return "\n".join(out + ["}  // extern \"C\""]) + "\n"


def proc_rows(api):
    """[(name, version, export, variant's version, variant's export or None)], sorted."""
    rows = []
    for call in api.calls:
        suffix = call.variants[0] if call.variants else None
        for version, other in call.attrs["proc"]:
            later = (call.attrs[suffix] or version) if suffix else 0
            rows.append((other or base_name(call.name), version, call.name, later,
                         f"{call.name}_{suffix}" if suffix else None))
    return sorted(rows, key=lambda row: (row[0], row[1]))


def rows_source(api):
    out = [banner("Which export is meant by a name and a version."), ROWS_HEAD]
    for name, version, export, later, variant_name in proc_rows(api):
        second = f"{later}, reinterpret_cast<void*>(&::{variant_name})" if variant_name else \
            "0, nullptr"
        out.append(wrap_call("    {", [f"\"{name}\"", str(version),
                                       f"reinterpret_cast<void*>(&::{export})", second], "},",
                             "     "))
    return "\n".join(out) + "\n" + ROWS_FOOT


def exports_map(api, more=()):
    """A linker version script: the library shows these names and nothing else."""
    names = sorted(export for call in api.calls for export in call.exports) + list(more)
    out = ["# Generated by codegen/ from api/; do not edit.", "{", "  global:"]
    return "\n".join(out + [f"    {name};" for name in names] + ["  local: *;", "};"])


def files(api):
    family = api.family
    found = {f"{family.client}/exports.map": exports_map(api, [CLIENT_MARKER]),
             f"{family.table}.h": table_header(api), f"{family.table}.cc": table_source(api)}
    if family is CUDA:
        found.update(softgpu_files(api))
    return found


def softgpu_files(api):
    return {"softgpu/exports.map": exports_map(api, [SOFT_MARKER]),
            "softgpu/weak.cc": weak_source(api), "softgpu/variants.cc": variants_source(api),
            "cuda/proc_address_rows.cc": rows_source(api)}


