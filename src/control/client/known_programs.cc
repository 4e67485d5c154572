#include "control/client/known_programs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "control/settings/settings.h"

namespace flyt::vm {
namespace {

constexpr std::size_t kNameBytesMax = 256;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class T>
bool take_number(std::string_view& line, T& out) {
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), out);
  if (error != std::errc() || stop == line.data() + line.size() || *stop != ' ') return false;
  line.remove_prefix(static_cast<std::size_t>(stop - line.data()) + 1);
  return true;
}

}  // namespace

std::optional<std::uint64_t> start_of_process(std::int32_t process) {
  const std::string text = contents("/proc/" + std::to_string(process) + "/stat");
  // The name, in parentheses, may hold anything; the state behind it is the third field, the start
  // the 22nd.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    if (!(fields >> field)) return std::nullopt;
    if (i == 3 && (field == "Z" || field == "X")) return std::nullopt;
  }
  std::uint64_t start = 0;
  std::from_chars(field.data(), field.data() + field.size(), start);
  return start;
}

bool runs(const KnownProgram& program) {
  return start_of_process(program.process) == program.start;
}

std::string text_of(const std::vector<KnownProgram>& programs) {
  std::string text;
  for (const KnownProgram& one : programs) {
    std::string name = one.name.substr(0, kNameBytesMax);
    std::replace(name.begin(), name.end(), '\n', '?');
    text += std::to_string(one.process) + " " + std::to_string(one.start) + " " +
            std::to_string(one.user) + " " + name + "\n";
  }
  return text;
}

KnownPrograms programs_of(std::string_view text) {
  KnownPrograms known;
  while (!text.empty() && known.programs.size() < kKnownProgramsMax) {
    const std::size_t end = text.find('\n');
    // A line without its end was cut off.
    if (end == std::string_view::npos) {
      ++known.senseless;
      break;
    }
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    KnownProgram one;
    if (!take_number(line, one.process) || !take_number(line, one.start) ||
        !take_number(line, one.user) || one.process <= 0) {
      ++known.senseless;
      continue;
    }
    one.name = line.substr(0, kNameBytesMax);
    known.programs.push_back(std::move(one));
  }
  return known;
}

Status write_programs(const std::string& path, const std::vector<KnownProgram>& programs) {
  const std::string next = path + ".next";
  const std::string text = text_of(programs);
  const Fd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return system_error("cannot write " + next, errno);
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t wrote = ::write(file.get(), text.data() + sent, text.size() - sent);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("cannot write " + next, errno);
    sent += static_cast<std::size_t>(wrote);
  }
  if (std::rename(next.c_str(), path.c_str()) != 0) {
    return system_error("cannot write " + path, errno);
  }
  return {};
}

Result<KnownPrograms> read_programs(const std::string& path) {
  // Asked first: where it comes about meanwhile it is read.
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 && errno == ENOENT) return KnownPrograms{};
  const auto text = control::read_file(path);
  if (!text) return text.error();
  KnownPrograms known = programs_of(*text);
  std::erase_if(known.programs, [](const KnownProgram& one) { return !runs(one); });
  return known;
}

}  // namespace flyt::vm
