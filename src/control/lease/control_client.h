// ControlClient: what a node does with a server: asks what its lease has and changes it, over the
// server's control socket (flyt-server --control unix:///PATH). docs/leases.md tells the policies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rpc/no_pushes.h"

namespace flyt::control {

inline constexpr Duration kControlConnectTime = std::chrono::seconds(5);
inline constexpr Duration kMovePatience = std::chrono::seconds(1);

struct LeaseState {
  std::string lease;
  std::string gpu_name;
  std::string gpu_uuid;             // As NVML writes it: GPU-xxxxxxxx-xxxx-...
  std::uint64_t gpu_memory = 0;     // Bytes of the whole GPU.
  std::uint32_t gpu_sms = 0;        // Of the whole GPU.
  std::uint64_t memory_limit = 0;   // Bytes; 0: none.
  std::uint64_t memory_used = 0;    // More than the limit while a shrink waits.
  std::uint64_t context_bytes = 0;  // What a context takes beside: the node's, not the tenant's.
  std::uint32_t sms_asked = 0;      // 0: the whole GPU.
  std::uint32_t sms_granted = 0;
  std::uint32_t group_sms = 0;  // SMs of one group; 0: this GPU has none.
  std::vector<std::uint32_t> groups;
  std::uint32_t sessions = 0;  // Monitors not counted.
  std::uint32_t sessions_max = 0;
  bool tokens = false;  // Clients need one.
  bool draining = false;
  // Sessions that do not run in the groups yet, and contexts and graphs that never will.
  std::uint32_t behind = 0;
  std::uint32_t fixed = 0;
  std::uint64_t moves = 0;  // Changes of the groups while there were sessions.
  Duration last_move{0};
};

// How the chip is cut.
struct ChipState {
  std::uint32_t sms = 0;
  std::uint32_t group_sms = 0;  // Of each group; 0: this GPU has none.
  std::uint32_t groups = 0;
  std::uint32_t last_sms = 0;  // Of one more, made of what is left over; 0: there is none.
};

struct SessionState {
  std::uint64_t number = 0;
  std::uint32_t server_process = 0;
  std::uint32_t client_process = 0;  // Its number on its own machine.
  std::string name;                  // The client's program.
  std::string machine;
  Duration age{0};
  std::uint64_t memory_bytes = 0;
  std::uint64_t launches = 0;
  std::uint64_t posted = 0;          // Commands that nobody waited for.
  std::uint64_t waited = 0;          // Commands with an answer.
  std::uint64_t received_bytes = 0;  // Of commands, with what they bring.
  std::uint32_t contexts = 0;
  bool monitor = false;  // NVML's, no session of CUDA.
};

// All only grow, as long as the server lives.
struct UseState {
  Duration measured{0};  // The server's age.
  Duration busy{0};      // With kernels on the GPU: the sum of all sessions, so perhaps more.
  Duration queued{0};    // And more than a hundred operations waiting in one stream.
  std::uint64_t launches = 0;
};

// Of all sessions, those that have ended among them; all only grow, as UseState's.
struct TotalsState {
  std::uint64_t posted = 0;          // Commands that nobody waited for.
  std::uint64_t waited = 0;          // Commands with an answer.
  std::uint64_t received_bytes = 0;  // Of commands, with what they bring.
  std::uint64_t returns = 0;         // Sessions that another process has gone on with.
};

// A session whose kernel faulted; where processes share the GPU, one that had work under way then.
struct FaultState {
  std::uint64_t number = 0;  // Rises, as long as the server lives, and the next one with its board.
  std::uint64_t session = 0;
  std::int64_t unix_ms = 0;
  std::uint32_t error = 0;     // A CUresult.
  std::uint32_t suspects = 0;  // Sessions of the GPU of which this may be said; 1: it is the one.
  std::uint32_t client_process = 0;
  bool goes_on = false;
  std::string name;  // The client's program.
};

// What faults on the GPU were to the lease's sessions.
struct FaultsState {
  std::uint64_t caused = 0;
  std::uint64_t suspected = 0;  // By one of them, or another lease's.
  std::uint64_t survived = 0;   // By others, and the session has gone on.
  std::uint64_t lost = 0;       // By others, and it has not, or with an error.
  std::vector<FaultState> newest;
};

struct MemoryState {
  std::uint64_t limit = 0;
  std::uint64_t used = 0;
};

struct SmState {
  std::uint32_t granted = 0;
  std::uint32_t group_sms = 0;
  std::vector<std::uint32_t> groups;
  std::uint32_t behind = 0;  // Sessions that had not moved when the wait was over.
  Duration took{0};          // Until they had, or until then.
};

// When a smaller limit holds although more is used: never, or for allocations from now on.
enum class Shrink : std::uint8_t { kRefuse, kWhenFree };

// Errors: kLost: the server is gone, and this object with it; kNotFound: no such session; kLimit:
// less memory than is used, the message says how much; kInvalid: a value that makes no sense;
// kUnsupported: the server cannot do that; kSystem: it failed there. Messages name the socket.
// Safe from any thread.
class ControlClient {
 public:
  // kDenied: this user may not control the server.
  static Result<std::unique_ptr<ControlClient>> connect(std::string_view url,
                                                        Duration patience = kControlConnectTime);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  Result<LeaseState> describe();
  // kUnsupported: an older server, which has groups of one size.
  Result<ChipState> chip();
  // kUnsupported: an older server, which does not measure.
  Result<UseState> use();
  // kUnsupported: an older server.
  Result<TotalsState> totals();
  // The newest of those with numbers above `after`. kUnsupported: an older server.
  Result<FaultsState> faults(std::uint64_t after);
  // All of them, monitors too, in the order in which they came.
  Result<std::vector<SessionState>> sessions();
  // 0 bytes: no limit.
  Result<MemoryState> set_memory(std::uint64_t bytes, Shrink shrink = Shrink::kRefuse);
  // So many SMs, rounded up to the first groups; 0: the whole GPU. Sessions that are there move to
  // them; the call waits so long for them, a minute at the most.
  Result<SmState> set_sms(std::uint32_t sms, Duration patience = kMovePatience);
  Result<SmState> set_groups(const std::vector<std::uint32_t>& groups,
                             Duration patience = kMovePatience);
  Status end_session(std::uint64_t number);
  // No new sessions; those there are end within the time, and then the server does.
  Status drain(std::uint32_t seconds);
  // A credential that admits so many sessions until it expires. kUnsupported where clients need
  // none.
  Result<std::string> new_token(std::uint32_t seconds, std::uint32_t sessions);

  bool lost() const;
  // Calls that wait for an answer, and all later ones, fail: for whoever has waited long enough.
  void give_up(std::string_view reason);
  // The server's parent process, or rather the child that answers here.
  std::uint32_t process() const;

 private:
  explicit ControlClient(std::string_view url);
  template <class Command>
  Status ask(const Command& command, typename Command::Reply& reply, rpc::Reply& answer);
  Error error_of(std::uint32_t result, std::string_view what) const;

  const std::string url_;
  std::unique_ptr<rpc::NoPushes> pushes_;  // Nothing is pushed to whoever controls.
  std::unique_ptr<rpc::Channel> channel_;
};

}  // namespace flyt::control
