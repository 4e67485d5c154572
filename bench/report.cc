#include "bench/report.h"

#include <cstdio>
#include <fstream>

namespace flyt::bench {
namespace {

double get(const Figures& figures, const std::string& name) {
  const auto found = figures.find(name);
  return found == figures.end() ? 0 : found->second;
}

std::string cell(double value, const char* format) {
  if (value <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// One line: label, native, and for each transport its figure, the ratio to native and to raw.
std::string line(const std::string& label, const std::string& native, const std::string& unix_one,
                 const std::string& unix_native, const std::string& unix_raw,
                 const std::string& tcp_one, const std::string& tcp_native,
                 const std::string& tcp_raw) {
  char text[200];
  std::snprintf(text, sizeof(text), "%-30s %10s | %10s %8s %8s | %10s %8s %8s\n", label.c_str(),
                native.c_str(), unix_one.c_str(), unix_native.c_str(), unix_raw.c_str(),
                tcp_one.c_str(), tcp_native.c_str(), tcp_raw.c_str());
  return text;
}

double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

// A figure where `raw` (may be empty) names what raw sockets need for the like: what remoting adds
// to the driver's own time is compared with it. `scale` turns the stored unit into the shown one.
std::string row(const Measured& m, const std::string& label, const std::string& name,
                const std::string& raw, const char* format, double scale = 1) {
  const double native = get(m.native, name);
  const double one = get(m.unix_remote, name);
  const double other = get(m.tcp_remote, name);
  return line(label, cell(native * scale, format), cell(one * scale, format),
              cell(ratio(one, native), "%.2f"),
              cell(ratio(one - native, get(m.unix_raw, raw)), "%.2f"), cell(other * scale, format),
              cell(ratio(other, native), "%.2f"),
              cell(ratio(other - native, get(m.tcp_raw, raw)), "%.2f"));
}

// Copies are shown as rates when they are long enough for a rate to mean something; ratios are of
// rates then, so that 1.00 is as fast and less is slower.
std::string copy_row(const Measured& m, bool to_device, bool pinned, std::size_t size) {
  const std::string name = copy_name(to_device, pinned, size);
  const std::string label = std::string(to_device ? "to device" : "to host  ") +
                            (pinned ? " pinned   " : " pageable ") + size_text(size);
  if (size < (1 << 20)) return row(m, label + ", us", name, bulk_name(size), "%.1f");
  const auto rate = [&](double us) { return us > 0 ? static_cast<double>(size) / us / 1000 : 0; };
  const double native = rate(get(m.native, name));
  const double one = rate(get(m.unix_remote, name));
  const double other = rate(get(m.tcp_remote, name));
  return line(label + ", GB/s", cell(native, "%.2f"), cell(one, "%.2f"),
              cell(ratio(one, native), "%.2f"),
              cell(ratio(one, rate(get(m.unix_raw, bulk_name(size)))), "%.2f"), cell(other, "%.2f"),
              cell(ratio(other, native), "%.2f"),
              cell(ratio(other, rate(get(m.tcp_raw, bulk_name(size)))), "%.2f"));
}

void write_object(std::ofstream& file, const char* name, const Figures& figures, bool last) {
  file << "  \"" << name << "\": {";
  const char* separator = "";
  for (const auto& [key, value] : figures) {
    file << separator << "\n    \"" << key << "\": " << value;
    separator = ",";
  }
  file << "\n  }" << (last ? "\n" : ",\n");
}

}  // namespace

std::string table_of(const Measured& m) {
  std::string text = m.date + "  " + m.machine + "\nnative driver: " + m.driver + "\n" +
                     (m.delay.empty() ? "" : "delay added each way: " + m.delay + "\n") +
                     "times: /native = remote / native; /raw = (remote - native) / the same bytes"
                     " over a raw socket and back\n"
                     "rates: /native and /raw are shares of the native and the raw rate\n\n";
  text += line("", "native", "unix", "/native", "/raw", "tcp", "/native", "/raw");
  text += row(m, "posted launch, ns", "post_ns", "", "%.0f");
  text += row(m, "launches, 1000/s", "launches_per_s", "", "%.1f", 1e-3);
  text += row(m, "waiting call, us", "wait_us", "rtt_us", "%.1f");
  text += row(m, "launch + synchronize, us", "launch_sync_us", "rtt_us", "%.1f");
  text += row(m, "session start, cold, ms", "start_cold_ms", "", "%.1f");
  text += row(m, "session start, warm server, ms", "start_warm_ms", "", "%.1f");
  text += line("raw socket round trip, us", "", cell(get(m.unix_raw, "rtt_us"), "%.1f"), "", "",
               cell(get(m.tcp_raw, "rtt_us"), "%.1f"), "", "");
  for (const bool pinned : {false, true}) {
    for (const bool to_device : {true, false}) {
      for (const std::size_t size : kCopySizes) text += copy_row(m, to_device, pinned, size);
    }
  }
  return text;
}

Status write_json(const Measured& m, const std::string& path) {
  std::ofstream file(path);
  file << "{\n  \"date\": \"" << m.date << "\",\n  \"machine\": \"" << m.machine
       << "\",\n  \"native_driver\": \"" << m.driver << "\",\n";
  if (!m.delay.empty()) file << "  \"delay\": \"" << m.delay << "\",\n";
  write_object(file, "native", m.native, false);
  write_object(file, "unix", m.unix_remote, false);
  write_object(file, "tcp", m.tcp_remote, false);
  write_object(file, "raw_unix", m.unix_raw, false);
  write_object(file, "raw_tcp", m.tcp_raw, true);
  file << "}\n";
  file.flush();
  if (!file) return Error{ErrorCode::kSystem, "cannot write " + path};
  return {};
}

}  // namespace flyt::bench
