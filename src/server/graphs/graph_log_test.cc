#include "server/graphs/graph_log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace flyt::server {
namespace {

using Kind = GraphLog::Kind;

class GraphLogTest : public ::testing::Test {
 protected:
  GraphLogTest() : file_(::memfd_create("graphs", MFD_CLOEXEC)) {
    EXPECT_EQ(0, ::ftruncate(file_.get(), static_cast<off_t>(kOffset + GraphLog::kBytes)));
  }
  // As "kind name:content", sorted.
  std::string found(std::uint64_t standing) const {
    const auto entries = GraphLog::read(file_, kOffset, standing);
    if (!entries) return entries.error().message;
    std::string text;
    for (const GraphLog::Entry& entry : *entries) {
      text += entry.key.first == Kind::kGraph ? "g" : "e";
      text += std::to_string(entry.key.second) + ":" + std::string(text_of(entry.content)) + " ";
    }
    return text;
  }
  std::uint64_t memory() const {
    struct stat status {};
    EXPECT_EQ(0, ::fstat(file_.get(), &status));
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }

  static constexpr std::uint64_t kOffset = 4096;
  Fd file_;
  GraphLog log_{file_, kOffset};
};

TEST_F(GraphLogTest, HasWhatWasPutLast) {
  ASSERT_TRUE(log_.begin().ok());
  EXPECT_EQ("", found(log_.standing()));
  ASSERT_TRUE(log_.put({Kind::kGraph, 7}, bytes_of("first")).ok());
  ASSERT_TRUE(log_.put({Kind::kExec, 7}, bytes_of("other kind")).ok());
  ASSERT_TRUE(log_.put({Kind::kGraph, 8}, bytes_of("goes")).ok());
  const std::uint64_t before = log_.standing();
  ASSERT_TRUE(log_.put({Kind::kGraph, 7}, bytes_of("second")).ok());
  log_.drop({Kind::kGraph, 8});
  log_.drop({Kind::kGraph, 9});
  EXPECT_EQ("g7:second e7:other kind ", found(log_.standing()));
  // What is told stands until the next is.
  EXPECT_EQ("g7:first g8:goes e7:other kind ", found(before));
  EXPECT_EQ(2U, log_.contents().size());
}

TEST_F(GraphLogTest, TakesNoMoreMemoryForChangesThanForWhatThereIs) {
  const std::string content(1 * kMiB, 'x');
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(log_.begin().ok());
    ASSERT_TRUE(log_.put({Kind::kGraph, 1}, bytes_of(content)).ok()) << i;
    ASSERT_TRUE(log_.put({Kind::kExec, 1}, bytes_of(std::to_string(i))).ok());
    log_.finish();
    ASSERT_LT(memory(), 20 * kMiB) << i;
  }
  EXPECT_EQ("g1:" + content + " e1:299 ", found(log_.standing()));
}

TEST_F(GraphLogTest, HasALimitAndGoesOnBelowIt) {
  const std::string large(GraphLog::kLiveBytesMax / 2 - 4096, 'x');
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(log_.begin().ok());
    ASSERT_TRUE(log_.put({Kind::kGraph, 1}, bytes_of(large)).ok());
    ASSERT_TRUE(log_.put({Kind::kGraph, 2}, bytes_of(large)).ok());
    const Status more = log_.put({Kind::kGraph, 3}, bytes_of(large));
    ASSERT_FALSE(more.ok());
    EXPECT_EQ(ErrorCode::kLimit, more.error().code);
    log_.drop({Kind::kGraph, 1});
    log_.finish();
  }
  ASSERT_TRUE(log_.begin().ok());
  log_.drop({Kind::kGraph, 2});
  ASSERT_TRUE(log_.put({Kind::kGraph, 3}, bytes_of("small")).ok());
  EXPECT_EQ("g3:small ", found(log_.standing()));
}

TEST_F(GraphLogTest, IsNotTrusted) {
  ASSERT_TRUE(log_.begin().ok());
  ASSERT_TRUE(log_.put({Kind::kGraph, 7}, bytes_of("12345678")).ok());
  const std::uint64_t end = log_.standing();
  EXPECT_NE("g7:12345678 ", found(end - 1));
  EXPECT_NE("g7:12345678 ", found(end + 8));
  EXPECT_FALSE(GraphLog::read(file_, kOffset, GraphLog::kHalfBytes + 1).ok());
  const std::uint64_t huge = ~std::uint64_t{0};
  ASSERT_EQ(8, ::pwrite(file_.get(), &huge, 8, kOffset + 16));
  EXPECT_FALSE(GraphLog::read(file_, kOffset, end).ok());
  ASSERT_EQ(8, ::pwrite(file_.get(), &huge, 8, kOffset));
  EXPECT_FALSE(GraphLog::read(file_, kOffset, end).ok());
}

}  // namespace
}  // namespace flyt::server
