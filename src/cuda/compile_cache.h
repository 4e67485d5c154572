// CompileCache: what NVRTC compiled before, by a hash of everything that went into it.
//
// NVRTC parses a program, and then asks the driver whether it knows the rest already. cuDNN has the
// same kernel compiled for each new shape, so that without this every token of a text waits 0.2 s.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/cache_folder.h"
#include "base/sha256.h"

namespace flyt::cuda {

struct CompileCacheOptions {
  bool on = true;
  std::string folder;  // Empty: for this process alone.
  std::uint64_t bytes_max = 1 * kGiB;
};
// As the driver's own cache is set: CUDA_CACHE_DISABLE, CUDA_CACHE_PATH (a folder "flyt" in it,
// else one in the user's cache folder) and CUDA_CACHE_MAXSIZE in bytes.
CompileCacheOptions compile_cache_options();

// What is compiled. Its members are NVRTC's arguments, whatever they mean.
struct CompileRequest {
  std::uint32_t kind = 0;
  Bytes program;
  std::string_view options;
  std::string_view host;
  std::string_view compiler;
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
Digest key_of(const CompileRequest& request);

// Safe from any thread; the folder, from any number of processes.
class CompileCache {
 public:
  static constexpr std::size_t kEntryBytesMax = 64 * kMiB;
  // Of what is kept in memory, where there is no folder.
  static constexpr std::size_t kMemoryBytesMax = 64 * kMiB;

  // Makes nothing on disk before somebody compiles.
  explicit CompileCache(CompileCacheOptions options) : options_(std::move(options)) {}

  std::optional<std::vector<std::byte>> find(const Digest& key);
  // False: it was not kept.
  bool insert(const Digest& key, Bytes code);

 private:
  // Null: there is none.
  const CacheFolder* folder();
  static std::optional<std::vector<std::byte>> read(const CacheFolder& folder, const Digest& key);

  const CompileCacheOptions options_;
  std::once_flag opened_;
  std::unique_ptr<CacheFolder> folder_;
  Mutex mutex_;
  std::map<Digest, std::vector<std::byte>> memory_ GUARDED_BY(mutex_);
  std::size_t memory_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::cuda
