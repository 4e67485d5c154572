#include "control/cli/trace_report.h"

#include <gtest/gtest.h>

namespace flyt::cli {
namespace {

trace::Process sample() {
  trace::Process process{.process = 7, .program = "a\"b", .started_ns = 0, .ended_ns = 2'000'000};
  process.calls.resize(4);
  process.calls[0] = {"cuSync", true, {.kinds = {0, 0, 2, 0}, .waits = 2, .wait_ns = 5'000'000}};
  process.calls[1] = {"cuLoad", false, {.kinds = {1, 3, 1, 0}, .waits = 3, .wait_ns = 9'000'000}};
  process.calls[2] = {"cuUnused", false, {}};
  process.calls[3] = {"(outside)", false, {.kinds = {0, 5, 0, 0}, .waits = 1, .wait_ns = 1}};
  process.commands = {{"", {}}, {"load", {.sent = 4, .waits = 3, .wait_ns = 9'000'000}}};
  return process;
}

TEST(TraceReport, TellsTheProgramsWaitsFromOurs) {
  const TraceTotals totals = totals_of(sample());
  EXPECT_EQ(totals.calls, 7U);
  EXPECT_EQ(totals.own_waits, 2U);
  EXPECT_EQ(totals.own_wait_ns, 5'000'000U);
  EXPECT_EQ(totals.our_waits, 4U);
  EXPECT_EQ(totals.kinds[static_cast<std::size_t>(trace::Kind::kPosted)], 3U);
}

TEST(TraceReport, ListsUsedCallsByTheirWaits) {
  const trace::Process processes[] = {sample(), sample()};
  const std::string table = trace_table(processes);
  EXPECT_LT(table.find("cuLoad "), table.find("cuSync*")) << table;
  EXPECT_EQ(table.find("cuUnused"), std::string::npos);
  EXPECT_NE(table.find("together: 14 calls: 6 posted, 6 waited, 2 local, 0 refused"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("the program's own (*): 4, 10.000 ms"), std::string::npos) << table;
  EXPECT_EQ(trace_table({}), "no process called CUDA\n");
}

TEST(TraceReport, NamesCallsThatHadNotEnded) {
  trace::Process process = sample();
  EXPECT_EQ(trace_table({&process, 1}).find("had not ended"), std::string::npos);
  process.calls[0].counters.begun = 3;
  process.calls[1].counters.begun = 5;
  process.calls[2].counters.begun = 2;
  EXPECT_EQ(totals_of(process).unended, 3U);
  EXPECT_EQ(totals_of(process).calls, 7U);
  const std::string table = trace_table({&process, 1});
  EXPECT_NE(table.find("  had not ended: cuSync, cuUnused (2)\n"), std::string::npos) << table;
  const std::string json = trace_json({&process, 1});
  EXPECT_NE(json.find("\"failed\": 0, \"unended\": 3, \"own_waits\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"failed\": 0, \"unended\": 2, \"waits\""), std::string::npos) << json;
}

TEST(TraceReport, EscapesTextInJson) {
  EXPECT_EQ(json_string("a\"\\\n\xff"), "\"a\\\"\\\\??\"");
  const trace::Process process = sample();
  const std::string json = trace_json({&process, 1});
  EXPECT_NE(json.find("\"program\": \"a\\\"b\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"own_waits\": 2"), std::string::npos) << json;
  EXPECT_EQ(json.find("cuUnused"), std::string::npos);
}

}  // namespace
}  // namespace flyt::cli
