// How contexts come alive and how green ones end, for the hooks of both.
#pragma once

#include <algorithm>
#include <cstdint>

#include "client/call.h"
#include "client/context.h"

namespace flyt::client {

// What a context's birth tells, and that it is alive.
template <class Reply>
void come_alive(ContextState& context, const Reply& reply, unsigned int flags) {
  context.sticky.store(0);
  context.api_version.store(reply.api_version);
  context.flags.store(flags);
  context.cache_config.store(0);
  // Greater ones are smaller numbers.
  context.least_priority.store(std::max(reply.least_priority, reply.greatest_priority));
  context.greatest_priority.store(std::min(reply.least_priority, reply.greatest_priority));
  for (std::size_t i = 0; i < context.limits.size(); ++i) {
    const bool known = i < reply.limits.size() && i < reply.known.size() && reply.known[i] != 0;
    context.limits[i].store(known ? reply.limits[i] : ContextState::kUnknownLimit);
  }
  context.streams.reset();
  context.live.store(context.handle);
}

// Before the server is told: what a green context converts to may not be used any more.
void end_green(ContextState& context);

}  // namespace flyt::client
