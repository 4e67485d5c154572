#include "control/cli/trace_report.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace flyt::cli {
namespace {

using trace::CallRow;
using trace::CommandRow;
using trace::Kind;
using trace::Process;

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double us(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }
double mean_us(std::uint64_t ns, std::uint64_t count) {
  return count == 0 ? 0 : us(ns) / static_cast<double>(count);
}

// The summary's counters are 64-bit and printed as such.
unsigned long long whole(std::uint64_t number) { return number; }

std::uint64_t count(const CallRow& row, Kind kind) {
  return row.counters.kinds[static_cast<std::size_t>(kind)];
}
std::uint64_t all(const CallRow& row) {
  std::uint64_t sum = 0;
  for (const std::uint64_t kind : row.counters.kinds) sum += kind;
  return sum;
}
// Calls in which threads were when the process ended, or are now. One that ends while a recording
// is read may be counted twice.
std::uint64_t unended(const CallRow& row) {
  return row.counters.begun - std::min(row.counters.begun, all(row));
}
bool used(const CallRow& row) {
  return all(row) != 0 || row.counters.begun != 0 || row.counters.waits != 0 ||
         row.counters.bytes_received != 0;
}

void add(trace::CallCounters& sum, const trace::CallCounters& more) {
  sum.begun += more.begun;
  for (std::size_t i = 0; i < sum.kinds.size(); ++i) sum.kinds[i] += more.kinds[i];
  sum.failed += more.failed;
  sum.waits += more.waits;
  sum.wait_ns += more.wait_ns;
  sum.wait_ns_max = std::max(sum.wait_ns_max, more.wait_ns_max);
  sum.held_ns += more.held_ns;
  sum.call_ns += more.call_ns;
  sum.bytes_sent += more.bytes_sent;
  sum.bytes_received += more.bytes_received;
}

void add(trace::CommandCounters& sum, const trace::CommandCounters& more) {
  sum.sent += more.sent;
  sum.waits += more.waits;
  sum.wait_ns += more.wait_ns;
  sum.wait_ns_max = std::max(sum.wait_ns_max, more.wait_ns_max);
  sum.bytes_sent += more.bytes_sent;
  sum.bytes_received += more.bytes_received;
}

// What all processes did, by name; only what was used.
template <class Row>
std::vector<Row> merged(std::span<const Process> processes, std::vector<Row> Process::*rows) {
  std::map<std::string, Row> by_name;
  for (const Process& process : processes) {
    for (const Row& row : process.*rows) {
      Row& sum = by_name.try_emplace(row.name, Row{row.name}).first->second;
      if constexpr (requires { row.sync_point; }) sum.sync_point = row.sync_point;
      add(sum.counters, row.counters);
    }
  }
  std::vector<Row> out;
  for (auto& [name, row] : by_name) out.push_back(std::move(row));
  return out;
}

void add(TraceTotals& sum, const TraceTotals& more) {
  sum.calls += more.calls;
  for (std::size_t i = 0; i < sum.kinds.size(); ++i) sum.kinds[i] += more.kinds[i];
  sum.failed += more.failed;
  sum.unended += more.unended;
  sum.own_waits += more.own_waits;
  sum.own_wait_ns += more.own_wait_ns;
  sum.our_waits += more.our_waits;
  sum.our_wait_ns += more.our_wait_ns;
  sum.held_ns += more.held_ns;
  sum.bytes_sent += more.bytes_sent;
  sum.bytes_received += more.bytes_received;
}

std::string kinds_text(const TraceTotals& totals) {
  return print("%llu calls: %llu posted, %llu waited, %llu local, %llu refused; %llu failed",
               whole(totals.calls), whole(totals.kinds[1]), whole(totals.kinds[2]),
               whole(totals.kinds[0]), whole(totals.kinds[3]), whole(totals.failed));
}

// What hangs is what waits longest, and no table of waits has it.
std::string unended_text(const Process& process) {
  std::string names;
  for (const CallRow& row : process.calls) {
    if (unended(row) == 0) continue;
    names += (names.empty() ? "" : ", ") + row.name;
    if (unended(row) > 1) names += print(" (%llu)", whole(unended(row)));
  }
  return names.empty() ? names : "  had not ended: " + names + "\n";
}

std::string calls_table(std::span<const Process> processes) {
  std::vector<CallRow> rows = merged(processes, &Process::calls);
  std::erase_if(rows, [](const CallRow& row) { return !used(row); });
  std::stable_sort(rows.begin(), rows.end(), [](const CallRow& a, const CallRow& b) {
    return a.counters.wait_ns != b.counters.wait_ns ? a.counters.wait_ns > b.counters.wait_ns
                                                    : all(a) > all(b);
  });
  std::string text = print("%-36s %9s %9s %8s %9s %7s %6s %8s %10s %10s %9s %10s %9s\n", "call",
                           "calls", "posted", "waited", "local", "refused", "failed", "waits",
                           "wait ms", "mean us", "max us", "sent", "received");
  for (const CallRow& row : rows) {
    const trace::CallCounters& counters = row.counters;
    text += print(
        "%-36s %9llu %9llu %8llu %9llu %7llu %6llu %8llu %10.3f %10.1f %9.1f %10llu %9llu\n",
        (row.name + (row.sync_point ? "*" : "")).c_str(), whole(all(row)),
        whole(count(row, Kind::kPosted)), whole(count(row, Kind::kWaited)),
        whole(count(row, Kind::kLocal)), whole(count(row, Kind::kRefused)), whole(counters.failed),
        whole(counters.waits), ms(counters.wait_ns), mean_us(counters.wait_ns, counters.waits),
        us(counters.wait_ns_max), whole(counters.bytes_sent), whole(counters.bytes_received));
  }
  return text;
}

std::string commands_table(std::span<const Process> processes) {
  std::vector<CommandRow> rows = merged(processes, &Process::commands);
  std::erase_if(rows, [](const CommandRow& row) { return row.counters.sent == 0; });
  std::stable_sort(rows.begin(), rows.end(), [](const CommandRow& a, const CommandRow& b) {
    return a.counters.wait_ns > b.counters.wait_ns;
  });
  std::string text = print("%-36s %9s %9s %10s %10s %9s %10s %10s\n", "command", "sent", "waits",
                           "wait ms", "mean us", "max us", "sent", "received");
  for (const CommandRow& row : rows) {
    const trace::CommandCounters& counters = row.counters;
    text += print("%-36s %9llu %9llu %10.3f %10.1f %9.1f %10llu %10llu\n", row.name.c_str(),
                  whole(counters.sent), whole(counters.waits), ms(counters.wait_ns),
                  mean_us(counters.wait_ns, counters.waits), us(counters.wait_ns_max),
                  whole(counters.bytes_sent), whole(counters.bytes_received));
  }
  return text;
}

std::string json_counters(const CallRow& row) {
  const trace::CallCounters& counters = row.counters;
  return print(
             "\"posted\": %llu, \"waited\": %llu, \"local\": %llu, \"refused\": %llu, "
             "\"failed\": %llu, \"unended\": %llu, ",
             whole(counters.kinds[1]), whole(counters.kinds[2]), whole(counters.kinds[0]),
             whole(counters.kinds[3]), whole(counters.failed), whole(unended(row))) +
         print(
             "\"waits\": %llu, \"wait_ns\": %llu, \"wait_ns_max\": %llu, \"send_ns\": %llu, "
             "\"call_ns\": %llu, \"bytes_sent\": %llu, \"bytes_received\": %llu",
             whole(counters.waits), whole(counters.wait_ns), whole(counters.wait_ns_max),
             whole(counters.held_ns), whole(counters.call_ns), whole(counters.bytes_sent),
             whole(counters.bytes_received));
}

std::string json_totals(const TraceTotals& totals) {
  return print(
             "{\"calls\": %llu, \"posted\": %llu, \"waited\": %llu, \"local\": %llu, "
             "\"refused\": %llu, \"failed\": %llu, \"unended\": %llu, ",
             whole(totals.calls), whole(totals.kinds[1]), whole(totals.kinds[2]),
             whole(totals.kinds[0]), whole(totals.kinds[3]), whole(totals.failed),
             whole(totals.unended)) +
         print(
             "\"own_waits\": %llu, \"own_wait_ns\": %llu, \"our_waits\": %llu, "
             "\"our_wait_ns\": %llu, \"send_ns\": %llu, \"bytes_sent\": %llu, "
             "\"bytes_received\": %llu}",
             whole(totals.own_waits), whole(totals.own_wait_ns), whole(totals.our_waits),
             whole(totals.our_wait_ns), whole(totals.held_ns), whole(totals.bytes_sent),
             whole(totals.bytes_received));
}

std::string json_process(const Process& process) {
  std::string text = "    {\"process\": " + std::to_string(process.process) +
                     ", \"program\": " + json_string(process.program) +
                     print(", \"seconds\": %.6f", ms(process.ended_ns - process.started_ns) / 1e3) +
                     ", \"events_dropped\": " + std::to_string(process.events_dropped) +
                     ",\n     \"totals\": " + json_totals(totals_of(process)) +
                     ",\n     \"calls\": [";
  const char* separator = "\n";
  for (const CallRow& row : process.calls) {
    if (!used(row)) continue;
    text += separator + std::string("      {\"name\": ") + json_string(row.name) +
            ", \"sync_point\": " + (row.sync_point ? "true, " : "false, ") + json_counters(row) +
            "}";
    separator = ",\n";
  }
  text += "],\n     \"commands\": [";
  separator = "\n";
  for (const CommandRow& row : process.commands) {
    const trace::CommandCounters& counters = row.counters;
    if (counters.sent == 0) continue;
    text += separator + std::string("      {\"name\": ") + json_string(row.name) +
            print(
                ", \"sent\": %llu, \"waits\": %llu, \"wait_ns\": %llu, \"wait_ns_max\": %llu, "
                "\"bytes_sent\": %llu, \"bytes_received\": %llu}",
                whole(counters.sent), whole(counters.waits), whole(counters.wait_ns),
                whole(counters.wait_ns_max), whole(counters.bytes_sent),
                whole(counters.bytes_received));
    separator = ",\n";
  }
  return text + "]}";
}

}  // namespace

TraceTotals totals_of(const Process& process) {
  TraceTotals totals;
  for (const CallRow& row : process.calls) {
    const trace::CallCounters& counters = row.counters;
    // What the last row counts was sent outside of calls.
    const bool call = &row != &process.calls.back();
    for (std::size_t i = 0; call && i < totals.kinds.size(); ++i) {
      totals.kinds[i] += counters.kinds[i];
      totals.calls += counters.kinds[i];
    }
    totals.failed += counters.failed;
    totals.unended += unended(row);
    (row.sync_point ? totals.own_waits : totals.our_waits) += counters.waits;
    (row.sync_point ? totals.own_wait_ns : totals.our_wait_ns) += counters.wait_ns;
    totals.held_ns += counters.held_ns;
    totals.bytes_sent += counters.bytes_sent;
    totals.bytes_received += counters.bytes_received;
  }
  return totals;
}

std::string trace_table(std::span<const Process> processes) {
  TraceTotals sum;
  std::string text;
  for (const Process& process : processes) {
    const TraceTotals totals = totals_of(process);
    add(sum, totals);
    text += print("%s (%u), %.3f s: ", process.program.c_str(), process.process,
                  ms(process.ended_ns - process.started_ns) / 1e3) +
            kinds_text(totals) + "\n" + unended_text(process);
    if (process.events_dropped != 0) {
      text += print("  %llu calls are not in the Chrome trace: it was full\n",
                    whole(process.events_dropped));
    }
  }
  if (processes.empty()) return "no process called CUDA\n";
  if (processes.size() > 1) text += "together: " + kinds_text(sum) + "\n";
  text += print("bytes: %llu sent, %llu received; sending took %.3f ms\n", whole(sum.bytes_sent),
                whole(sum.bytes_received), ms(sum.held_ns));
  text += print("waits: %llu, %.3f ms\n", whole(sum.own_waits + sum.our_waits),
                ms(sum.own_wait_ns + sum.our_wait_ns));
  text +=
      print("  the program's own (*): %llu, %.3f ms\n", whole(sum.own_waits), ms(sum.own_wait_ns));
  text += print("  ours: %llu, %.3f ms\n\n", whole(sum.our_waits), ms(sum.our_wait_ns));
  return text + calls_table(processes) + "\n" + commands_table(processes);
}

std::string trace_json(std::span<const Process> processes) {
  std::string text = "{\"processes\": [";
  const char* separator = "\n";
  for (const Process& process : processes) {
    text += separator + json_process(process);
    separator = ",\n";
  }
  return text + "]}\n";
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return out + "\"";
}

}  // namespace flyt::cli
