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
  EXPECT_EQ(times(text, "\"ph\":\"s\""), 2U) << text;
  EXPECT_EQ(times(text, "\"ph\":\"f\""), 2U) << text;
  // Each has an id of its own, with one beginning and one end.
  for (const char* id : {"\"id\":\"0x1\"", "\"id\":\"0x2\""})
    EXPECT_EQ(times(text, id), 2U) << text;
  // From the beginning of the one into the other.
  EXPECT_EQ(times(text,
                  "\"ph\":\"s\",\"name\":\"waits\",\"cat\":\"waits\",\"id\":\"0x1\",\"pid\":7,"
                  "\"tid\":7,\"ts\":2.000}"),
            1U)
      << text;
  EXPECT_EQ(times(text, "\"id\":\"0x1\",\"bp\":\"e\",\"pid\":7,\"tid\":7,\"ts\":3.499}"), 1U)
      << text;
  EXPECT_EQ(times(text, "\"ph\":\"X\""), 5U);
  EXPECT_EQ(times(text, "\"thread_name\""), 1U);
}

TEST(ChromeTrace, NoArrowLeadsToASynchronisationThatNothingWasSentFor) {
  trace::Process process{.process = 7, .program = "p"};
  process.calls = {{"cuLaunch", false, {}}, {"cuSync", true, {}}};
  process.events = {event(1, Kind::kWaited, 1), event(2, Kind::kWaited, 1)};
  const std::string text = written(process);
  EXPECT_EQ(times(text, "flow_"), 0U) << text;
  EXPECT_EQ(times(text, "\"ph\":\"f\""), 0U) << text;
}

// A thread that waits may have begun before another one sends what it then waits for, too.
TEST(ChromeTrace, AnArrowEndsBehindItsBeginning) {
  trace::Process process{.process = 7, .program = "p"};
  process.calls = {{"cuLaunch", false, {}}, {"cuSync", true, {}}};
  trace::Event wait = event(9, Kind::kWaited, 1);
  wait.start_ns = 1000;
  wait.call_ns = 6000;
  trace::Event post = event(2, Kind::kPosted, 0);
  post.thread = 8;
  process.events = {wait, post};
  const std::string text = written(process);
  EXPECT_EQ(times(text, "\"tid\":8,\"ts\":2.000}"), 1U) << text;
  EXPECT_EQ(times(text, "\"tid\":7,\"ts\":6.999}"), 1U) << text;
}

TEST(ChromeTrace, KeepsItsPromiseOfSize) {
  trace::Process process{.process = UINT32_MAX, .program = "p"};
  process.calls = {{std::string(63, '"'), true, {}}};
  trace::Event largest;
  largest.start_ns = largest.call_ns = largest.wait_ns = largest.sequence = UINT64_MAX / 2;
  largest.bytes_sent = largest.bytes_received = UINT64_MAX;
  largest.thread = largest.waits = UINT32_MAX;
  largest.result = INT32_MIN;
  largest.kind = Kind::kPosted;
  trace::Event wait = largest;
  wait.sequence += 1;
  wait.kind = Kind::kWaited;
  process.events = {wait};
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
