#include "cuda/core_dump.h"

#include <unistd.h>

#include <array>
#include <cstring>

namespace flyt::cuda {
namespace {

std::string default_pipe() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return std::string("corepipe.cuda.") + host.data() + "." + std::to_string(::getpid());
}

std::size_t bytes_of(CUcoredumpSettings attribute) {
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return sizeof(bool);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
      return CoreDumpSettings::kNameBytes;
    case CU_COREDUMP_GENERATION_FLAGS:
      return sizeof(unsigned int);
    case CU_COREDUMP_MAX:
      break;
  }
  return 0;
}

template <class T>
CUresult give(const T& from, void* value, std::size_t* size) {
  if (*size < sizeof from) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, &from, sizeof from);
  *size = sizeof from;
  return CUDA_SUCCESS;
}

CUresult give_name(const std::string& name, void* value, std::size_t* size) {
  if (*size < name.size() + 1) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, name.c_str(), name.size() + 1);
  *size = name.size() + 1;
  return CUDA_SUCCESS;
}

template <class T>
T taken(const void* value) {
  T result;
  std::memcpy(&result, value, sizeof result);
  return result;
}

bool take_name(const void* value, std::size_t size, std::string& name) {
  const auto* text = static_cast<const char*>(value);
  const std::size_t length = ::strnlen(text, size);
  if (length >= CoreDumpSettings::kNameBytes) return false;
  name.assign(text, length);
  return true;
}

}  // namespace

const CoreDumpSettings::Values& CoreDumpSettings::values(CUcontext context) const {
  const auto found = own_.find(context);
  return found == own_.end() ? global_ : found->second;
}

CUresult CoreDumpSettings::get(CUcontext context, CUcoredumpSettings attribute, void* value,
                               std::size_t* size) {
  const std::size_t bytes = bytes_of(attribute);
  if (size == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (value == nullptr) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  const Lock lock(mutex_);
  const Values& present = values(context);
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return give(false, value, size);
    case CU_COREDUMP_TRIGGER_HOST:
      return give(present.trigger_host, value, size);
    case CU_COREDUMP_LIGHTWEIGHT:
      return give(present.lightweight, value, size);
    case CU_COREDUMP_FILE:
      return give_name(present.file, value, size);
    case CU_COREDUMP_PIPE:
      return give_name(present.pipe.empty() ? default_pipe() : present.pipe, value, size);
    case CU_COREDUMP_GENERATION_FLAGS:
      return give(present.flags, value, size);
    case CU_COREDUMP_MAX:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult CoreDumpSettings::set(CUcontext context, CUcoredumpSettings attribute, void* value,
                               std::size_t* size) {
  const std::size_t bytes = bytes_of(attribute);
  if (size == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (value == nullptr) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  const bool name = attribute == CU_COREDUMP_FILE || attribute == CU_COREDUMP_PIPE;
  if (*size == 0 || (!name && *size < bytes)) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  Values next = values(context);
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return taken<unsigned char>(value) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_COREDUMP_TRIGGER_HOST:
      next.trigger_host = taken<unsigned char>(value) != 0;
      break;
    case CU_COREDUMP_LIGHTWEIGHT:
      next.lightweight = taken<unsigned char>(value) != 0;
      break;
    case CU_COREDUMP_FILE:
      if (!take_name(value, *size, next.file)) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_COREDUMP_PIPE:
      if (context != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      if (!take_name(value, *size, next.pipe)) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_COREDUMP_GENERATION_FLAGS:
      next.flags = taken<unsigned int>(value);
      break;
    case CU_COREDUMP_MAX:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (context == nullptr) {
    global_ = std::move(next);
  } else {
    own_[context] = std::move(next);
  }
  return CUDA_SUCCESS;
}

void CoreDumpSettings::end(CUcontext context) {
  const Lock lock(mutex_);
  own_.erase(context);
}

}  // namespace flyt::cuda
