#include "server/parent/token_book.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace flyt::server {
namespace {

constexpr std::uint64_t kBookLayout = 1;

Result<void*> shared_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("mmap", errno);
  return memory;
}

bool possible(const TokenBook::Entry& entry) {
  return entry.expiry >= 0 && entry.used <= wire::kTokenSessionsMax && entry.zero == 0;
}

}  // namespace

// Zeroes are what a new file holds.
struct TokenBook::Page {
  std::atomic<std::uint64_t> layout;
  std::array<std::uint64_t, 7> zero;
  std::array<Entry, kTokensMax> entries;
};

TokenBook::TokenBook(std::optional<Roll> file, Page* page, SharedMutex* mutex)
    : file_(std::move(file)), page_(page), mutex_(mutex) {}

TokenBook::~TokenBook() {
  if (!file_) ::munmap(page_, sizeof(Page));
  ::munmap(mutex_, sizeof(SharedMutex));
}

// The mutex is of this server alone: one that died with it may have left nothing locked.
Result<std::unique_ptr<TokenBook>> TokenBook::open(const std::string& path) {
  std::optional<Roll> file;
  if (!path.empty()) {
    auto roll = Roll::open(path, sizeof(Page));
    if (!roll) return std::move(roll).error();
    file.emplace(std::move(*roll));
  }
  const auto page = file ? Result(file->memory()) : shared_memory(sizeof(Page));
  if (!page) return page.error();
  const auto mutex = shared_memory(sizeof(SharedMutex));
  if (!mutex) {
    if (!file) ::munmap(*page, sizeof(Page));
    return mutex.error();
  }
  std::unique_ptr<TokenBook> book(
      new TokenBook(std::move(file), static_cast<Page*>(*page),
                    std::construct_at(static_cast<SharedMutex*>(*mutex))));
  if (Status status = book->check(path); !status) return status.error();
  return book;
}

Status TokenBook::check(const std::string& path) const {
  const Lock lock(*this);
  std::uint64_t none = 0;
  page_->layout.compare_exchange_strong(none, kBookLayout);
  const std::string remedy = "; remove it: then the tokens in use are nobody's again";
  if (page_->layout.load() != kBookLayout) {
    return Error{ErrorCode::kUnsupported, path + " is a token book of another version" + remedy};
  }
  if (std::all_of(page_->entries.begin(), page_->entries.end(), possible)) return {};
  return Error{ErrorCode::kInvalid, path + " is a damaged token book" + remedy};
}

std::span<TokenBook::Entry> TokenBook::entries() const { return page_->entries; }

}  // namespace flyt::server
