#include "server/parent/process_state.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace flyt::server {
namespace {

// The start of a file of /proc; empty: there is no such process.
std::string facts(pid_t process, std::string_view name) {
  const std::string path = "/proc/" + std::to_string(process) + "/" + std::string(name);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  return got <= 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(got));
}

}  // namespace

bool has_ended(pid_t process) {
  if (process <= 0 || (::kill(process, 0) != 0 && errno == ESRCH)) return true;
  const std::string stat = facts(process, "stat");
  // The name, in parentheses, may hold anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  // proc(5) counts from 1: the state is the third, the number of threads the twentieth.
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  std::string threads;
  fields >> state;
  for (int i = 4; i <= 20; ++i) fields >> threads;
  return (state == "Z" || state == "X") && threads == "1";
}

bool is_ending(pid_t process) { return facts(process, "statm").starts_with("0 "); }

}  // namespace flyt::server
