// DeviceRuntime: what kernels may ask of the device that they run on, launches of kernels above
// all. Source: CUDA Programming Guide, "CUDA Dynamic Parallelism"; cuda_device_runtime_api.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace flyt::ptx {

// The results that kernels get, by their numbers in cudaError_t.
enum class DeviceError : std::int32_t {
  kNone = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidDirection = 21,
  kTooDeep = 65,
  kTooManyPending = 69,
  kInvalidFunction = 98,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kOutOfResources = 701,
  kNotSupported = 801,
};

struct ChildConfig {
  std::uint32_t function = 0;  // In Module::functions().
  std::array<std::uint32_t, 3> grid = {1, 1, 1};
  std::array<std::uint32_t, 3> block = {1, 1, 1};
  std::uint32_t shared_bytes = 0;  // Dynamic.
};

// A copy between two places in the device's memory, or a fill; in rows.
struct ChildCopy {
  std::uint64_t to = 0;
  std::uint64_t to_pitch = 0;
  std::uint64_t from = 0;
  std::uint64_t from_pitch = 0;
  std::uint64_t width = 0;  // Bytes of a row.
  std::uint64_t rows = 1;
  bool fill = false;
  std::uint8_t value = 0;  // Of a fill.
};

// Called from all worker threads of a grid at once. A `thread` is a number that no other thread of
// the grid has.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  // Memory that the parameters of a kernel are written to before it is launched; 0: the kernel
  // cannot be launched like this, and the thread's last error says why.
  virtual std::uint64_t parameter_buffer(std::uint64_t thread, const ChildConfig& config) = 0;
  // Launches what the buffer was got for, once. Children run when their parent has; those of a
  // stream one after the other.
  virtual DeviceError launch(std::uint64_t buffer, std::uint64_t stream) = 0;
  virtual DeviceError copy(const ChildCopy& copy, std::uint64_t stream) = 0;
  // Streams and events only order what is in order anyway, so they are mere numbers.
  virtual std::uint64_t make_handle() = 0;
  virtual bool is_handle(std::uint64_t handle) const = 0;

  virtual void note_error(std::uint64_t thread, DeviceError error) = 0;
  // The thread's last error, which is none afterwards if it was `taken`.
  virtual DeviceError last_error(std::uint64_t thread, bool taken) = 0;
  // Where in the device's memory a text stands, for as long as the grid is there; 0: no room.
  virtual std::uint64_t text_of(DeviceError error, bool name) = 0;

  virtual std::int32_t device() const = 0;
  virtual std::int32_t device_count() const = 0;
  virtual DeviceError attribute(std::int32_t attribute, std::int32_t device,
                                std::int32_t& value) const = 0;
  virtual DeviceError limit(std::int32_t limit, std::uint64_t& value) const = 0;
  // cudaFuncAttributes from its beginning, as words of 4 bytes.
  static constexpr std::size_t kFunctionWords = 19;
  virtual DeviceError function_attributes(std::uint32_t function,
                                          std::span<std::uint32_t, kFunctionWords> words) const = 0;
  virtual DeviceError occupancy(std::uint32_t function, std::int32_t threads,
                                std::uint64_t shared_bytes, std::int32_t& blocks) const = 0;
};

}  // namespace flyt::ptx
