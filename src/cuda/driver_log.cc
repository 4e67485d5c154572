#include "cuda/driver_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"

namespace flyt::cuda {
namespace {

constexpr std::string_view kLost = "[W] earlier messages are lost\n";
constexpr std::string_view kLeftOut = "[W] earlier messages do not fit\n";

bool write_file(const char* path, std::string_view text) {
  const Fd file(::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return false;
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void DriverLog::write(CUlogLevel level, std::string_view text) {
  std::string message = level == CU_LOG_LEVEL_ERROR ? "[E] " : "[W] ";
  message += text.substr(0, kMessageBytesMax - message.size());
  for (char& letter : message) {
    if (letter == '\n') letter = ' ';
  }
  std::vector<Callback> callbacks;
  {
    const Lock lock(mutex_);
    messages_.push_back(message + "\n");
    if (messages_.size() > kMessagesMax) messages_.pop_front();
    ++next_;
    for (const auto& [handle, callback] : callbacks_) callbacks.push_back(callback);
  }
  for (const Callback& callback : callbacks) {
    callback.function(callback.data, level, message.data(), message.size());
  }
}

CUresult DriverLog::register_callback(CUlogsCallback callback, void* data,
                                      CUlogsCallbackHandle* out) {
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  if (callbacks_.size() == kCallbacksMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t number = next_callback_++;
  callbacks_.emplace(number, Callback{callback, data});
  if (out != nullptr) *out = static_cast<CUlogsCallbackHandle>(pointer_at(number));
  return CUDA_SUCCESS;
}

CUresult DriverLog::unregister_callback(CUlogsCallbackHandle handle) {
  const Lock lock(mutex_);
  return callbacks_.erase(address_of(handle)) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult DriverLog::current(CUlogIterator* out, unsigned int flags) const {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  *out = next_;
  return CUDA_SUCCESS;
}

CUlogIterator DriverLog::begin_of(const CUlogIterator* iterator) const {
  const auto oldest = static_cast<CUlogIterator>(next_ - messages_.size());
  if (iterator == nullptr) return oldest;
  // Numbers wrap around; one that is not among those kept is before or behind all of them.
  const CUlogIterator behind = next_ - *iterator;
  if (behind <= messages_.size()) return *iterator;
  return behind <= std::numeric_limits<CUlogIterator>::max() / 2 ? oldest : next_;
}

std::string DriverLog::text_from(CUlogIterator begin, bool lost, std::size_t bytes_max) const {
  const std::size_t wanted = next_ - begin;
  std::size_t bytes = lost ? kLost.size() : 0;
  std::size_t fitting = 0;
  while (fitting < wanted &&
         bytes + messages_[messages_.size() - 1 - fitting].size() <= bytes_max) {
    bytes += messages_[messages_.size() - 1 - fitting++].size();
  }
  std::string text(lost ? kLost : "");
  if (fitting < wanted) {
    text = kLeftOut;
    while (fitting > 0 && text.size() + bytes > bytes_max) {
      bytes -= messages_[messages_.size() - fitting--].size();
    }
    if (fitting == 0) return {};
  }
  for (std::size_t i = messages_.size() - fitting; i < messages_.size(); ++i) text += messages_[i];
  return text;
}

CUresult DriverLog::dump_to_file(CUlogIterator* iterator, const char* path, unsigned int flags) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  {
    const Lock lock(mutex_);
    const CUlogIterator begin = begin_of(iterator);
    text = text_from(begin, iterator != nullptr && begin != *iterator && begin != next_,
                     std::numeric_limits<std::size_t>::max());
    if (iterator != nullptr && begin != next_) *iterator = next_;
  }
  return write_file(path, text) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult DriverLog::dump_to_memory(CUlogIterator* iterator, char* buffer, std::size_t* size,
                                   unsigned int flags) {
  if (buffer == nullptr || size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  const CUlogIterator begin = begin_of(iterator);
  const bool nothing = begin == next_;
  if (*size == 0) return nothing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const bool lost = iterator != nullptr && begin != *iterator && begin != next_;
  const std::string text = text_from(begin, lost, *size - 1);
  *size = text.size();
  // As natively, the buffer is left as it is then, and the iterator too.
  if (text.empty()) return nothing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  if (iterator != nullptr) *iterator = next_;
  return CUDA_SUCCESS;
}

}  // namespace flyt::cuda
