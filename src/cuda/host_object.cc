#include "cuda/host_object.h"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

namespace flyt::cuda {
namespace {

constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF\x02\x01";  // 64 bits, little-endian.
constexpr std::uint16_t kMachineCuda = 190;
constexpr std::uint32_t kSectionWithoutBytes = 8;
constexpr std::size_t kElfHeaderBytes = 64;
constexpr std::size_t kSectionHeaderBytes = 64;
constexpr std::size_t kFatbinAlignment = 8;

constexpr std::string_view kArchiveMagic = "!<arch>\n";
constexpr std::size_t kMemberHeaderBytes = 60;
constexpr std::size_t kMemberNameBytes = 16;
constexpr std::size_t kMemberSizeAt = 48;
constexpr std::size_t kMemberSizeBytes = 10;

Error invalid(const char* message) { return Error{ErrorCode::kInvalid, message}; }

// Empty if they are not there.
Bytes part(Bytes bytes, std::uint64_t at, std::uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) return {};
  return bytes.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
}

struct Section {
  std::uint32_t name = 0;  // Where it stands among the names.
  Bytes bytes;
};

Result<Section> read_section(Bytes object, Bytes header) {
  Reader reader(header);
  Section section;
  section.name = reader.take<std::uint32_t>();
  const auto type = reader.take<std::uint32_t>();
  reader.take_bytes(16);  // Flags, address.
  const auto at = reader.take<std::uint64_t>();
  const auto size = reader.take<std::uint64_t>();
  if (!reader.ok()) return invalid("object: a section's header is cut off");
  if (type == kSectionWithoutBytes || size == 0) return section;
  section.bytes = part(object, at, size);
  if (section.bytes.empty()) return invalid("object: a section is cut off");
  return section;
}

// Several stand one behind the other where objects were made one.
Result<std::vector<Fatbin>> fatbins_of_section(Bytes bytes, std::vector<Fatbin> fatbins) {
  while (bytes.size() >= kFatbinHeaderBytes) {
    if (fatbins.size() == kObjectFatbinsMax) {
      return Error{ErrorCode::kLimit, "object: too many fat binaries"};
    }
    Result<Fatbin> fatbin = Fatbin::parse(bytes);
    if (!fatbin) return std::move(fatbin).error();
    fatbins.push_back(std::move(*fatbin));
    Reader reader(bytes);
    reader.take_bytes(6);  // Magic, version.
    const std::size_t header = reader.take<std::uint16_t>();
    const std::size_t whole = header + static_cast<std::size_t>(reader.take<std::uint64_t>());
    const std::size_t next = (whole + kFatbinAlignment - 1) / kFatbinAlignment * kFatbinAlignment;
    if (next >= bytes.size()) break;
    bytes = bytes.subspan(next);
  }
  return fatbins;
}

}  // namespace

Result<std::vector<Fatbin>> fatbins_of_object(Bytes object) {
  if (!text_of(object).starts_with(kElfMagic)) return invalid("object: not a 64-bit ELF file");
  Reader reader(part(object, 0, kElfHeaderBytes));
  reader.take_bytes(18);  // Identification, type.
  const auto machine = reader.take<std::uint16_t>();
  reader.take_bytes(20);  // Version, entry, program headers.
  const auto sections_at = reader.take<std::uint64_t>();
  reader.take_bytes(10);  // Flags, sizes of headers.
  const auto section_bytes = reader.take<std::uint16_t>();
  const auto sections = reader.take<std::uint16_t>();
  const auto names_index = reader.take<std::uint16_t>();
  if (!reader.ok()) return invalid("object: the header is cut off");
  if (machine == kMachineCuda) return invalid("object: a GPU's, not a host's");
  if (section_bytes != kSectionHeaderBytes || names_index >= sections) {
    return invalid("object: no sections");
  }
  const Bytes headers = part(object, sections_at, std::uint64_t{sections} * kSectionHeaderBytes);
  if (headers.empty()) return invalid("object: the sections' headers are cut off");
  const auto section = [&](std::size_t index) {
    return read_section(object, headers.subspan(index * kSectionHeaderBytes, kSectionHeaderBytes));
  };
  const Result<Section> names = section(names_index);
  if (!names) return names.error();
  std::vector<Fatbin> fatbins;
  for (std::size_t i = 0; i < sections; ++i) {
    const Result<Section> each = section(i);
    if (!each) return each.error();
    if (each->name >= names->bytes.size()) continue;
    const std::string_view rest = text_of(names->bytes).substr(each->name);
    const std::string_view name = rest.substr(0, rest.find('\0'));
    // Code that is compiled in parts, and whole code.
    if (name != "__nv_relfatbin" && name != ".nv_fatbin") continue;
    auto more = fatbins_of_section(each->bytes, std::move(fatbins));
    if (!more) return std::move(more).error();
    fatbins = std::move(*more);
  }
  return fatbins;
}

Result<std::vector<Bytes>> members_of_archive(Bytes archive) {
  if (!text_of(archive).starts_with(kArchiveMagic))
    return invalid("archive: not one, or a thin one");
  std::vector<Bytes> members;
  Bytes rest = archive.subspan(kArchiveMagic.size());
  while (!rest.empty()) {
    if (rest.size() < kMemberHeaderBytes) return invalid("archive: a header is cut off");
    const std::string_view header = text_of(rest.first(kMemberHeaderBytes));
    const std::string_view digits = header.substr(kMemberSizeAt, kMemberSizeBytes);
    std::uint64_t size = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    rest = rest.subspan(kMemberHeaderBytes);
    if (read.ec != std::errc{} || size > rest.size()) return invalid("archive: a file is cut off");
    // Tables of symbols and of long names; other names end in a stroke or stand in the table.
    const std::string_view name = header.substr(0, kMemberNameBytes);
    const bool table =
        name.starts_with("/ ") || name.starts_with("// ") || name.starts_with("/SYM64/ ");
    if (!table) {
      if (members.size() == kArchiveMembersMax) {
        return Error{ErrorCode::kLimit, "archive: too many files"};
      }
      members.push_back(rest.first(static_cast<std::size_t>(size)));
    }
    const std::uint64_t padded = size + size % 2;
    rest = padded >= rest.size() ? Bytes{} : rest.subspan(static_cast<std::size_t>(padded));
  }
  return members;
}

}  // namespace flyt::cuda
