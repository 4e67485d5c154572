#include "control/cli/cluster/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd.h"

namespace flyt::cli {

Status write_file(const std::string& path, const std::string& text, unsigned mode, bool replace) {
  if (!replace && ::access(path.c_str(), F_OK) == 0) {
    return Error{ErrorCode::kDenied, path + " is there already; it is not written over"};
  }
  const std::string fresh = path + ".new";
  // One that was left over may belong to somebody else, or be readable for him.
  ::unlink(fresh.c_str());
  {
    const Fd file(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file.valid()) return system_error("cannot write " + fresh, errno);
    const ssize_t size = ::write(file.get(), text.data(), text.size());
    if (size != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0) {
      const Error error = system_error("cannot write " + fresh, errno);
      ::unlink(fresh.c_str());
      return error;
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    return system_error("cannot write " + path, errno);
  }
  return {};
}

}  // namespace flyt::cli
