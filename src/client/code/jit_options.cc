#include "client/code/jit_options.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "client/call.h"

namespace flyt::client {
namespace {

constexpr unsigned int kOptionsMax = 64;
// What the server keeps of a log.
constexpr std::uint64_t kLogBytesMax = 64 * kKiB;
constexpr std::uint64_t kAskedLogBytes = 1 * kKiB;

// An option's value lies in the low bytes of its slot.
std::uint64_t plain(void* slot) { return address_of(slot); }

}  // namespace

void JitOptions::add(CUjit_option option, std::uint64_t value) {
  options_.push_back(static_cast<std::int32_t>(option));
  values_.push_back(value);
}

CUresult JitOptions::take(unsigned int count, const CUjit_option* options, void** values) {
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr || values == nullptr || count > kOptionsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_WALL_TIME:
        wall_time_slot_ = &values[i];
        add(options[i], 0);
        break;
      case CU_JIT_THREADS_PER_BLOCK:
        threads_slot_ = &values[i];
        add(options[i], plain(values[i]));
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.bytes = plain(values[i]) & UINT32_MAX;
        info_.size_slot = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.bytes = plain(values[i]) & UINT32_MAX;
        error_.size_slot = &values[i];
        break;
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_GLOBAL_SYMBOL_COUNT:
      case CU_JIT_REFERENCED_KERNEL_NAMES:
      case CU_JIT_REFERENCED_KERNEL_COUNT:
      case CU_JIT_REFERENCED_VARIABLE_NAMES:
      case CU_JIT_REFERENCED_VARIABLE_COUNT:
        return refused("CUjit_option", "options that name symbols are not remoted");
      default:
        if (static_cast<int>(options[i]) < 0 || options[i] >= CU_JIT_NUM_OPTIONS) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        add(options[i], plain(values[i]));
        break;
    }
  }
  const bool wants_info = info_.text != nullptr && info_.bytes != 0;
  const bool wants_error = error_.text != nullptr && error_.bytes != 0;
  if (wants_info) {
    add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, std::min(info_.bytes, kLogBytesMax));
  }
  if (wants_error) {
    add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, std::min(error_.bytes, kLogBytesMax));
  }
  return CUDA_SUCCESS;
}

bool JitOptions::ask_for_errors() {
  if (error_.text != nullptr) return false;
  add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, kAskedLogBytes);
  return true;
}

void JitOptions::fill(const LogBuffer& log, std::string_view text) {
  if (log.text == nullptr || log.bytes == 0) return;
  const std::size_t length = std::min<std::size_t>(text.size(), log.bytes - 1);
  std::memcpy(log.text, text.data(), length);
  log.text[length] = '\0';
  if (log.size_slot != nullptr) *log.size_slot = pointer_at(length);
}

void JitOptions::deliver(std::string_view info_log, std::string_view error_log, float wall_time) {
  fill(info_, info_log);
  fill(error_, error_log);
  if (wall_time_slot_ != nullptr) std::memcpy(wall_time_slot_, &wall_time, sizeof wall_time);
}

void JitOptions::deliver_threads_per_block(std::uint32_t threads) {
  if (threads_slot_ != nullptr) *threads_slot_ = pointer_at(threads);
}

}  // namespace flyt::client
