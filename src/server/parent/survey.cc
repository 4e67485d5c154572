#include "server/parent/survey.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "server/faults/gpu_return.h"

namespace flyt::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return out;
}

Result<std::size_t> find(const nvml::Fleet& fleet, const std::string& gpu) {
  const auto missing = [&] {
    return Error{ErrorCode::kNotFound,
                 "no GPU " + gpu + ": the driver has " + std::to_string(fleet.gpus.size())};
  };
  std::size_t number = 0;
  const auto parsed = std::from_chars(gpu.data(), gpu.data() + gpu.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == gpu.data() + gpu.size()) {
    if (number < fleet.gpus.size()) return number;
    return missing();
  }
  for (std::size_t i = 0; i < fleet.gpus.size(); ++i) {
    if (lower(flyt::nvml::uuid_text(fleet.gpus[i])) == lower(gpu)) return i;
  }
  return missing();
}

std::uint64_t free_memory(const driver::Table& driver) {
  std::size_t free = 0;
  std::size_t total = 0;
  return driver.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? free : 0;
}

// What a context takes beside what is allocated in it: by how much a second one leaves less free.
std::uint64_t context_bytes(const driver::Table& driver, CUdevice device) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  const CUresult made = once_gpu_is_back([&] { return driver.cuCtxCreate_v2(&first, 0, device); });
  if (made != CUDA_SUCCESS) return 0;
  const std::uint64_t before = free_memory(driver);
  std::uint64_t after = before;
  if (driver.cuCtxCreate_v2(&second, 0, device) == CUDA_SUCCESS) {
    after = free_memory(driver);
    driver.cuCtxDestroy_v2(second);
  }
  driver.cuCtxDestroy_v2(first);
  return before > after ? before - after : 0;
}

}  // namespace

bool valid_lease_id(const std::string& id) {
  return !id.empty() && id.size() <= kLeaseIdBytesMax &&
         std::all_of(id.begin(), id.end(), [](unsigned char letter) {
           return std::isalnum(letter) != 0 || letter == '.' || letter == '_' || letter == '-';
         });
}

Result<nvml::Fleet> survey(const ReadyDriver& driver, const LeaseOptions& lease) {
  nvml::Fleet fleet = nvml::describe(driver.driver.table, driver.kind, driver.devices);
  const bool one =
      !lease.gpu.empty() || lease.memory_bytes != 0 || lease.sms != 0 || !lease.sm_groups.empty();
  std::size_t chosen = 0;
  if (one) {
    const auto found = find(fleet, lease.gpu.empty() ? "0" : lease.gpu);
    if (!found) return found.error();
    chosen = *found;
  }
  const auto device = static_cast<CUdevice>(chosen);
  fleet.sms = sm_facts(driver.driver.table, device);
  if (!one) return fleet;
  const std::size_t count = fleet.gpus.size();
  fleet.reach = {fleet.reach.at(chosen * count + chosen)};
  fleet.gpus = {fleet.gpus[chosen]};
  fleet.only = true;
  fleet.context_bytes = context_bytes(driver.driver.table, device);
  if (lease.memory_bytes > fleet.gpus.front().memory_bytes) {
    return Error{ErrorCode::kLimit, "--memory is more than the GPU has: " +
                                        std::to_string(fleet.gpus.front().memory_bytes) + " bytes"};
  }
  return fleet;
}

// By its UUID: numbers depend on what was visible before.
void show_only(const nvml::Fleet& fleet) {
  if (!fleet.only) return;
  ::setenv("CUDA_VISIBLE_DEVICES", flyt::nvml::uuid_text(fleet.gpus.front()).c_str(), 1);
}

}  // namespace flyt::server
