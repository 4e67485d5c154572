// NvmlGpus: the machine's GPUs as NVIDIA's management library tells of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/node/lease.h"

namespace flyt::node {

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

 private:
  struct Functions;
  explicit NvmlGpus(std::unique_ptr<Functions> functions);
  static Result<std::unique_ptr<Functions>> load(const std::string& library);

  const std::unique_ptr<Functions> nvml_;
};

}  // namespace flyt::node
