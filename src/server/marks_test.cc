#include "server/marks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands/array.h"
#include "commands/graph.h"
#include "commands/launch.h"
#include "commands/memory.h"
#include "commands/ops.h"

namespace flyt::server {
namespace {

TEST(Marks, TellHowFarASessionHasCome) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.begin(1, commands::MemAlloc::kOp);
  EXPECT_FALSE(marks.unsettled());
  marks.begin(2, commands::LaunchKernel::kOp);
  marks.begin(3, commands::MemInfo::kOp);
  EXPECT_TRUE(marks.unsettled());
  auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->begun, 3U);
  EXPECT_EQ(told->work, 2U);
  EXPECT_EQ(told->done, 0U);
  EXPECT_EQ(told->spoilt, 0U);
  marks.settle();
  EXPECT_FALSE(marks.unsettled());
  told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->done, 2U);
}

TEST(Marks, NameTheFirstCommandThatSpoils) {
  Marks marks;
  EXPECT_TRUE(marks.spoilt());
  ASSERT_TRUE(marks.make().ok());
  EXPECT_FALSE(marks.spoilt());
  marks.begin(1, commands::CreateArray::kOp);
  marks.begin(2, commands::CreateMipmappedArray::kOp);
  EXPECT_TRUE(marks.spoilt());
  const auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->spoilt, commands::CreateArray::kOp);
}

TEST(Marks, OfNobodyNoteNothing) {
  Marks marks;
  marks.begin(1, commands::LaunchKernel::kOp);
  marks.spoil(1);
  EXPECT_FALSE(marks.unsettled());
}

TEST(Marks, TakeWhateverIsUnknownForSpoiling) {
  EXPECT_EQ(role_of(0), Role::kSpoils);
  EXPECT_EQ(role_of(commands::kOpMax + 1), Role::kSpoils);
  EXPECT_EQ(role_of(0xffff), Role::kSpoils);
}

TEST(Marks, TakeNoQuestionForSpoiling) {
  EXPECT_EQ(role_of(commands::CaptureInfo::kOp), Role::kPlain);
  EXPECT_EQ(role_of(commands::GetGraphMemory::kOp), Role::kPlain);
  EXPECT_EQ(role_of(commands::BeginCapture::kOp), Role::kSpoils);
}

TEST(Marks, RefuseAFileThatIsNone) {
  const Fd empty(::memfd_create("marks-test", MFD_CLOEXEC));
  EXPECT_FALSE(Marks::read(empty).ok());
  EXPECT_FALSE(Marks::read(Fd()).ok());
}

}  // namespace
}  // namespace flyt::server
