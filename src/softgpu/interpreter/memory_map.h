// MemoryMap: which addresses a kernel may touch. Device addresses are host addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace flyt::ptx {

// Where threads see what has no device address of its own. No memory of the host lies there; the
// owner of the device's address space must keep it so.
inline constexpr std::uint64_t kSharedWindow = 0x3f00'0000'0000;  // One block: kSharedStride.
inline constexpr std::uint64_t kSharedStride = 1ull << 24;        // Next block of the cluster.
inline constexpr std::uint64_t kSharedWindowBytes = kSharedStride * 64;
inline constexpr std::uint64_t kLocalWindow = 0x3f40'0000'0000;  // The thread's own.
inline constexpr std::uint64_t kLocalWindowBytes = 1ull << 32;
inline constexpr std::uint64_t kParameterWindow = 0x3f50'0000'0000;  // Kernel parameters.
inline constexpr std::uint64_t kParameterWindowBytes = 1ull << 20;
inline constexpr std::uint64_t kFunctionWindow = 0x3f60'0000'0000;  // Addresses of functions.
inline constexpr std::uint64_t kFunctionStride = 16;

// A two-level table of 2 MiB pages. A page is absent, wholly readable, wholly writable, or has a
// bitmap of 64-byte granules. Naturally aligned accesses of up to 64 bytes lie in one granule, so
// valid() costs two or three dependent loads. Ranges are rounded out to granules.
//
// valid() is safe from any thread at any time; add() and remove() may be called from any thread
// too (they lock). Tables are kept until the map is destroyed, so a reader never sees one vanish.
class MemoryMap {
 public:
  static constexpr unsigned kPageShift = 21;
  static constexpr unsigned kLeafShift = 13;  // Pages per leaf: 8192, 16 GiB.
  static constexpr unsigned kAddressBits = 47;
  static constexpr unsigned kGranuleShift = 6;
  static constexpr std::uint64_t kPageBytes = 1ull << kPageShift;

  MemoryMap();
  ~MemoryMap();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  // Bytes [address, address + size) become accessible. False, and no change, where the range
  // leaves the 47-bit space or overlaps the windows above. Adding twice sets `writable` anew.
  bool add(std::uint64_t address, std::uint64_t size, bool writable = true);
  // They are accessible no longer. The caller makes sure that no kernel is using them.
  void remove(std::uint64_t address, std::uint64_t size);

  // May `size` bytes (<= 64, address naturally aligned, so that they do not cross a granule) be
  // read, or written?
  bool valid(std::uint64_t address, std::uint64_t size, bool write) const {
    const std::uint64_t entry = page(address);
    if (entry <= kWritable) [[likely]]
      return entry > static_cast<std::uint64_t>(write);
    return valid_fine(entry, address, size, write);
  }

  // The same for any size and alignment.
  bool valid_range(std::uint64_t address, std::uint64_t size, bool write) const;

  // The whole 2 MiB page around the address has the right: no need to ask again within it.
  bool whole_page(std::uint64_t address, bool write) const {
    const std::uint64_t entry = page(address);
    return entry <= kWritable && entry > static_cast<std::uint64_t>(write);
  }

  // How many bytes from `address` on are readable, at most `size_max` (for strings).
  std::uint64_t readable(std::uint64_t address, std::uint64_t size_max) const;

 private:
  // An entry: one of these, or the address of a Fine.
  static constexpr std::uint64_t kAbsent = 0;
  static constexpr std::uint64_t kReadable = 1;
  static constexpr std::uint64_t kWritable = 2;

  static constexpr std::size_t kGranules = kPageBytes >> kGranuleShift;
  static constexpr std::size_t kLeafPages = 1u << kLeafShift;
  static constexpr std::size_t kLeaves = 1u << (kAddressBits - kPageShift - kLeafShift);

  struct Fine {
    std::array<std::atomic<std::uint64_t>, kGranules / 64> readable{};
    std::array<std::atomic<std::uint64_t>, kGranules / 64> writable{};
  };
  struct Leaf {
    std::array<std::atomic<std::uint64_t>, kLeafPages> pages{};
  };

  std::uint64_t page(std::uint64_t address) const {
    const std::uint64_t leaf = address >> (kPageShift + kLeafShift);
    if (leaf >= kLeaves) [[unlikely]]
      return kAbsent;
    const Leaf* pages = leaves_[leaf].load(std::memory_order_acquire);
    if (pages == nullptr) [[unlikely]]
      return kAbsent;
    return pages->pages[(address >> kPageShift) & (kLeafPages - 1)].load(std::memory_order_acquire);
  }
  static bool valid_fine(std::uint64_t entry, std::uint64_t address, std::uint64_t size,
                         bool write);
  void set(std::uint64_t address, std::uint64_t size, std::uint64_t right);
  void set_granules(std::uint64_t page_address, std::uint64_t first, std::uint64_t last,
                    std::uint64_t right);

  std::array<std::atomic<Leaf*>, kLeaves> leaves_{};
  std::mutex mutex_;  // Guards changes, and the owners below.
  std::vector<std::unique_ptr<Leaf>> leaf_owners_;
  std::vector<std::unique_ptr<Fine>> fine_owners_;
};

}  // namespace flyt::ptx
