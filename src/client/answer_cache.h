// AnswerCache: answers of the server that follow from the question alone.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "wire/fields.h"

namespace flyt::client {

// By the encoded question. Bounded: it forgets everything when it is full. Safe from any thread.
template <class Answer>
class AnswerCache {
 public:
  static constexpr std::size_t kEntriesMax = 4096;

  // `version` tells apart questions that are equal but asked after something changed.
  template <class Command>
  static std::string key_of(const Command& command, std::uint64_t version = 0) {
    std::string key(sizeof version + sizeof Command::kOp + wire::encoded_size(command), '\0');
    Writer writer(mutable_bytes_at(key.data(), key.size()));
    writer.write(version);
    writer.write(Command::kOp);
    wire::encode(writer, command);
    return key;
  }

  bool find(const std::string& key, Answer& out) const {
    const std::lock_guard lock(mutex_);
    const auto found = answers_.find(key);
    if (found == answers_.end()) return false;
    out = found->second;
    return true;
  }
  void add(std::string key, const Answer& answer) {
    const std::lock_guard lock(mutex_);
    if (answers_.size() >= kEntriesMax) answers_.clear();
    answers_.insert_or_assign(std::move(key), answer);
  }

 private:
  mutable std::mutex mutex_;  // Guards answers_.
  std::map<std::string, Answer> answers_;
};

}  // namespace flyt::client
