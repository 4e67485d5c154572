#include "server/recovery/marks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands/array.h"
#include "commands/event.h"
#include "commands/graph.h"
#include "commands/ipc.h"
#include "commands/launch.h"
#include "commands/link.h"
#include "commands/memory.h"
#include "commands/ops.h"
#include "commands/recovery.h"

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
  marks.begin(1, commands::ShareEvent::kOp);
  marks.begin(2, commands::OpenEvent::kOp);
  EXPECT_TRUE(marks.spoilt());
  const auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->spoilt, commands::ShareEvent::kOp);
}

std::uint16_t spoilt_by(const Marks& marks) {
  const auto told = Marks::read(marks.file());
  EXPECT_TRUE(told.ok());
  return told->spoilt;
}

TEST(Marks, AreSpoiltAsLongAsASpoilerLives) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  {
    const Spoiler first(marks, commands::CreateLink::kOp);
    Spoiler second(marks, commands::CreateLink::kOp);
    EXPECT_EQ(commands::CreateLink::kOp, spoilt_by(marks));
    second = Spoiler(marks, commands::CreateArray::kOp);
    EXPECT_TRUE(marks.spoilt());
    EXPECT_FALSE(marks.spoilt_for_good());
  }
  EXPECT_FALSE(marks.spoilt());
  EXPECT_EQ(0, spoilt_by(marks));
  {
    const Spoiler passing(marks, commands::CreateLink::kOp);
    marks.spoil(commands::ShareEvent::kOp);
  }
  EXPECT_TRUE(marks.spoilt_for_good());
  EXPECT_EQ(commands::ShareEvent::kOp, spoilt_by(marks));
}

TEST(Marks, KnowWhatAClientOfBeforeDoesNotMakeAgain) {
  Marks marks;
  ASSERT_TRUE(marks.make(commands::RecoveredPushes::kOp - 1).ok());
  marks.begin(1, commands::MemAlloc::kOp);
  EXPECT_FALSE(marks.spoilt());
  marks.begin(2, commands::CreateArray::kOp);
  EXPECT_EQ(commands::CreateArray::kOp, spoilt_by(marks));
  EXPECT_EQ(Role::kPlain, role_of(commands::CreateArray::kOp));
  EXPECT_EQ(Role::kWork, role_of(commands::CopyToArray::kOp));
}

TEST(Marks, CountWhatWasSentToTheHost) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.count_push();
  marks.count_push();
  const auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(2U, told->pushes);
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
  EXPECT_EQ(role_of(commands::CreateUserObject::kOp), Role::kSpoils);
}

TEST(Marks, KnowWhatMayHaveChangedMemory) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.begin(1, commands::EventRecord::kOp);
  EXPECT_TRUE(marks.unsettled());
  EXPECT_FALSE(marks.take_changed());
  marks.begin(2, commands::LaunchKernel::kOp);
  EXPECT_TRUE(marks.take_changed());
  EXPECT_FALSE(marks.take_changed());
}

TEST(Marks, CountWhatIsInNoSnapshotAsWork) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.set_unsaved(true);
  marks.settle();
  EXPECT_TRUE(marks.unsettled());
  auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_NE(told->work, told->done);
  EXPECT_TRUE(told->unsaved);
  marks.set_unsaved(false);
  EXPECT_FALSE(marks.unsettled());
  told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->work, told->done);
  EXPECT_FALSE(told->unsaved);
}

TEST(Marks, CountGraphsThatAreNotSavedAsWork) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.set_unsaved_graphs(true);
  marks.set_unsaved(true);
  marks.set_unsaved(false);
  marks.settle();
  EXPECT_TRUE(marks.unsettled());
  auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_NE(told->work, told->done);
  EXPECT_TRUE(told->unsaved_graphs);
  EXPECT_FALSE(told->unsaved);
  ASSERT_TRUE(marks.graphs().begin().ok());
  ASSERT_TRUE(marks.graphs().put({GraphLog::Kind::kExec, 3}, bytes_of("content")).ok());
  marks.set_graph_names(12);
  EXPECT_TRUE(Marks::read(marks.file())->graphs.empty());
  marks.end_graphs();
  marks.set_unsaved_graphs(false);
  EXPECT_FALSE(marks.unsettled());
  told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  ASSERT_EQ(told->graphs.size(), 1U);
  EXPECT_EQ(text_of(told->graphs[0].content), "content");
  EXPECT_EQ(told->graph_names, 12U);
}

TEST(Marks, TellTheLastSnapshotThatWasEnded) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  EXPECT_FALSE(Marks::read(marks.file())->variables);
  for (std::uint64_t owner = 1; owner < 4; ++owner) {
    ASSERT_TRUE(marks.begin_snapshot({{.owner = owner, .bytes = 1}}).ok());
    marks.end_snapshot();
    ASSERT_TRUE(marks.begin_snapshot({{.owner = 99, .bytes = 1}}).ok());
    const auto told = Marks::read(marks.file());
    ASSERT_TRUE(told.ok() && told->variables);
    ASSERT_EQ(told->variables->variables.size(), 1U);
    EXPECT_EQ(told->variables->variables[0].owner, owner);
  }
}

TEST(Marks, ReadThoseOfABuildWithoutSnapshots) {
  const Fd file(::memfd_create("marks-test", MFD_CLOEXEC));
  ASSERT_EQ(0, ::ftruncate(file.get(), 4096));
  const auto told = Marks::read(file);
  ASSERT_TRUE(told.ok());
  EXPECT_FALSE(told->variables);
}

TEST(Marks, RefuseAFileThatIsNone) {
  const Fd empty(::memfd_create("marks-test", MFD_CLOEXEC));
  EXPECT_FALSE(Marks::read(empty).ok());
  EXPECT_FALSE(Marks::read(Fd()).ok());
}

TEST(Marks, TellTheFaultThatEndedTheProcess) {
  Marks marks;
  ASSERT_TRUE(marks.make().ok());
  marks.begin(5, commands::LaunchKernel::kOp);
  EXPECT_EQ(5U, marks.work());
  marks.set_fault(700);
  const auto told = Marks::read(marks.file());
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(700U, told->fault);
  marks.settle(5);
  EXPECT_FALSE(marks.unsettled());
}

}  // namespace
}  // namespace flyt::server
