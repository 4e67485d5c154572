#include "trace/reading.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace flyt::trace {
namespace {

class Recorded : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/flyt-recording-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void make(Recording& recording, std::uint64_t events_max) const {
    const Status status = recording.open(folder_ + "/r", {3, 2, events_max});
    ASSERT_TRUE(status.ok()) << status.error().message;
    set_text(recording.header().program, "prog\x01ram");
    recording.header().magic = kMagic;
    recording.header().started_ns = 100;
    recording.header().ended_ns = 1100;
    set_text(recording.call_name(0).text, "cuFirst");
    set_text(recording.call_name(1).text, "cuSecond");
    recording.call_name(1).flags = kSyncPoint;
    set_text(recording.command_name(1).text, "first");
  }

  static std::vector<std::byte> bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const Bytes bytes = bytes_at(text.data(), text.size());
    return {bytes.begin(), bytes.end()};
  }

  std::string folder_;
};

Event event_at(std::uint64_t start) {
  return {.start_ns = start, .call_ns = 10, .wait_ns = 5, .call = 1, .kind = Kind::kWaited};
}

TEST_F(Recorded, HoldsWhatWasWritten) {
  Recording recording;
  make(recording, 2);
  add_to(recording.call(1).waits, 7);
  raise_to(recording.call(1).wait_ns_max, 9);
  raise_to(recording.call(1).wait_ns_max, 8);
  add_to(recording.command(1).sent, 3);
  for (std::uint64_t i = 0; i < 5; ++i) recording.add(event_at(i));
  const Result<Process> read = read_recording(recording.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->process, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(read->program, "prog?ram");
  ASSERT_EQ(read->calls.size(), 3U);
  EXPECT_EQ(read->calls[0].name, "cuFirst");
  EXPECT_FALSE(read->calls[0].sync_point);
  EXPECT_TRUE(read->calls[1].sync_point);
  EXPECT_EQ(read->calls[1].counters.waits, 7U);
  EXPECT_EQ(read->calls[1].counters.wait_ns_max, 9U);
  EXPECT_EQ(read->commands[1].name, "first");
  EXPECT_EQ(read->commands[1].counters.sent, 3U);
  ASSERT_EQ(read->events.size(), 2U);
  EXPECT_EQ(read->events[1].start_ns, 1U);
  EXPECT_EQ(read->events_dropped, 3U);
}

TEST_F(Recorded, EachOpeningMakesAFileOfItsOwn) {
  Recording one;
  Recording other;
  make(one, 0);
  make(other, 0);
  EXPECT_NE(one.path(), other.path());
  EXPECT_FALSE(Recording().open(folder_ + "/no/such/folder", {1, 1, 0}).ok());
}

TEST_F(Recorded, CountsFromManyThreads) {
  Recording recording;
  make(recording, 1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t k = 0; k < 500; ++k) {
        add_to(recording.call(0).waits, 1);
        recording.add(event_at(k));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Result<Process> read = read_recording(recording.path());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->calls[0].counters.waits, 2000U);
  EXPECT_EQ(read->events.size(), 1000U);
  EXPECT_EQ(read->events_dropped, 1000U);
}

TEST_F(Recorded, LeavesOutWhatWasNotWrittenWhole) {
  Recording recording;
  make(recording, 3);
  recording.add(event_at(1));
  add_to(recording.header().events_begun, 1);  // A thread that was killed in between.
  Event strange = event_at(3);
  strange.call = 3;
  recording.add(strange);
  const Result<Process> read = read_recording(recording.path());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->events.size(), 1U);
}

TEST_F(Recorded, OneOfAnotherVersionIsToldFromWhatIsNone) {
  Recording recording;
  make(recording, 1);
  recording.header().magic.back() = '1';
  const Result<Process> older = read_recording(recording.path());
  ASSERT_FALSE(older.ok());
  EXPECT_NE(older.error().message.find("another version"), std::string::npos)
      << older.error().message;
  recording.header().magic.front() = 'f';
  EXPECT_NE(read_recording(recording.path()).error().message.find("not a recording"),
            std::string::npos);
}

TEST_F(Recorded, RefusesWhatIsNoRecording) {
  EXPECT_FALSE(read_recording(folder_ + "/nothing").ok());
  EXPECT_FALSE(parse({}).ok());
  Recording recording;
  make(recording, 1);
  const std::vector<std::byte> good = bytes_of_file(recording.path());
  ASSERT_TRUE(parse(good).ok());
  for (std::size_t size = 0; size < good.size(); size += 13) {
    EXPECT_FALSE(parse(Bytes(good).first(size)).ok()) << size;
  }
  // Each word of the header that says how much follows.
  for (const std::size_t offset : {0, 8, 12, 16}) {
    std::vector<std::byte> bad = good;
    bad[offset] = std::byte{0xff};
    EXPECT_FALSE(parse(bad).ok()) << offset;
    std::memset(bad.data() + offset, 0xff, 4);
    EXPECT_FALSE(parse(bad).ok()) << offset;
  }
}

}  // namespace
}  // namespace flyt::trace
