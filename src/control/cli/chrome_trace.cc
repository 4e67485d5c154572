#include "control/cli/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "base/assert.h"
#include "control/cli/trace_report.h"

namespace flyt::cli {
namespace {

using trace::Event;
using trace::Process;

constexpr const char* kKinds[] = {"local", "posted", "waited", "refused"};

// Times of the first process are near zero, so that none needs many digits.
double us_since(std::uint64_t start, std::uint64_t at) {
  return static_cast<double>(at - std::min(start, at)) / 1e3;
}

class Writer {
 public:
  Writer(std::ostream& out, std::uint64_t start_ns) : out_(out), start_ns_(start_ns) {}

  void name(const char* what, std::uint32_t process, std::uint32_t thread,
            const std::string& name) {
    line("{\"ph\":\"M\",\"name\":\"" + std::string(what) + "\",\"pid\":" + std::to_string(process) +
         ",\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":" + json_string(name) + "}}");
  }

  // `flow` is the sequence number of the synchronisation that the slice's arrow leads to; 0: none.
  void slice(const Process& process, const Event& event, std::uint64_t flow) {
    char text[kChromeEventBytesMax];
    const std::string& name = process.calls[event.call].name;
    int used = std::snprintf(text, sizeof text,
                             "{\"ph\":\"X\",\"name\":\"%.126s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":"
                             "%u,\"ts\":%.3f,\"dur\":%.3f",
                             json_name(name).c_str(), kKinds[static_cast<std::size_t>(event.kind)],
                             process.process, event.thread, us_since(start_ns_, event.start_ns),
                             static_cast<double>(event.call_ns) / 1e3);
    std::string whole(text, static_cast<std::size_t>(used));
    if (flow != 0) {
      const bool end = flow == event.sequence;
      used =
          std::snprintf(text, sizeof text, ",\"bind_id\":\"0x%x%08llx\",\"flow_%s\":true",
                        process.process, static_cast<unsigned long long>(flow), end ? "in" : "out");
      whole.append(text, static_cast<std::size_t>(used));
    }
    used = std::snprintf(text, sizeof text,
                         ",\"args\":{\"wait_us\":%.3f,\"waits\":%u,\"sequence\":%llu,\"sent\":%llu,"
                         "\"received\":%llu,\"result\":%d}}",
                         static_cast<double>(event.wait_ns) / 1e3, event.waits,
                         static_cast<unsigned long long>(event.sequence),
                         static_cast<unsigned long long>(event.bytes_sent),
                         static_cast<unsigned long long>(event.bytes_received), event.result);
    whole.append(text, static_cast<std::size_t>(used));
    FLYT_ASSERT(whole.size() < kChromeEventBytesMax);
    line(whole);
  }

 private:
  static std::string json_name(const std::string& name) {
    const std::string quoted = json_string(name);
    return quoted.substr(1, quoted.size() - 2);
  }
  void line(const std::string& text) {
    out_ << (first_ ? "\n" : ",\n") << text;
    first_ = false;
  }

  std::ostream& out_;
  const std::uint64_t start_ns_;
  bool first_ = true;
};

bool synchronises(const Process& process, const Event& event) {
  return process.calls[event.call].sync_point && event.waits != 0;
}

void write_process(const Process& process, Writer& writer) {
  writer.name("process_name", process.process, process.process, process.program);
  std::set<std::uint32_t> threads;
  for (const Event& event : process.events) threads.insert(event.thread);
  for (const std::uint32_t thread : threads) {
    const bool main = thread == process.process;
    writer.name("thread_name", process.process, thread,
                main ? "main" : "thread " + std::to_string(thread));
  }
  std::vector<const Event*> order;
  for (const Event& event : process.events) order.push_back(&event);
  std::stable_sort(order.begin(), order.end(),
                   [](const Event* a, const Event* b) { return a->sequence > b->sequence; });
  // From the last command back: what was sent is waited for by the next synchronisation behind it.
  std::uint64_t flow = 0;
  for (const Event* event : order) {
    if (event->sequence == 0) flow = 0;
    if (synchronises(process, *event)) flow = event->sequence;
    const bool has_flow = event->sequence == flow || event->kind == trace::Kind::kPosted;
    writer.slice(process, *event, has_flow ? flow : 0);
  }
}

}  // namespace

void write_chrome_trace(std::span<const Process> processes, std::ostream& out) {
  std::uint64_t start_ns = processes.empty() ? 0 : processes.front().started_ns;
  for (const Process& process : processes) start_ns = std::min(start_ns, process.started_ns);
  std::uint64_t dropped = 0;
  out << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  Writer writer(out, start_ns);
  for (const Process& process : processes) {
    write_process(process, writer);
    dropped += process.events_dropped;
  }
  out << "\n], \"otherData\": {\"calls_dropped\": " << dropped << "}}\n";
}

}  // namespace flyt::cli
