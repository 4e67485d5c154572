#include "base/roll.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace flyt {
namespace {

// Behind all places; locks may lie beyond a file's end.
constexpr std::size_t kDoor = Roll::kPlacesMax;

struct flock bytes_of(short type, std::size_t first, std::size_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(first);
  lock.l_len = static_cast<off_t>(count);
  return lock;
}

}  // namespace

Result<Roll> Roll::open(const std::string& path, std::size_t bytes) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return system_error("cannot open " + path, errno);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return system_error(path, errno);
  if (!S_ISREG(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0) {
    return Error{ErrorCode::kDenied, path + " is no file of this user's alone"};
  }
  // A page that the disk has no room for when it is first touched ends the process.
  const int made = ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes));
  if (made != 0 && errno != EOPNOTSUPP) return system_error("cannot write " + path, errno);
  if (made != 0 && static_cast<std::size_t>(found.st_size) < bytes &&
      ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("cannot write " + path, errno);
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return system_error("mapping " + path, errno);
  return Roll(std::move(file), memory, bytes);
}

Roll::Roll(Roll&& other) noexcept
    : file_(std::move(other.file_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

Roll::~Roll() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

std::optional<std::size_t> Roll::take(std::size_t first, std::size_t end) const {
  for (std::size_t place = first; place < end && place < kPlacesMax; ++place) {
    struct flock lock = bytes_of(F_WRLCK, place, 1);
    if (::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0) return place;
  }
  return std::nullopt;
}

void Roll::leave(std::size_t place) const {
  struct flock lock = bytes_of(F_UNLCK, place, 1);
  ::fcntl(file_.get(), F_OFD_SETLK, &lock);
}

bool Roll::taken(std::size_t place) const { return next_taken(place, place + 1).has_value(); }

std::optional<std::size_t> Roll::next_taken(std::size_t place, std::size_t count) const {
  if (place >= count) return std::nullopt;
  struct flock lock = bytes_of(F_WRLCK, place, count - place);
  // The system tells one of the locks that are in the way, which need not be the first.
  std::optional<std::size_t> found;
  while (::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
    found = std::max(place, static_cast<std::size_t>(lock.l_start));
    if (*found == place) break;
    lock = bytes_of(F_WRLCK, place, *found - place);
  }
  return found;
}

Roll::Door::Door(const Roll& roll) : roll_(roll) {
  struct flock lock = bytes_of(F_WRLCK, kDoor, 1);
  while (::fcntl(roll_.file_.get(), F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

Roll::Door::~Door() {
  struct flock lock = bytes_of(F_UNLCK, kDoor, 1);
  ::fcntl(roll_.file_.get(), F_OFD_SETLK, &lock);
}

}  // namespace flyt
