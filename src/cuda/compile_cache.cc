#include "cuda/compile_cache.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace flyt::cuda {
namespace {

constexpr mode_t kParentMode = 0700;

std::string_view variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// An entry on disk: the hash of its key and its code, and the code.
Digest seal(const Digest& key, Bytes code) {
  const Digest hash = sha256(code);
  std::array<std::byte, sizeof key + sizeof hash> both;
  std::memcpy(both.data(), key.data(), sizeof key);
  std::memcpy(both.data() + sizeof key, hash.data(), sizeof hash);
  return sha256(both);
}

void append(std::vector<std::byte>& out, Bytes bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Its parent may be missing, as in a new home.
std::unique_ptr<CacheFolder> open_folder(const CompileCacheOptions& options) {
  if (options.folder.empty()) return nullptr;
  const std::string parent = options.folder.substr(0, options.folder.rfind('/'));
  if (!parent.empty()) ::mkdir(parent.c_str(), kParentMode);
  auto folder = open_own_folder(AT_FDCWD, options.folder);
  return folder ? std::make_unique<CacheFolder>(std::move(*folder), options.bytes_max) : nullptr;
}

}  // namespace

CompileCacheOptions compile_cache_options() {
  CompileCacheOptions options;
  options.on = variable("CUDA_CACHE_DISABLE").empty() || variable("CUDA_CACHE_DISABLE") == "0";
  const std::string_view most = variable("CUDA_CACHE_MAXSIZE");
  std::from_chars(most.data(), most.data() + most.size(), options.bytes_max);
  // A program with more rights than its user takes nothing that the user's variables name.
  if (::getauxval(AT_SECURE) != 0) return options;
  const std::string path(variable("CUDA_CACHE_PATH"));
  const std::string cache(variable("XDG_CACHE_HOME"));
  const std::string home(variable("HOME"));
  if (path.starts_with('/')) {
    options.folder = path + "/flyt";
  } else if (cache.starts_with('/')) {
    options.folder = cache + "/flyt-nvrtc";
  } else if (home.starts_with('/')) {
    options.folder = home + "/.cache/flyt-nvrtc";
  }
  return options;
}

Digest key_of(const CompileRequest& request) {
  struct Facts {
    std::uint32_t kind, first, second, padding;
    std::uint64_t host_bytes, compiler_bytes, options_bytes;
  };
  const Facts facts = {request.kind,        request.first,           request.second,        0,
                       request.host.size(), request.compiler.size(), request.options.size()};
  const Digest program = sha256(request.program);
  std::vector<std::byte> all;
  append(all, bytes_at(&facts, sizeof facts));
  append(all, bytes_of(request.host));
  append(all, bytes_of(request.compiler));
  append(all, bytes_of(request.options));
  append(all, program);
  return sha256(all);
}

const CacheFolder* CompileCache::folder() {
  std::call_once(opened_, [this] { folder_ = open_folder(options_); });
  return folder_.get();
}

std::optional<std::vector<std::byte>> CompileCache::find(const Digest& key) {
  if (!options_.on) return std::nullopt;
  if (const CacheFolder* on_disk = folder()) return read(*on_disk, key);
  const Lock lock(mutex_);
  const auto found = memory_.find(key);
  if (found == memory_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::vector<std::byte>> CompileCache::read(const CacheFolder& folder,
                                                         const Digest& key) {
  const std::string name = to_hex(key);
  std::uint64_t bytes = 0;
  const Fd file = folder.open(name, &bytes);
  Digest sealed;
  if (!file.valid()) return std::nullopt;
  if (bytes >= sizeof sealed && bytes - sizeof sealed <= kEntryBytesMax) {
    std::vector<std::byte> code(static_cast<std::size_t>(bytes) - sizeof sealed);
    if (read_all(file.get(), sealed) && read_all(file.get(), code) && seal(key, code) == sealed) {
      return code;
    }
  }
  folder.remove(name);
  return std::nullopt;
}

bool CompileCache::insert(const Digest& key, Bytes code) {
  if (!options_.on || code.size() > kEntryBytesMax) return false;
  if (const CacheFolder* on_disk = folder()) {
    std::vector<std::byte> entry;
    entry.reserve(sizeof(Digest) + code.size());
    append(entry, seal(key, code));
    append(entry, code);
    return on_disk->keep(to_hex(key), entry).ok();
  }
  const Lock lock(mutex_);
  if (memory_bytes_ + code.size() > kMemoryBytesMax) {
    memory_.clear();
    memory_bytes_ = 0;
  }
  const bool fresh = memory_.try_emplace(key, code.begin(), code.end()).second;
  if (fresh) memory_bytes_ += code.size();
  return true;
}

}  // namespace flyt::cuda
