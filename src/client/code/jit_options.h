// JitOptions: the option arrays of module, library and link calls, taken apart.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda/types.h"

namespace flyt::client {

// Options that carry a plain value go to the server; buffers and results stay here. Belongs to one
// thread at a time.
class JitOptions {
 public:
  JitOptions() = default;

  // The arrays as a program passes them; `values` is written by the deliver calls, so it must live
  // as long as this. CUDA_ERROR_INVALID_VALUE for null arrays and unknown options;
  // CUDA_ERROR_NOT_SUPPORTED for options that hand over pointers other than logs.
  CUresult take(unsigned int count, const CUjit_option* options, void** values);

  // Has the errors told where the program does not ask for them; false where it does.
  bool ask_for_errors();

  const std::vector<std::int32_t>& options() const { return options_; }
  const std::vector<std::uint64_t>& values() const { return values_; }

  // Results into the program's buffers and value slots.
  void deliver(std::string_view info_log, std::string_view error_log, float wall_time);
  void deliver_threads_per_block(std::uint32_t threads);

 private:
  struct LogBuffer {
    char* text = nullptr;
    std::uint64_t bytes = 0;
    void** size_slot = nullptr;
  };
  void add(CUjit_option option, std::uint64_t value);
  static void fill(const LogBuffer& log, std::string_view text);

  std::vector<std::int32_t> options_;
  std::vector<std::uint64_t> values_;
  LogBuffer info_;
  LogBuffer error_;
  void** wall_time_slot_ = nullptr;
  void** threads_slot_ = nullptr;
};

}  // namespace flyt::client
