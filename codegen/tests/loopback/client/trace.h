// What generated exports need of the trace: here it notes the calls that it sees.
#pragma once

#include <string>
#include <vector>

#include "client/exports.h"
#include "cuda/types.h"

namespace flyt::client {

bool tracing();
std::vector<std::string>& traced_calls();

template <Export Which, auto Body, class... Arguments>
CUresult exported(Arguments... arguments) {
  if (tracing()) {
    traced_calls().emplace_back(export_facts()[static_cast<std::size_t>(Which)].name);
  }
  return Body(arguments...);
}

}  // namespace flyt::client
