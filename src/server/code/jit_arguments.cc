#include "server/code/jit_arguments.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kLogBytesMax = 64 * kKiB;

bool carries_pointer(CUjit_option option) {
  switch (option) {
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
      return true;
    default:
      return false;
  }
}

}  // namespace

void JitArguments::add(CUjit_option option, void* value) {
  options_.push_back(option);
  values_.push_back(value);
}

void JitArguments::add_log(CUjit_option buffer, CUjit_option size, std::uint64_t bytes,
                           std::vector<char>& log) {
  log.assign(std::clamp<std::uint64_t>(bytes, 1, kLogBytesMax), '\0');
  add(buffer, log.data());
  add(size, pointer_at(log.size()));
}

bool JitArguments::take(const wire::List<std::int32_t>& options,
                        const wire::List<std::uint64_t>& values) {
  if (options.size() != values.size()) return false;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto option = static_cast<CUjit_option>(options[i]);
    if (options[i] < 0 || option >= CU_JIT_NUM_OPTIONS || carries_pointer(option)) return false;
    if (option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
      if (!info_.empty()) return false;
      add_log(CU_JIT_INFO_LOG_BUFFER, option, values[i], info_);
    } else if (option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      if (!error_.empty()) return false;
      add_log(CU_JIT_ERROR_LOG_BUFFER, option, values[i], error_);
    } else {
      add(option, pointer_at(values[i]));
    }
  }
  return true;
}

std::string_view JitArguments::text(const std::vector<char>& log) {
  if (log.empty()) return {};
  return {log.data(), ::strnlen(log.data(), log.size())};
}

float JitArguments::wall_time() const {
  float time = 0;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i] == CU_JIT_WALL_TIME) std::memcpy(&time, &values_[i], sizeof time);
  }
  return time;
}

std::uint32_t JitArguments::threads_per_block() const {
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i] == CU_JIT_THREADS_PER_BLOCK) {
      return static_cast<std::uint32_t>(address_of(values_[i]));
    }
  }
  return 0;
}

}  // namespace flyt::server
