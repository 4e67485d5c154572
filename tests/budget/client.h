// Client: the processes that budgets are counted in. They load a driver library as programs do.
#pragma once

#include <string>

namespace flyt::budget {

// Each prints what it found, as fields "name=value", then "ready", and waits until its input ends.
//   native    context, module and launch on the software GPU itself: "rss_kib", "anonymous_kib"
//   remote    the same through the client library
//   launches  that, and then kLaunches more: "here" and "elsewhere", allocations meanwhile
int run_client(const std::string& job);

inline constexpr int kLaunches = 10000;

// Of a process, from /proc: "VmRSS", "RssAnon". In KiB; -1 if it is not there.
long status_kib(int pid, const std::string& field);

}  // namespace flyt::budget
