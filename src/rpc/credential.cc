#include "rpc/credential.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/fd.h"
#include "wire/limits.h"

namespace flyt::rpc {
namespace {

std::string without_white_space(std::string_view text) {
  constexpr std::string_view kWhite = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kWhite) - first + 1));
}

Result<std::string> read_file(const char* path) {
  const auto failed = [&](int error) {
    return system_error("cannot read the token in " + std::string(path), error);
  };
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return failed(errno);
  std::array<char, wire::kHelloTextBytesMax + 1> bytes;
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size == bytes.size()) return failed(EFBIG);
  return without_white_space({bytes.data(), size});
}

}  // namespace

Result<std::string> own_credential() {
  if (const char* token = ::getenv("FLYT_TOKEN"); token != nullptr && *token != '\0') {
    return without_white_space(token);
  }
  const char* path = ::getenv("FLYT_TOKEN_FILE");
  return path == nullptr || *path == '\0' ? Result<std::string>(std::string()) : read_file(path);
}

}  // namespace flyt::rpc
