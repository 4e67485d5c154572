// Broker: which of a machine's programs have its virtual GPU, and what to ask the cluster for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/client/virtual_gpu.h"
#include "wire/desk.h"

namespace flyt::vm {

struct BrokerOptions {
  std::string host;  // The machine that this one runs on: unix:// is for programs there.
  Duration grace = std::chrono::seconds(30);  // From the last program's end to giving it back.
  std::size_t programs_max = 1024;
};

struct Now {
  Instant at;
  std::int64_t unix_seconds = 0;
};

using ProgramId = std::uint64_t;

struct Program {
  std::uint32_t user = 0;
  std::int32_t process = 0;
  std::string name;
  wire::DeskPurpose purpose = wire::DeskPurpose::kUse;
};

// Decides from what it is told; holds no clock, threads or connections. Not thread-safe.
class Broker {
 public:
  Broker(BrokerOptions options, Instant now) : options_(std::move(options)), idle_since_(now) {}

  // Ids are the caller's.
  void arrive(ProgramId id, Program program, Now now);
  // It has ended, or does not want it any more.
  void leave(ProgramId id, Now now);
  // A program of an earlier client manager, which has the GPU already.
  void adopt(ProgramId id, Program program);

  // How the virtual GPU is, without being asked.
  void heard(const VirtualGpu& gpu, Now now);
  // Time passes: who waited for news of the cluster has to do with what is known.
  void pass(Now now);
  // Nobody tells that any more.
  void cluster_away(const std::string& why, Now now);

  // What to ask the cluster for, one thing at a time; answered() must follow.
  struct Ask {
    enum class Kind : std::uint8_t { kRequest, kRelease };
    Kind kind = Kind::kRequest;
    std::uint32_t user = 0;  // Whose programs a token is for.
  };
  std::optional<Ask> next(Now now);
  void answered(const Ask& ask, const Result<VirtualGpu>& answer, Now now);
  // When next() may say something that it does not say now.
  Instant wake_at(Now now) const;

  // What programs are to be told; who is granted has the GPU until it leaves.
  struct Send {
    ProgramId program = 0;
    wire::DeskMessage message;
  };
  std::vector<Send> take_sends();

  const VirtualGpu& gpu() const { return gpu_; }
  std::size_t users() const;  // Programs that have it.
  std::size_t waiting() const { return programs_.size() - users(); }
  bool cluster_is_away() const { return !away_.empty(); }
  const std::string& why_away() const { return away_; }
  std::string status_json() const;

 private:
  struct Entry {
    Program program;
    bool granted = false;
    // The cluster is asked before what was known while it is away is handed out; until then.
    std::optional<Instant> doubts_until;
    std::optional<wire::DeskWaiting> told;
  };
  struct Token {
    std::string text;
    std::int64_t expires_at = 0;  // By the node's clock.
    std::uint64_t generation = 0;
    Instant fresh_until;  // It was made just now: good whatever this machine's clock says.
  };

  const Token* token_of(std::uint32_t user, Now now) const;
  std::optional<std::string> url() const;
  // Why programs cannot use what is ready here, whatever they wait for; none: they can.
  std::optional<Error> out_of_reach() const;
  void believe();
  void tell_all(Now now);
  void tell(ProgramId id, Entry& entry, Now now);
  void refuse_waiting(const Error& error);
  void learn(const VirtualGpu& gpu);

  const BrokerOptions options_;
  std::map<ProgramId, Entry> programs_;
  VirtualGpu gpu_;
  bool known_ = false;                     // The cluster has said how it is.
  std::map<std::uint32_t, Token> tokens_;  // By user: a token belongs to who uses it first.
  std::string away_;                       // Why the cluster does not answer; empty: it does.
  bool asking_ = false;
  bool releasing_ = false;  // It is being given back: nobody is granted it meanwhile.
  unsigned failures_ = 0;   // In a row.
  Instant retry_at_;
  Instant idle_since_;  // While there is no program.
  std::vector<Send> sends_;
};

}  // namespace flyt::vm
