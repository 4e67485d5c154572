// What a client wants to know of a context that was made for it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "server/request.h"

namespace flyt::server {

// Tells the client of a context that is current on this thread.
template <class Reply>
void describe_context(Request request, CUcontext context) {
  const driver::Table& driver = request.driver();
  Reply reply;
  std::array<std::uint64_t, CU_LIMIT_MAX> limits{};
  std::array<std::uint8_t, CU_LIMIT_MAX> known{};
  for (std::size_t i = 0; i < limits.size(); ++i) {
    std::size_t value = 0;
    if (driver.cuCtxGetLimit(&value, static_cast<CUlimit>(i)) != CUDA_SUCCESS) continue;
    limits[i] = value;
    known[i] = 1;
  }
  CUresult result = driver.cuCtxGetApiVersion(context, &reply.api_version);
  if (result == CUDA_SUCCESS) {
    result = driver.cuCtxGetStreamPriorityRange(&reply.least_priority, &reply.greatest_priority);
  }
  reply.limits = wire::List<std::uint64_t>(std::span<const std::uint64_t>(limits));
  reply.known = wire::List<std::uint8_t>(std::span<const std::uint8_t>(known));
  request.reply(result, reply);
}

}  // namespace flyt::server
