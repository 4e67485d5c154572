// Fleet: the GPUs of this server, as the driver told once when it was tried at the start. A monitor
// is served from it without starting a driver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "driver/table.h"
#include "nvml/gpu.h"
#include "server/lease/sm_grant.h"

namespace flyt::server::nvml {

struct Fleet {
  // What one GPU can do with another one's memory.
  enum class Reach : char { kNot = '0', kPlain = '1', kAtomic = '2' };

  std::string driver_kind;  // As of ReadyDriver.
  int cuda_version = 0;
  bool only = false;                  // The driver may have more GPUs than the one here.
  SmFacts sms;                        // Of the first GPU.
  std::uint64_t context_bytes = 0;    // What a context takes on it, if only it is shown.
  std::vector<flyt::nvml::Gpu> gpus;  // In CUDA's order.
  std::vector<Reach> reach;           // A row for each GPU, with a column for each.

  // kNot for a GPU and itself, and for what is not there.
  Reach reach_of(std::uint32_t from, std::uint32_t to) const {
    const std::size_t at = from * gpus.size() + to;
    return to < gpus.size() && at < reach.size() ? reach[at] : Reach::kNot;
  }
};

// Asks a driver that has been initialised.
Fleet describe(const driver::Table& driver, std::string_view kind, int devices);

// From one process to another, as text.
std::string encode(const Fleet& fleet);
Result<Fleet> decode_fleet(std::string_view text);

}  // namespace flyt::server::nvml
