#include "control/cli/chrome_trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace flyt::cli {
namespace {

using trace::Kind;

trace::Event event(std::uint64_t sequence, Kind kind, std::uint16_t call) {
  return {.start_ns = 1000 * sequence,
          .call_ns = 500,
          .wait_ns = kind == Kind::kWaited ? 400U : 0U,
          .sequence = sequence,
          .thread = 7,
          .call = call,
          .kind = kind,
          .waits = kind == Kind::kWaited ? 1U : 0U};
}

std::string written(const trace::Process& process) {
  std::ostringstream out;
  write_chrome_trace({&process, 1}, out);
  return out.str();
}

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ChromeTrace, LeadsPostedCallsToTheSynchronisationBehindThem) {
  trace::Process process{.process = 7, .program = "p"};
  process.calls = {{"cuLaunch", false, {}}, {"cuSync", true, {}}};
  process.events = {event(1, Kind::kPosted, 0), event(2, Kind::kPosted, 0),
                    event(3, Kind::kWaited, 1), event(4, Kind::kPosted, 0),
                    event(0, Kind::kLocal, 0)};
  const std::string text = written(process);
  EXPECT_EQ(times(text, "\"bind_id\":\"0x700000003\",\"flow_out\":true"), 2U) << text;
  EXPECT_EQ(times(text, "\"bind_id\":\"0x700000003\",\"flow_in\":true"), 1U) << text;
  EXPECT_EQ(times(text, "bind_id"), 3U) << text;
  EXPECT_EQ(times(text, "\"ph\":\"X\""), 5U);
  EXPECT_EQ(times(text, "\"thread_name\""), 1U);
}

TEST(ChromeTrace, KeepsItsPromiseOfSize) {
  trace::Process process{.process = UINT32_MAX, .program = "p"};
  process.calls = {{std::string(63, '"'), true, {}}};
  trace::Event largest;
  largest.start_ns = largest.call_ns = largest.wait_ns = largest.sequence = UINT64_MAX / 2;
  largest.bytes_sent = largest.bytes_received = UINT64_MAX;
  largest.thread = largest.waits = UINT32_MAX;
  largest.result = INT32_MIN;
  largest.kind = Kind::kRefused;
  const std::string before = written(process);
  process.events.push_back(largest);
  // The event, and the name of its thread.
  EXPECT_LE(written(process).size(), before.size() + 2 * kChromeEventBytesMax);
}

TEST(ChromeTrace, OfNothingIsWholeToo) {
  std::ostringstream out;
  write_chrome_trace({}, out);
  EXPECT_EQ(out.str(),
            "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n], \"otherData\": "
            "{\"calls_dropped\": 0}}\n");
}

}  // namespace
}  // namespace flyt::cli
