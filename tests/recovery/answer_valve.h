// AnswerValve: stands between clients and a server, and holds back answers from one on, as if
// whoever gave them had died before it could send them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/result.h"
#include "transport/transport.h"

namespace flyt::tests {

// Over TCP, on loopback. Safe from any thread once started.
class AnswerValve {
 public:
  AnswerValve() = default;
  ~AnswerValve();
  AnswerValve(const AnswerValve&) = delete;
  AnswerValve& operator=(const AnswerValve&) = delete;

  Status start(const std::string& server);
  std::string url() const { return transport::to_string(listener_->url()); }

  // Lets so many more pieces pass, of which an answer is one or, if it is large, several. What
  // comes then is dropped, and all that comes later on a connection that has lost some.
  void close_after(std::uint64_t pieces);
  void open();
  // Commands that come while it is so are dropped, and all later ones of their connections.
  void drop_commands(bool so) { drops_commands_.store(so); }
  std::uint64_t dropped_commands() const { return dropped_commands_.load(); }
  // Ends so many of the next connections as soon as they are there.
  void refuse(int connections) { refusals_.store(connections); }
  // Something was dropped since then.
  bool dropped() const;
  // Pieces that have passed.
  std::uint64_t passed() const;

 private:
  static constexpr std::uint64_t kOpen = ~std::uint64_t{0};

  struct Pair {
    std::unique_ptr<transport::Connection> client;
    std::unique_ptr<transport::Connection> server;
    std::thread down;
    std::thread up;
  };
  void accept();
  void carry_answers(Pair& pair);
  void carry_commands(Pair& pair);
  bool may_pass();

  transport::Url server_;
  std::unique_ptr<transport::Listener> listener_;
  std::thread acceptor_;
  std::atomic<int> refusals_{0};
  std::atomic<bool> drops_commands_{false};
  std::atomic<std::uint64_t> dropped_commands_{0};  // In pieces.
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Pair>> pairs_ GUARDED_BY(mutex_);
  std::uint64_t left_ GUARDED_BY(mutex_) = kOpen;
  std::uint64_t passed_ GUARDED_BY(mutex_) = 0;
  bool dropped_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::tests
