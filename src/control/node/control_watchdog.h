// ControlLink: a node's connection to one lease's server, and the watchdog that ends its waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/result.h"
#include "control/lease/control_client.h"

namespace flyt::node {

// Gives up on servers that do not answer in time. Safe from any thread.
class ControlWatchdog {
 public:
  ControlWatchdog();
  ~ControlWatchdog();
  ControlWatchdog(const ControlWatchdog&) = delete;
  ControlWatchdog& operator=(const ControlWatchdog&) = delete;

  // Watches one call, for as long as it exists.
  class Guard {
   public:
    Guard(ControlWatchdog& watchdog, control::ControlClient& client, Duration patience);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    ControlWatchdog& watchdog_;
    std::uint64_t number_;
  };

 private:
  struct Watched {
    control::ControlClient* client = nullptr;
    Instant deadline;
  };
  void run();

  Mutex mutex_;
  Condition changed_;
  std::map<std::uint64_t, Watched> watched_ GUARDED_BY(mutex_);
  std::uint64_t next_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Errors as ControlClient's; after kLost every call fails. Safe from any thread.
class ControlLink {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(5);
  // Changes wait for what runs on the GPU, and that long for programs to move.
  static constexpr Duration kChangePatience = std::chrono::seconds(30);
  static constexpr Duration kMovePatience = std::chrono::seconds(5);

  static Result<std::shared_ptr<ControlLink>> connect(ControlWatchdog& watchdog,
                                                      const std::string& url);
  ControlLink(ControlWatchdog& watchdog, std::unique_ptr<control::ControlClient> client)
      : watchdog_(watchdog), client_(std::move(client)) {}

  Result<control::LeaseState> describe();
  Result<control::ChipState> chip();
  // False: it is older than groups made of what a chip has left over.
  bool takes_rest();
  Result<control::UseState> use();
  Result<control::TotalsState> totals();
  Result<control::FaultsState> faults(std::uint64_t after);
  Result<std::vector<control::SessionState>> sessions();
  Result<control::MemoryState> set_memory(std::uint64_t bytes,
                                          control::Shrink shrink = control::Shrink::kRefuse);
  Result<control::SmState> set_sms(std::uint32_t sms);
  Result<control::SmState> set_groups(const std::vector<std::uint32_t>& groups);
  Result<std::string> new_token(std::uint32_t seconds, std::uint32_t sessions);
  bool lost() const { return client_->lost(); }

 private:
  ControlWatchdog& watchdog_;
  const std::unique_ptr<control::ControlClient> client_;
};

}  // namespace flyt::node
