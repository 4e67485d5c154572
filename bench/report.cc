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

// What a line shows for one transport: its figure, the ratio to native and to raw.
struct Cells {
  std::string figure;
  std::string to_native;
  std::string to_raw;
};

std::string line(const std::string& label, const std::string& native,
                 const std::vector<Cells>& cells) {
  char text[80];
  std::snprintf(text, sizeof(text), "%-30s %10s", label.c_str(), native.c_str());
  std::string all = text;
  for (const Cells& one : cells) {
    std::snprintf(text, sizeof(text), " | %10s %8s %8s", one.figure.c_str(), one.to_native.c_str(),
                  one.to_raw.c_str());
    all += text;
  }
  return all + "\n";
}

double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

// A figure where `raw` (may be empty) names what raw sockets need for the like: what remoting adds
// to the driver's own time is compared with it. `scale` turns the stored unit into the shown one.
std::string row(const Measured& m, const std::string& label, const std::string& name,
                const std::string& raw, const char* format, double scale = 1) {
  const double native = get(m.native, name);
  std::vector<Cells> cells;
  for (const Remote& remote : m.remotes) {
    const double figure = get(remote.figures, name);
    cells.push_back({cell(figure * scale, format), cell(ratio(figure, native), "%.2f"),
                     cell(ratio(figure - native, get(remote.raw, raw)), "%.2f")});
  }
  return line(label, cell(native * scale, format), cells);
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
  std::vector<Cells> cells;
  for (const Remote& remote : m.remotes) {
    const double figure = rate(get(remote.figures, name));
    cells.push_back({cell(figure, "%.2f"), cell(ratio(figure, native), "%.2f"),
                     cell(ratio(figure, rate(get(remote.raw, bulk_name(size)))), "%.2f")});
  }
  return line(label + ", GB/s", cell(native, "%.2f"), cells);
}

void write_object(std::ofstream& file, const std::string& name, const Figures& figures, bool last) {
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
  std::vector<Cells> head;
  std::vector<Cells> round_trips;
  for (const Remote& remote : m.remotes) {
    head.push_back({remote.name, "/native", "/raw"});
    round_trips.push_back({cell(get(remote.raw, "rtt_us"), "%.1f"), "", ""});
  }
  text += line("", "native", head);
  text += row(m, "posted launch, ns", "post_ns", "", "%.0f");
  text += row(m, "launches, 1000/s", "launches_per_s", "", "%.1f", 1e-3);
  text += row(m, "waiting call, us", "wait_us", "rtt_us", "%.1f");
  text += row(m, "launch + synchronize, us", "launch_sync_us", "rtt_us", "%.1f");
  text += row(m, "4 bytes read + synchronize, us", "item_us", "rtt_us", "%.1f");
  text += row(m, "launch + event polled, us", "poll_us", "rtt_us", "%.1f");
  text += row(m, "launch, 64 MiB managed, ns", "post_managed_ns", "", "%.0f");
  text += row(m, "launch + sync, managed, us", "managed_sync_us", "rtt_us", "%.1f");
  text += row(m, "session start, cold, ms", "start_cold_ms", "", "%.1f");
  text += row(m, "session start, warm server, ms", "start_warm_ms", "", "%.1f");
  text += line("raw socket round trip, us", "", round_trips);
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
  for (const Remote& remote : m.remotes) {
    write_object(file, remote.name, remote.figures, false);
    if (!remote.raw.empty()) write_object(file, "raw_" + remote.name, remote.raw, false);
  }
  write_object(file, "native", m.native, true);
  file << "}\n";
  file.flush();
  if (!file) return Error{ErrorCode::kSystem, "cannot write " + path};
  return {};
}

}  // namespace flyt::bench
