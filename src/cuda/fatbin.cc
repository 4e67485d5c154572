#include "cuda/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"

namespace flyt::cuda {
namespace {

constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint16_t kKindElf = 2;
constexpr std::uint32_t kCodeFormatPtx = 0x00090000;
constexpr std::uint32_t kCodeFormatElf = 0x00010008;
constexpr std::size_t kPayloadAlign = 8;

Error invalid(std::string_view what) { return {ErrorCode::kInvalid, std::string(what)}; }

FatbinFileKind kind_of(std::uint16_t kind) {
  if (kind == kKindPtx) return FatbinFileKind::kPtx;
  if (kind == kKindElf) return FatbinFileKind::kElf;
  return FatbinFileKind::kOther;
}

// Takes one file off the front of `bytes`.
Result<FatbinFile> parse_file(Bytes bytes) {
  Reader reader(bytes);
  const auto kind = reader.take<std::uint16_t>();
  reader.take<std::uint16_t>();  // The version; newer ones keep this layout.
  const auto header_bytes = reader.take<std::uint32_t>();
  const auto payload_bytes = reader.take<std::uint64_t>();
  const auto packed_bytes = reader.take<std::uint32_t>();
  reader.take_bytes(8);
  const auto sm_version = reader.take<std::uint32_t>();
  reader.take_bytes(8);
  const auto flags = reader.take<std::uint64_t>();
  reader.take_bytes(8);
  const auto unpacked_bytes = reader.take<std::uint64_t>();
  if (!reader.ok()) return invalid("fatbin: a file header is cut off");
  if (header_bytes < kFatbinFileHeaderBytes || header_bytes > bytes.size()) {
    return invalid("fatbin: a file header has an impossible size");
  }
  if (payload_bytes > kFatbinFileBytesMax || payload_bytes > bytes.size() - header_bytes) {
    return invalid("fatbin: a file is longer than the fat binary");
  }
  FatbinFile file;
  file.kind = kind_of(kind);
  file.sm_version = sm_version;
  file.flags = flags;
  file.whole = bytes.first(header_bytes + static_cast<std::size_t>(payload_bytes));
  file.stored = file.whole.subspan(header_bytes);
  file.unpacked_bytes = file.stored.size();
  if ((flags & kFatbinFlagLz4) != 0) file.packing = Packing::kLz4;
  if ((flags & kFatbinFlagZstd) != 0) file.packing = Packing::kZstd;
  if (file.packing == Packing::kNone) return file;
  if (packed_bytes == 0 || packed_bytes > file.stored.size()) {
    return invalid("fatbin: a packed file has an impossible size");
  }
  if (unpacked_bytes == 0 || unpacked_bytes > kFatbinFileBytesMax ||
      unpacked_bytes / kFatbinRatioMax > packed_bytes) {
    return Error{ErrorCode::kLimit, "fatbin: a packed file unpacks to too many bytes"};
  }
  file.stored = file.stored.first(packed_bytes);
  file.unpacked_bytes = unpacked_bytes;
  return file;
}

bool cubin_fits(const FatbinFile& file, ComputeCapability capability) {
  const std::uint32_t number = capability.number();
  if (file.kind != FatbinFileKind::kElf) return false;
  if ((file.flags & kFatbinFlagArchSpecific) != 0) return file.sm_version == number;
  return file.sm_version / 10 == capability.major && file.sm_version <= number;
}

bool ptx_fits(const FatbinFile& file, ComputeCapability capability) {
  const std::uint32_t number = capability.number();
  if (file.kind != FatbinFileKind::kPtx) return false;
  if ((file.flags & kFatbinFlagArchSpecific) != 0) return file.sm_version == number;
  if ((file.flags & kFatbinFlagFamilySpecific) != 0) {
    return file.sm_version / 10 == capability.major && file.sm_version <= number;
  }
  return file.sm_version <= number;
}

// Newest first; of equal version what was made for exactly that chip first.
void sort_best_first(std::vector<std::size_t>& indices, const std::vector<FatbinFile>& files) {
  const auto rank = [&files](std::size_t index) {
    const FatbinFile& file = files[index];
    const bool family = (file.flags & kFatbinFlagFamilySpecific) != 0;
    const bool exact = (file.flags & kFatbinFlagArchSpecific) != 0;
    return file.sm_version * 4 + (exact ? 2 : 0) + (family ? 1 : 0);
  };
  std::stable_sort(indices.begin(), indices.end(),
                   [&rank](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
}

char* chars(std::vector<std::byte>& bytes) {
  return static_cast<char*>(static_cast<void*>(bytes.data()));
}

void append(std::vector<std::byte>& out, Bytes bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> packed(Bytes payload, Packing packing) {
  std::vector<std::byte> out;
  switch (packing) {
    case Packing::kNone:
      out.assign(payload.begin(), payload.end());
      break;
    case Packing::kLz4: {
      const int size = static_cast<int>(payload.size());
      out.resize(static_cast<std::size_t>(LZ4_compressBound(size)));
      const int used = LZ4_compress_default(text_of(payload).data(), chars(out), size,
                                            static_cast<int>(out.size()));
      FLYT_ASSERT(used > 0);
      out.resize(static_cast<std::size_t>(used));
      break;
    }
    case Packing::kZstd: {
      out.resize(ZSTD_compressBound(payload.size()));
      const std::size_t used =
          ZSTD_compress(out.data(), out.size(), payload.data(), payload.size(), 3);
      FLYT_ASSERT(!ZSTD_isError(used));
      out.resize(used);
      break;
    }
  }
  return out;
}

}  // namespace

Result<Fatbin> Fatbin::parse(Bytes bytes) {
  Reader reader(bytes);
  const auto magic = reader.take<std::uint32_t>();
  const auto version = reader.take<std::uint16_t>();
  const auto header_bytes = reader.take<std::uint16_t>();
  const auto files_bytes = reader.take<std::uint64_t>();
  if (!reader.ok()) return invalid("fatbin: the header is cut off");
  if (magic != kFatbinHeaderMagic) return invalid("fatbin: not a fat binary");
  if (version != kFatbinVersion) {
    return Error{ErrorCode::kUnsupported, "fatbin: unknown version " + std::to_string(version)};
  }
  if (header_bytes < kFatbinHeaderBytes || header_bytes > bytes.size() ||
      files_bytes > bytes.size() - header_bytes) {
    return invalid("fatbin: longer than its bytes");
  }
  Fatbin fatbin;
  Bytes rest = bytes.subspan(header_bytes, static_cast<std::size_t>(files_bytes));
  while (!rest.empty()) {
    if (fatbin.files_.size() == kFatbinFilesMax) {
      return Error{ErrorCode::kLimit, "fatbin: too many files"};
    }
    Result<FatbinFile> file = parse_file(rest);
    if (!file) return std::move(file).error();
    rest = rest.subspan(file->whole.size());
    fatbin.files_.push_back(*file);
  }
  return fatbin;
}

Result<std::vector<std::byte>> unpack(const FatbinFile& file) {
  if (file.packing == Packing::kNone) {
    return std::vector<std::byte>(file.stored.begin(), file.stored.end());
  }
  std::vector<std::byte> out(static_cast<std::size_t>(file.unpacked_bytes));
  if (file.packing == Packing::kLz4) {
    const int size =
        LZ4_decompress_safe(text_of(file.stored).data(), chars(out),
                            static_cast<int>(file.stored.size()), static_cast<int>(out.size()));
    if (size < 0 || static_cast<std::size_t>(size) != out.size()) {
      return invalid("fatbin: damaged LZ4 data");
    }
    return out;
  }
  const std::size_t size =
      ZSTD_decompress(out.data(), out.size(), file.stored.data(), file.stored.size());
  if (ZSTD_isError(size) != 0 || size != out.size()) return invalid("fatbin: damaged zstd data");
  return out;
}

Candidates candidates(const Fatbin& fatbin, ComputeCapability capability) {
  Candidates found;
  const std::vector<FatbinFile>& files = fatbin.files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (cubin_fits(files[i], capability)) found.cubins.push_back(i);
    if (ptx_fits(files[i], capability)) found.ptx.push_back(i);
  }
  sort_best_first(found.cubins, files);
  sort_best_first(found.ptx, files);
  return found;
}

namespace {

// What a reduced one has.
std::vector<std::size_t> kept_files(const Fatbin& fatbin, ComputeCapability capability) {
  Candidates fitting = candidates(fatbin, capability);
  if (!fitting.ptx.empty()) fitting.cubins.push_back(fitting.ptx.front());
  return std::move(fitting.cubins);
}

}  // namespace

std::vector<std::byte> reduced_fatbin(const Fatbin& fatbin, ComputeCapability capability) {
  const std::vector<std::size_t> kept = kept_files(fatbin, capability);
  if (kept.empty()) return {};
  std::size_t bytes = 0;
  for (const std::size_t index : kept) bytes += fatbin.files()[index].whole.size();
  FatbinWriter writer(bytes);
  for (const std::size_t index : kept) writer.add(fatbin.files()[index]);
  return std::move(writer).finish();
}

bool all_fits(const Fatbin& fatbin, ComputeCapability capability) {
  const std::size_t kept = kept_files(fatbin, capability).size();
  return kept != 0 && kept == fatbin.files().size();
}

FatbinWriter::FatbinWriter(std::size_t bytes) {
  out_.reserve(kFatbinHeaderBytes + bytes);
  out_.resize(kFatbinHeaderBytes);
}

void FatbinWriter::add(const FatbinFile& file) { append(out_, file.whole); }

void FatbinWriter::add(FatbinFileKind kind, std::uint32_t sm_version, std::uint64_t flags,
                       Bytes payload, Packing packing) {
  FLYT_ASSERT(payload.size() <= kFatbinFileBytesMax);
  const std::vector<std::byte> stored = packed(payload, packing);
  const std::size_t padded = (stored.size() + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
  if (packing == Packing::kLz4) flags |= kFatbinFlagLz4;
  if (packing == Packing::kZstd) flags |= kFatbinFlagZstd;
  const bool ptx = kind == FatbinFileKind::kPtx;
  const std::size_t start = out_.size();
  out_.resize(start + kFatbinFileHeaderBytes + padded);
  Writer writer(MutableBytes(out_).subspan(start));
  writer.write(ptx ? kKindPtx : kind == FatbinFileKind::kElf ? kKindElf : std::uint16_t{64});
  writer.write(kFatbinFileVersion);
  writer.write(static_cast<std::uint32_t>(kFatbinFileHeaderBytes));
  writer.write(static_cast<std::uint64_t>(padded));
  writer.write(static_cast<std::uint32_t>(packing == Packing::kNone ? 0 : stored.size()));
  writer.write(static_cast<std::uint32_t>(kFatbinFileHeaderBytes));
  writer.write(ptx ? kCodeFormatPtx : kCodeFormatElf);
  writer.write(sm_version);
  writer.write(std::uint64_t{0});
  writer.write(flags | kFatbinFlag64Bit | kFatbinFlagLinux);
  writer.write(std::uint64_t{0});
  writer.write(static_cast<std::uint64_t>(packing == Packing::kNone ? 0 : payload.size()));
  writer.write_bytes(stored);
}

void FatbinWriter::write_header() {
  Writer writer(MutableBytes(out_).first(kFatbinHeaderBytes));
  writer.write(kFatbinHeaderMagic);
  writer.write(kFatbinVersion);
  writer.write(static_cast<std::uint16_t>(kFatbinHeaderBytes));
  writer.write(static_cast<std::uint64_t>(out_.size() - kFatbinHeaderBytes));
}

}  // namespace flyt::cuda
