#include "control/client/known_programs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace flyt::vm {
namespace {

TEST(KnownPrograms, SurviveARoundTrip) {
  const std::vector<KnownProgram> programs = {{7, 100, 1000, "python3"}, {8, 101, 0, "a b (c)"}};
  EXPECT_EQ(programs_of(text_of(programs)).programs, programs);
  EXPECT_EQ(programs_of(text_of(programs)).senseless, 0u);
  EXPECT_EQ(programs_of(text_of({{9, 1, 2, "two\nlines"}})).programs[0].name, "two?lines");
}

TEST(KnownPrograms, LeaveOutWhatSaysNothing) {
  EXPECT_TRUE(programs_of("").programs.empty());
  EXPECT_EQ(programs_of("").senseless, 0u);
  const auto none = programs_of("garbage\n\n7 \n7 8\n-7 8 9 a\n0 8 9 a\n7 8 99999999999 a\n");
  EXPECT_TRUE(none.programs.empty());
  EXPECT_EQ(none.senseless, 7u);
  const auto one = programs_of("garbage\n7 8 9 a\n7 8 9 cut off");
  EXPECT_EQ(one.programs.size(), 1u);
  EXPECT_EQ(one.senseless, 2u);
}

TEST(KnownPrograms, AreThoseThatStillRun) {
  const std::string path =
      std::string(::testing::TempDir()) + "programs-" + std::to_string(::getpid());
  const auto start = start_of_process(::getpid());
  ASSERT_TRUE(start);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto child_start = start_of_process(child);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(write_programs(path, {{::getpid(), *start, 0, "this"},
                                    {::getpid(), *start + 1, 0, "another of that number"},
                                    {child, child_start.value_or(1), 0, "ended"}}));
  const auto known = read_programs(path);
  ASSERT_TRUE(known);
  ASSERT_EQ(known->programs.size(), 1u);
  EXPECT_EQ(known->programs[0].name, "this");
  std::filesystem::remove(path);
  EXPECT_TRUE(read_programs(path)->programs.empty());
  EXPECT_EQ(read_programs(::testing::TempDir()).error().code, ErrorCode::kSystem);
  EXPECT_FALSE(write_programs("/nowhere/programs", {}));
}

}  // namespace
}  // namespace flyt::vm
