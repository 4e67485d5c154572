// NvmlGpus: the machine's GPUs as NVIDIA's management library tells of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/node/lease.h"

namespace flyt::node {

struct GpuXid {
  std::optional<std::uint32_t> gpu;  // None: NVML's name for it is not known.
  std::uint32_t number = 0;          // As xid_number() has it.
};

// Not thread-safe; several of them may be used at once.
class NvmlGpus {
 public:
  // `library`: its path; empty: where drivers put it. kNotFound: there is none, or no driver, with
  // what to do.
  static Result<std::unique_ptr<NvmlGpus>> open(const std::string& library);
  ~NvmlGpus();
  NvmlGpus(const NvmlGpus&) = delete;
  NvmlGpus& operator=(const NvmlGpus&) = delete;

  // Of those that are lost it is empty.
  Result<std::vector<std::string>> uuids() const;
  GpuFailures failures() const;

  struct Listening {
    std::size_t gpus = 0;                       // That are heard.
    std::map<std::uint32_t, std::string> deaf;  // Others, and why not.
  };
  // Xids are kept from now on; those before are forgotten. May be called again.
  Listening listen();
  // The next one, after listen(); none: there was none for so long. An error: nothing is heard
  // before it is called again.
  Result<std::optional<GpuXid>> hear(Duration patience);

 private:
  struct Functions;
  explicit NvmlGpus(std::unique_ptr<Functions> functions);
  static Result<std::unique_ptr<Functions>> load(const std::string& library);

  struct Events;

  const std::unique_ptr<Functions> nvml_;
  const std::unique_ptr<Events> events_;
};

}  // namespace flyt::node
