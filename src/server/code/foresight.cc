#include "server/code/foresight.h"

#include <algorithm>
#include <string>

#include "server/code/code_taking.h"

namespace flyt::server {

std::optional<Foresight::Loaded> Foresight::take(const CodeName& name) {
  const auto found = std::find_if(ahead_.begin(), ahead_.end(),
                                  [&](const Ahead& one) { return one.name == name; });
  if (found == ahead_.end()) return std::nullopt;
  std::optional<Loaded> loaded = std::move(found->loaded);
  ahead_bytes_ -= name.bytes;
  ahead_.erase(found);
  taken_.fetch_add(1, std::memory_order_relaxed);
  return loaded;
}

void Foresight::on_load(const CodeName& name) {
  if (store_ == nullptr || known_.size() >= kKnownMax) return;
  if (last_ && *last_ != name.digest) note(*last_, name);
  last_ = name.digest;
  looked_at_ = name.digest;
  looks_left_ = limits_.ahead;
  known_.insert(name.digest);
}

bool Foresight::step() {
  while (looks_left_ > 0 && known_.size() < kKnownMax) {
    --looks_left_;
    const auto next = next_of(*looked_at_);
    if (!next) break;
    looked_at_ = next->digest;
    if (!known_.insert(next->digest).second) continue;
    load(*next);
    return true;
  }
  looks_left_ = 0;
  return false;
}

std::optional<CodeName> Foresight::next_of(const Digest& digest) {
  const auto [at, added] = next_.try_emplace(digest);
  if (added) at->second = store_->find_next(digest);
  return at->second;
}

void Foresight::note(const Digest& digest, const CodeName& next) {
  if (next_of(digest) == next) return;
  store_->keep_next(digest, next);
  next_[digest] = next;
}

void Foresight::load(const CodeName& name) {
  if (name.bytes > limits_.bytes) return;
  auto code = store_->find(name.digest, name.bytes);
  if (!code) return;
  make_room(name.bytes);
  Loaded loaded{.native = nullptr, .code = std::move(*code), .facts = {}};
  loaded.facts = facts_of(store_, Bytes(loaded.code).first(loaded.code.size() - 1), name.digest);
  JitArguments none;
  const CUresult result = load_preserved(driver_, loaded.code, none, loaded.native);
  if (result != CUDA_SUCCESS) {
    if (!complained_)
      log_.info("a library was not loaded ahead", {{"result", std::to_string(result)}});
    complained_ = true;
    return;
  }
  ahead_bytes_ += name.bytes;
  ahead_.push_back({name, std::move(loaded)});
}

void Foresight::make_room(std::uint64_t bytes) {
  while (!ahead_.empty() &&
         (ahead_.size() >= limits_.ahead || ahead_bytes_ + bytes > limits_.bytes)) {
    driver_.cuLibraryUnload(ahead_.front().loaded.native);
    ahead_bytes_ -= ahead_.front().name.bytes;
    ahead_.pop_front();
  }
}

}  // namespace flyt::server
