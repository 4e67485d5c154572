// Commands of `flytctl`: ask a node, print what it said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/cli/node/node_client.h"

namespace flyt::cli {

// What flytctl exits with; docs/flytctl.md tells them.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
inline constexpr int kExitNotFound = 4;
inline constexpr int kExitNoRoom = 5;
inline constexpr int kExitRefused = 6;
int exit_status_of(ErrorCode code);

// As they stand on the command line; empty: not given.
struct CtlOptions {
  NodeAddress address;
  bool json = false;
  std::string lease;
  std::optional<std::uint32_t> sms;
  std::string memory;
  bool when_free = false;  // Less than is used holds later.
  std::optional<std::uint32_t> gpu;
  std::string mode;
  std::int32_t priority = 0;
  std::string expires_in;
  std::vector<std::string> labels;
  std::string lasts;  // A token.
  bool exports = false;
  bool tcp = false;
  bool follow = false;
  std::uint64_t after = 0;
  std::uint32_t interval = 2;  // Seconds between pages of top.
  std::uint32_t pages = 0;     // 0: until it is interrupted.
};

Status ctl_describe(const CtlOptions& options);
Status ctl_leases(const CtlOptions& options);
Status ctl_create(const CtlOptions& options);
Status ctl_resize(const CtlOptions& options);
Status ctl_defrag(const CtlOptions& options);
Status ctl_release(const CtlOptions& options);
Status ctl_sessions(const CtlOptions& options);
Status ctl_token(const CtlOptions& options);
Status ctl_forget_leaders(const CtlOptions& options);
Status ctl_drain(const CtlOptions& options, bool on);
Status ctl_events(const CtlOptions& options);
Status ctl_top(const CtlOptions& options);
Status ctl_health(const CtlOptions& options);

}  // namespace flyt::cli
