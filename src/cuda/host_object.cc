#include "cuda/host_object.h"

#include <charconv>
#include <cstdint>
#include <optional>
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
// Where code lies that is to be linked, with the zero behind its name.
constexpr std::string_view kCodeSection("__nv_relfatbin", 15);

constexpr std::string_view kArchiveMagic = "!<arch>\n";
constexpr std::size_t kMemberHeaderBytes = 60;
constexpr std::size_t kMemberSizeAt = 48;
constexpr std::size_t kMemberSizeBytes = 10;
constexpr std::string_view kMemberHeaderEnd = "`\n";

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
std::optional<Error> add_fatbins(Bytes section, std::vector<Fatbin>& fatbins) {
  while (section.size() >= kFatbinHeaderBytes) {
    if (fatbins.size() == kObjectFatbinsMax) {
      return Error{ErrorCode::kLimit, "object: too many fat binaries"};
    }
    Result<Fatbin> fatbin = Fatbin::parse(section);
    if (!fatbin) {
      const bool limit = fatbin.error().code == ErrorCode::kLimit;
      return Error{limit ? ErrorCode::kLimit : ErrorCode::kInvalid, fatbin.error().message};
    }
    fatbins.push_back(std::move(*fatbin));
    Reader reader(section);
    reader.take_bytes(6);  // Magic, version.
    // No more than the section has, or it were no fat binary.
    const std::size_t header = reader.take<std::uint16_t>();
    const std::size_t whole = header + static_cast<std::size_t>(reader.take<std::uint64_t>());
    const std::size_t next = (whole + kFatbinAlignment - 1) / kFatbinAlignment * kFatbinAlignment;
    if (next >= section.size()) break;
    section = section.subspan(next);
  }
  return std::nullopt;
}

struct Sections {
  Bytes headers;
  Bytes names;
  std::size_t count() const { return headers.size() / kSectionHeaderBytes; }
  Bytes header(std::size_t index) const {
    return headers.subspan(index * kSectionHeaderBytes, kSectionHeaderBytes);
  }
};

Result<Sections> sections_of(Bytes object) {
  if (!text_of(object).starts_with(kElfMagic)) {
    return Error{ErrorCode::kUnsupported, "object: not a 64-bit ELF file"};
  }
  Reader reader(part(object, 0, kElfHeaderBytes));
  reader.take_bytes(18);  // Identification, type.
  const auto machine = reader.take<std::uint16_t>();
  reader.take_bytes(20);  // Version, entry, program headers.
  const auto at = reader.take<std::uint64_t>();
  reader.take_bytes(10);  // Flags, sizes of headers.
  const auto header_bytes = reader.take<std::uint16_t>();
  const auto count = reader.take<std::uint16_t>();
  const auto names = reader.take<std::uint16_t>();
  if (!reader.ok()) return invalid("object: the header is cut off");
  if (machine == kMachineCuda) return Error{ErrorCode::kUnsupported, "object: a GPU's, no host's"};
  if (count == 0 && at != 0) {
    return Error{ErrorCode::kLimit, "object: more sections than its header can count"};
  }
  if (header_bytes != kSectionHeaderBytes || names >= count) return invalid("object: no sections");
  Sections sections;
  sections.headers = part(object, at, std::uint64_t{count} * kSectionHeaderBytes);
  if (sections.headers.empty()) return invalid("object: the sections' headers are cut off");
  Result<Section> section = read_section(object, sections.header(names));
  if (!section) return std::move(section).error();
  sections.names = section->bytes;
  return sections;
}

}  // namespace

Result<std::vector<Fatbin>> fatbins_of_object(Bytes object) {
  const Result<Sections> sections = sections_of(object);
  if (!sections) return sections.error();
  std::vector<Fatbin> fatbins;
  std::size_t code_bytes = 0;
  for (std::size_t i = 0; i < sections->count(); ++i) {
    const Result<Section> section = read_section(object, sections->header(i));
    if (!section) return section.error();
    if (section->name >= sections->names.size()) continue;
    if (!text_of(sections->names).substr(section->name).starts_with(kCodeSection)) continue;
    // Those that lie over each other would make much of few bytes.
    if (section->bytes.size() > object.size() - code_bytes) {
      return invalid("object: sections lie over each other");
    }
    code_bytes += section->bytes.size();
    if (auto bad = add_fatbins(section->bytes, fatbins)) return *std::move(bad);
  }
  return fatbins;
}

Result<std::vector<Bytes>> members_of_archive(Bytes archive) {
  if (!text_of(archive).starts_with(kArchiveMagic)) {
    return invalid("archive: not one, or a thin one");
  }
  std::vector<Bytes> members;
  Bytes rest = archive.subspan(kArchiveMagic.size());
  while (!rest.empty()) {
    if (rest.size() < kMemberHeaderBytes) return invalid("archive: a header is cut off");
    const std::string_view header = text_of(rest.first(kMemberHeaderBytes));
    if (!header.ends_with(kMemberHeaderEnd)) return invalid("archive: a header is damaged");
    const std::string_view digits = header.substr(kMemberSizeAt, kMemberSizeBytes);
    std::uint64_t size = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    const std::string_view behind =
        digits.substr(static_cast<std::size_t>(read.ptr - digits.data()));
    if (read.ec != std::errc{} || behind.find_first_not_of(' ') != std::string_view::npos) {
      return invalid("archive: a file's size is no number");
    }
    rest = rest.subspan(kMemberHeaderBytes);
    if (size > rest.size()) return invalid("archive: a file is cut off");
    // Tables of symbols and of long names; other names end in a stroke or stand in the table.
    const bool table =
        header.starts_with("/ ") || header.starts_with("// ") || header.starts_with("/SYM64/ ");
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
