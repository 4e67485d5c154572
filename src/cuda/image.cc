#include "cuda/image.h"

#include <cstring>
#include <string>

#include "cuda/fatbin.h"

namespace flyt::cuda {
namespace {

constexpr std::uint32_t kElfMagic = 0x464C457F;
constexpr std::size_t kElfHeaderBytes = 64;
constexpr std::uint8_t kElfClass64 = 2;
constexpr std::uint32_t kSectionNoBits = 8;
constexpr std::size_t kLinkedMax = 4096;

struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* header;
  const void* const* linked;
};
static_assert(sizeof(Wrapper) == 24);

struct ElfHeader {
  std::uint8_t ident[16];
  std::uint16_t type;
  std::uint16_t machine;
  std::uint32_t version;
  std::uint64_t entry;
  std::uint64_t program_at;
  std::uint64_t section_at;
  std::uint32_t flags;
  std::uint16_t header_bytes;
  std::uint16_t program_entry_bytes;
  std::uint16_t programs;
  std::uint16_t section_entry_bytes;
  std::uint16_t sections;
  std::uint16_t name_section;
};
static_assert(sizeof(ElfHeader) == kElfHeaderBytes);

struct ElfSection {
  std::uint32_t name;
  std::uint32_t type;
  std::uint64_t flags;
  std::uint64_t address;
  std::uint64_t offset;
  std::uint64_t size;
  std::uint32_t link;
  std::uint32_t info;
  std::uint64_t align;
  std::uint64_t entry_bytes;
};
static_assert(sizeof(ElfSection) == 64);

struct ElfProgram {
  std::uint32_t type;
  std::uint32_t flags;
  std::uint64_t offset;
  std::uint64_t address;
  std::uint64_t physical;
  std::uint64_t file_bytes;
  std::uint64_t memory_bytes;
  std::uint64_t align;
};
static_assert(sizeof(ElfProgram) == 56);

Error invalid(std::string_view what) { return {ErrorCode::kInvalid, std::string(what)}; }

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The end of [offset, offset + size), or 0 where that is more than a cubin may have.
std::uint64_t end_of(std::uint64_t offset, std::uint64_t size) {
  if (offset > kCubinBytesMax || size > kCubinBytesMax - offset) return 0;
  return offset + size;
}

// Measures a cubin whose tables lie within the first `limit` bytes at `data`.
Result<std::size_t> elf_bytes(const std::byte* data, std::size_t limit) {
  if (limit < kElfHeaderBytes) return invalid("cubin: cut off");
  const auto header = load<ElfHeader>(data);
  if (header.ident[4] != kElfClass64) return invalid("cubin: not a 64-bit ELF");
  const std::uint64_t sections_end =
      end_of(header.section_at, std::uint64_t{header.sections} * sizeof(ElfSection));
  const std::uint64_t programs_end =
      end_of(header.program_at, std::uint64_t{header.programs} * sizeof(ElfProgram));
  if ((header.sections != 0 && header.section_entry_bytes != sizeof(ElfSection)) ||
      (header.programs != 0 && header.program_entry_bytes != sizeof(ElfProgram)) ||
      sections_end > limit || programs_end > limit || (sections_end == 0 && header.sections != 0) ||
      (programs_end == 0 && header.programs != 0)) {
    return invalid("cubin: impossible tables");
  }
  std::uint64_t end = kElfHeaderBytes;
  if (header.sections != 0) end = std::max(end, sections_end);
  if (header.programs != 0) end = std::max(end, programs_end);
  for (std::size_t i = 0; i < header.sections; ++i) {
    const auto section = load<ElfSection>(data + header.section_at + i * sizeof(ElfSection));
    if (section.type == kSectionNoBits || section.type == 0) continue;
    const std::uint64_t section_end = end_of(section.offset, section.size);
    if (section_end == 0 && section.size != 0) return invalid("cubin: impossible section");
    end = std::max(end, section_end);
  }
  for (std::size_t i = 0; i < header.programs; ++i) {
    const auto program = load<ElfProgram>(data + header.program_at + i * sizeof(ElfProgram));
    const std::uint64_t program_end = end_of(program.offset, program.file_bytes);
    if (program_end == 0 && program.file_bytes != 0) return invalid("cubin: impossible segment");
    end = std::max(end, program_end);
  }
  if (end > limit) return invalid("cubin: longer than its bytes");
  return static_cast<std::size_t>(end);
}

// Header and files of the fat binary at `data`.
Result<Bytes> fatbin_bytes(const std::byte* data) {
  if (data == nullptr) return invalid("fatbin: no header");
  Reader reader(Bytes(data, kFatbinHeaderBytes));
  const auto magic = reader.take<std::uint32_t>();
  reader.take<std::uint16_t>();
  const auto header_bytes = reader.take<std::uint16_t>();
  const auto files_bytes = reader.take<std::uint64_t>();
  if (magic != kFatbinHeaderMagic) return invalid("fatbin: not a fat binary");
  if (header_bytes < kFatbinHeaderBytes || files_bytes > kFatbinBytesMax - header_bytes) {
    return Error{ErrorCode::kLimit, "fatbin: too long"};
  }
  return Bytes(data, header_bytes + static_cast<std::size_t>(files_bytes));
}

Result<Image> wrapped(const std::byte* data) {
  const auto wrapper = load<Wrapper>(data);
  if (wrapper.version != 1 && wrapper.version != 2) {
    return Error{ErrorCode::kUnsupported,
                 "fatbin: unknown wrapper version " + std::to_string(wrapper.version)};
  }
  Result<Bytes> bytes = fatbin_bytes(static_cast<const std::byte*>(wrapper.header));
  if (!bytes) return std::move(bytes).error();
  Image image{ImageKind::kFatbin, *bytes, {}};
  if (wrapper.version == 1 || wrapper.linked == nullptr) return image;
  for (std::size_t i = 0; wrapper.linked[i] != nullptr; ++i) {
    if (i == kLinkedMax) return Error{ErrorCode::kLimit, "fatbin: too many linked fat binaries"};
    Result<Bytes> linked = fatbin_bytes(static_cast<const std::byte*>(wrapper.linked[i]));
    if (!linked) return std::move(linked).error();
    image.linked.push_back(*linked);
  }
  return image;
}

}  // namespace

Result<Image> image_at(const void* data) {
  if (data == nullptr) return invalid("image: null");
  const auto* bytes = static_cast<const std::byte*>(data);
  // PTX may be shorter than a magic number, but never begins with one of these bytes.
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first == (kFatbinWrapperMagic & 0xFF) && load<std::uint32_t>(bytes) == kFatbinWrapperMagic) {
    return wrapped(bytes);
  }
  if (first == (kFatbinHeaderMagic & 0xFF) && load<std::uint32_t>(bytes) == kFatbinHeaderMagic) {
    Result<Bytes> all = fatbin_bytes(bytes);
    if (!all) return std::move(all).error();
    return Image{ImageKind::kFatbin, *all, {}};
  }
  if (first == (kElfMagic & 0xFF) && load<std::uint32_t>(bytes) == kElfMagic) {
    Result<std::size_t> size = elf_bytes(bytes, kCubinBytesMax);
    if (!size) return std::move(size).error();
    return Image{ImageKind::kCubin, Bytes(bytes, *size), {}};
  }
  const void* end = std::memchr(data, 0, kPtxBytesMax);
  if (end == nullptr) return Error{ErrorCode::kLimit, "PTX: too long"};
  const auto size = static_cast<std::size_t>(static_cast<const std::byte*>(end) - bytes);
  if (size == 0) return invalid("image: empty");
  return Image{ImageKind::kPtx, Bytes(bytes, size), {}};
}

Result<Image> image_of(Bytes bytes) {
  const std::uint32_t magic = Reader(bytes).take<std::uint32_t>();
  if (magic == kFatbinWrapperMagic) return invalid("image: a wrapper holds pointers");
  if (magic == kFatbinHeaderMagic) {
    if (bytes.size() < kFatbinHeaderBytes) return invalid("fatbin: the header is cut off");
    Result<Bytes> all = fatbin_bytes(bytes.data());
    if (!all) return std::move(all).error();
    if (all->size() > bytes.size()) return invalid("fatbin: longer than its bytes");
    return Image{ImageKind::kFatbin, *all, {}};
  }
  if (magic == kElfMagic) {
    Result<std::size_t> size = elf_bytes(bytes.data(), bytes.size());
    if (!size) return std::move(size).error();
    return Image{ImageKind::kCubin, bytes.first(*size), {}};
  }
  if (bytes.size() > kPtxBytesMax) return Error{ErrorCode::kLimit, "PTX: too long"};
  const std::size_t size = text_of(bytes).find('\0');
  const Bytes text = size == std::string_view::npos ? bytes : bytes.first(size);
  if (text.empty()) return invalid("image: empty");
  return Image{ImageKind::kPtx, text, {}};
}

}  // namespace flyt::cuda
