#include "softgpu/memory/allocation.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

namespace flyt::softgpu {
namespace {

constexpr std::string_view kName = "flyt-softgpu-memory-";
constexpr std::string_view kLinkPrefix = "/memfd:";

}  // namespace

std::optional<Fd> make_memory_file(std::uint64_t size, int device) {
  const std::string name = std::string(kName) + std::to_string(device);
  Fd file(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file.valid() || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return std::nullopt;
  return file;
}

std::optional<std::pair<std::uint64_t, int>> inspect_memory_file(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0) {
    return std::nullopt;
  }
  char target[128];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  if (length <= 0) return std::nullopt;
  std::string_view name(target, static_cast<std::size_t>(length));
  const std::string prefix = std::string(kLinkPrefix) + std::string(kName);
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int device = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), device);
  if (error != std::errc() || device < 0) return std::nullopt;
  return std::pair{static_cast<std::uint64_t>(status.st_size), device};
}

}  // namespace flyt::softgpu
