// Office: the broker, shared by the thread of the desk and those that talk to the cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "control/client/broker.h"
#include "control/client/cluster_link.h"
#include "transport/transport.h"

namespace flyt::vm {

// Safe from any thread.
class Office {
 public:
  Office(BrokerOptions options, const Log& log);

  void arrive(ProgramId id, Program program);
  void leave(ProgramId id);
  void adopt(ProgramId id, Program program);
  // To be called now and then, for what only waits for time to pass.
  void pass();
  std::vector<Broker::Send> take_sends();
  std::string status_json();
  // Signalled when there is something to send.
  const transport::Wakeup& sends() const { return sends_; }

  // Asks the cluster for what is to be asked, until stop(). One thread.
  void run_asks(ClusterLink& link);
  // Hears how the virtual GPU is, until stop(). One thread.
  void run_watch(ClusterLink& link);
  void stop();

 private:
  static Now now();
  void changed() REQUIRES(mutex_);
  bool pause(Duration duration);

  // Programs that come and go may have the GPU fetched and given back as often.
  LogLimits lines_;
  const Log log_;
  const transport::Wakeup sends_;
  Mutex mutex_;
  Condition moved_;
  Broker broker_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kNone;  // As last logged, as is what follows.
  std::uint64_t generation_ GUARDED_BY(mutex_) = 0;
  bool away_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::vm
