// Fatbin: a fat binary taken apart, its files unpacked, and the ones that fit a GPU chosen.
//
// Layout: shared facts of the CUDA ABI. A wrapper (what __cudaRegisterFatBinary gets) points at a
// header; behind the header stand files, each with its own header, for one architecture each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::cuda {

// Limits of hostile input; the largest fat binaries seen in practice are about 700 MiB.
inline constexpr std::uint64_t kFatbinBytesMax = 2 * kGiB;
inline constexpr std::uint64_t kFatbinFileBytesMax = 1 * kGiB;  // One file, packed or unpacked.
inline constexpr std::size_t kFatbinFilesMax = 4096;
// Beyond this ratio a packed file is a bomb, not code.
inline constexpr std::uint64_t kFatbinRatioMax = 1100;

inline constexpr std::uint32_t kFatbinWrapperMagic = 0x466243B1;
inline constexpr std::uint32_t kFatbinHeaderMagic = 0xBA55ED50;
inline constexpr std::uint16_t kFatbinVersion = 1;
inline constexpr std::size_t kFatbinHeaderBytes = 16;
inline constexpr std::uint16_t kFatbinFileVersion = 0x101;
inline constexpr std::size_t kFatbinFileHeaderBytes = 64;

inline constexpr std::uint64_t kFatbinFlag64Bit = 0x1;
inline constexpr std::uint64_t kFatbinFlagDebug = 0x2;
inline constexpr std::uint64_t kFatbinFlagLinux = 0x10;
inline constexpr std::uint64_t kFatbinFlagLz4 = 0x2000;
inline constexpr std::uint64_t kFatbinFlagZstd = 0x8000;
inline constexpr std::uint64_t kFatbinFlagArchSpecific = 0x100000;    // sm_90a
inline constexpr std::uint64_t kFatbinFlagFamilySpecific = 0x200000;  // sm_100f

struct ComputeCapability {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t number() const { return major * 10 + minor; }
  friend auto operator<=>(const ComputeCapability&, const ComputeCapability&) = default;
};

enum class FatbinFileKind : std::uint8_t { kPtx, kElf, kOther };
enum class Packing : std::uint8_t { kNone, kLz4, kZstd };

// One file of a fat binary; views into the fat binary's bytes.
struct FatbinFile {
  FatbinFileKind kind = FatbinFileKind::kOther;
  Packing packing = Packing::kNone;
  std::uint32_t sm_version = 0;  // 90 for sm_90, sm_90a; 100 for sm_100f.
  std::uint64_t flags = 0;
  std::uint64_t unpacked_bytes = 0;  // Equal to stored.size() where not packed.
  Bytes stored;                      // The payload as it stands there, without padding.
  Bytes whole;                       // File header, payload and padding.
};

// One header with its files. A view: the bytes must outlive it. Immutable.
class Fatbin {
 public:
  // Accepts a header and the files behind it; bytes after them are ignored.
  static Result<Fatbin> parse(Bytes bytes);
  const std::vector<FatbinFile>& files() const { return files_; }

 private:
  std::vector<FatbinFile> files_;
};

// The payload as it was before it was packed.
Result<std::vector<std::byte>> unpack(const FatbinFile& file);

// What a GPU can use, best first: cubins made for it or for an earlier minor version of its
// major one, then PTX of its version or an earlier one. Indices into Fatbin::files().
struct Candidates {
  std::vector<std::size_t> cubins;
  std::vector<std::size_t> ptx;
};
Candidates candidates(const Fatbin& fatbin, ComputeCapability capability);

// A header with only those files that the GPU can use: the best cubin, all further cubins that
// fit (the driver judges), and the best PTX. Empty where nothing fits.
std::vector<std::byte> reduced_fatbin(const Fatbin& fatbin, ComputeCapability capability);

// Whether that would be all of it, but for the order of the files.
bool all_fits(const Fatbin& fatbin, ComputeCapability capability);

// Makes fat binaries: for reduced ones, and for tests that need odd ones.
class FatbinWriter {
 public:
  // `bytes`: of the files that will come, if that is known.
  explicit FatbinWriter(std::size_t bytes = 0);
  // Copies a file as it stands.
  void add(const FatbinFile& file);
  void add(FatbinFileKind kind, std::uint32_t sm_version, std::uint64_t flags, Bytes payload,
           Packing packing = Packing::kNone);
  // What was added so far.
  std::vector<std::byte> finish() & {
    write_header();
    return out_;
  }
  std::vector<std::byte> finish() && {
    write_header();
    return std::move(out_);
  }

 private:
  void write_header();

  std::vector<std::byte> out_;
};

}  // namespace flyt::cuda
