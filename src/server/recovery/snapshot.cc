#include "server/recovery/snapshot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace flyt::server {
namespace {

constexpr std::uint64_t kLayout = 2;
constexpr std::size_t kHeaderBytes = 24;  // Layout, bytes of the directory, variables.
constexpr std::size_t kEntryBytes = 72;   // And a name.

Error damaged() { return {ErrorCode::kInvalid, "what variables held is not as it was written"}; }

bool read_at(const Fd& file, std::uint64_t offset, MutableBytes bytes) {
  while (!bytes.empty()) {
    const auto got = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

void write_entry(Writer& writer, const SavedVariable& variable) {
  writer.write(variable.owner);
  writer.write(variable.address);
  writer.write(variable.bytes);
  writer.write(variable.context);
  writer.write(static_cast<std::uint8_t>(variable.of_library));
  writer.write(static_cast<std::uint8_t>(variable.told));
  writer.write(std::uint16_t{0});
  writer.write(variable.loaded);
  writer.write(static_cast<std::uint64_t>(variable.name.size()));
  writer.write_bytes(bytes_of(variable.name));
}

SavedVariable read_entry(Reader& reader) {
  SavedVariable variable;
  reader.read(variable.owner);
  reader.read(variable.address);
  reader.read(variable.bytes);
  reader.read(variable.context);
  variable.of_library = reader.take<std::uint8_t>() != 0;
  variable.told = reader.take<std::uint8_t>() != 0;
  reader.take<std::uint16_t>();
  reader.read(variable.loaded);
  const auto name_bytes = reader.take<std::uint64_t>();
  if (name_bytes > Snapshot::kNameBytesMax) reader.fail();
  if (reader.ok()) variable.name = text_of(reader.take_bytes(name_bytes));
  return variable;
}

}  // namespace

Snapshot::~Snapshot() {
  if (mapped_ != nullptr) ::munmap(mapped_, kBytes);
}

Result<MutableBytes> Snapshot::begin(std::uint32_t half,
                                     const std::vector<SavedVariable>& variables) {
  std::uint64_t directory = kHeaderBytes;
  std::uint64_t contents = 0;
  for (const SavedVariable& variable : variables) {
    directory += kEntryBytes + variable.name.size();
    const std::uint64_t left = kContentsBytesMax - contents;
    if (directory > kDirectoryBytesMax || variable.bytes > left ||
        variable.name.size() > kNameBytesMax) {
      return Error{ErrorCode::kLimit, "more variables than are saved"};
    }
    contents += variable.bytes;
  }
  if (mapped_ == nullptr) {
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(),
                                static_cast<off_t>(offset_));
    if (mapped == MAP_FAILED) return system_error("mapping a session's snapshot", errno);
    mapped_ = static_cast<std::byte*>(mapped);
  }
  const MutableBytes place(mapped_ + half * kHalfBytes, kHalfBytes);
  Writer writer(place.first(kDirectoryBytesMax));
  writer.write(kLayout);
  writer.write(directory);
  writer.write(static_cast<std::uint64_t>(variables.size()));
  for (const SavedVariable& variable : variables) write_entry(writer, variable);
  return place.subspan(kDirectoryBytesMax, contents);
}

Result<Snapshot::Read> Snapshot::read(const Fd& file, std::uint64_t offset, std::uint32_t half) {
  if (half > 1) return damaged();
  offset += half * kHalfBytes;
  std::vector<std::byte> header(kHeaderBytes);
  if (!read_at(file, offset, header)) return damaged();
  Reader head(header);
  const auto layout = head.take<std::uint64_t>();
  const auto directory_bytes = head.take<std::uint64_t>();
  const auto count = head.take<std::uint64_t>();
  if (layout != kLayout || directory_bytes < kHeaderBytes || directory_bytes > kDirectoryBytesMax ||
      count > directory_bytes / kEntryBytes) {
    return damaged();
  }
  std::vector<std::byte> directory(directory_bytes - kHeaderBytes);
  if (!read_at(file, offset + kHeaderBytes, directory)) return damaged();
  Read found;
  std::uint64_t contents = 0;
  Reader reader(directory);
  for (std::uint64_t i = 0; i < count; ++i) {
    found.variables.push_back(read_entry(reader));
    const std::uint64_t bytes = found.variables.back().bytes;
    if (!reader.ok() || bytes > kContentsBytesMax - contents) return damaged();
    contents += bytes;
  }
  found.contents.resize(contents);
  if (!reader.finished() || !read_at(file, offset + kDirectoryBytesMax, found.contents)) {
    return damaged();
  }
  return found;
}

}  // namespace flyt::server
