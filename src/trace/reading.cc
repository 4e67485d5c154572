#include "trace/reading.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace flyt::trace {
namespace {

Error broken(std::string_view why) {
  return {ErrorCode::kInvalid, "not a recording of flyt: " + std::string(why)};
}

std::string text_of_field(std::span<const char> field) {
  std::string text;
  for (const char letter : field) {
    if (letter == '\0') break;
    text += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return text;
}

void read_calls(Reader& reader, const Header& header, std::vector<CallRow>& calls,
                std::vector<CommandRow>& commands) {
  for (std::uint32_t i = 0; i < header.calls; ++i) {
    const Name name = reader.take<Name>();
    calls.push_back({text_of_field(name.text), (name.flags & kSyncPoint) != 0, {}});
  }
  for (std::uint32_t i = 0; i < header.commands; ++i) {
    commands.push_back({text_of_field(reader.take<Name>().text), {}});
  }
  for (CallRow& row : calls) reader.read(row.counters);
  for (CommandRow& row : commands) reader.read(row.counters);
}

}  // namespace

Result<Process> parse(Bytes file) {
  Reader reader(file);
  const Header header = reader.take<Header>();
  // The version is its last letter.
  const bool same = std::equal(kMagic.begin(), kMagic.end() - 1, header.magic.begin());
  if (!reader.ok() || !same) return broken("it begins otherwise");
  if (header.magic != kMagic) {
    return Error{ErrorCode::kUnsupported, "a recording of another version of flyt, which reads it"};
  }
  if (header.calls == 0 || header.calls > kCallsMax || header.commands > kCommandsMax ||
      header.events_max > kEventsMax) {
    return broken("a number beyond its limit");
  }
  if (file.size() != bytes_of_recording(header.calls, header.commands, header.events_max)) {
    return broken("its size is wrong");
  }
  Process out{.process = header.process,
              .program = text_of_field(header.program),
              .started_ns = header.started_ns,
              .ended_ns = std::max(header.started_ns, header.ended_ns)};
  read_calls(reader, header, out.calls, out.commands);
  const std::uint64_t kept = std::min(header.events_begun, header.events_max);
  out.events_dropped = header.events_max == 0 ? 0 : header.events_begun - kept;
  for (std::uint64_t i = 0; i < kept; ++i) {
    const Event event = reader.take<Event>();
    const bool whole = event.written == 1 && event.call < header.calls &&
                       event.kind <= Kind::kRefused && event.wait_ns <= event.call_ns;
    if (whole) out.events.push_back(event);
  }
  return out;
}

Result<Process> read_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  const auto most = bytes_of_recording(kCallsMax, kCommandsMax, kEventsMax);
  if (size < 0) return system_error("cannot read " + path, errno);
  if (static_cast<std::uint64_t>(size) > most) {
    return Error{ErrorCode::kLimit, path + ": too large for a recording of flyt"};
  }
  std::vector<char> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return Error{ErrorCode::kNotFound, "cannot read " + path};
  Result<Process> process = parse(bytes_at(bytes.data(), bytes.size()));
  if (process) return process;
  return Error{process.error().code, path + ": " + process.error().message};
}

}  // namespace flyt::trace
