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

  void slice(const Process& process, const Event& event) {
    char text[kChromeEventBytesMax];
    const std::string& name = process.calls[event.call].name;
    int used = std::snprintf(text, sizeof text,
                             "{\"ph\":\"X\",\"name\":\"%.126s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":"
                             "%u,\"ts\":%.3f,\"dur\":%.3f",
                             json_name(name).c_str(), kKinds[static_cast<std::size_t>(event.kind)],
                             process.process, event.thread, us_since(start_ns_, event.start_ns),
                             static_cast<double>(event.call_ns) / 1e3);
    std::string whole(text, static_cast<std::size_t>(used));
    used = std::snprintf(text, sizeof text,
                         ",\"args\":{\"wait_us\":%.3f,\"waits\":%u,\"sequence\":%llu,\"sent\":%llu,"
                         "\"received\":%llu,\"result\":%d}}",
                         static_cast<double>(event.wait_ns) / 1e3, event.waits,
                         static_cast<unsigned long long>(event.sequence),
                         static_cast<unsigned long long>(event.bytes_sent),
                         static_cast<unsigned long long>(event.bytes_received), event.result);
    whole.append(text, static_cast<std::size_t>(used));
    FLYT_ASSERT(whole.size() < kChromeEventBytesMax - 2 * kEndBytesMax);
    line(whole);
  }

  // Behind the slices that it leads from and to. An id is of one beginning and one end: what has
  // several of either an importer takes for damage. The end lies within the slice that waited, so
  // that it is not before the beginning, also where another thread waited already.
  void arrow(const Process& process, const Event& from, const Event& to) {
    ++arrows_;
    end('s', process, from, from.start_ns);
    end('f', process, to, to.start_ns + (to.call_ns == 0 ? 0 : to.call_ns - 1));
  }

 private:
  static constexpr std::size_t kEndBytesMax = 160;

  void end(char phase, const Process& process, const Event& event, std::uint64_t at_ns) {
    char text[kEndBytesMax];
    const int used = std::snprintf(
        text, sizeof text,
        "{\"ph\":\"%c\",\"name\":\"waits\",\"cat\":\"waits\",\"id\":\"0x%llx\"%s,\"pid\":%u,"
        "\"tid\":%u,\"ts\":%.3f}",
        phase, static_cast<unsigned long long>(arrows_), phase == 'f' ? ",\"bp\":\"e\"" : "",
        process.process, event.thread, us_since(start_ns_, at_ns));
    FLYT_ASSERT(static_cast<std::size_t>(used) < kEndBytesMax);
    line(text);
  }
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
  std::uint64_t arrows_ = 0;
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
  const Event* waits = nullptr;
  for (const Event* event : order) {
    writer.slice(process, *event);
    if (event->sequence == 0) continue;
    if (synchronises(process, *event)) {
      waits = event;
    } else if (waits != nullptr && event->kind == trace::Kind::kPosted) {
      writer.arrow(process, *event, *waits);
    }
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
