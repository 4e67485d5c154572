// DriverLog: readers get each message once, and are told what they missed.
#include "cuda/driver_log.h"

#include <gtest/gtest.h>

namespace flyt::cuda {
namespace {

std::string dump(DriverLog& log, CUlogIterator* iterator, std::size_t room = 30000) {
  std::string text(room, 'x');
  std::size_t size = room;
  if (log.dump_to_memory(iterator, text.data(), &size, 0) != CUDA_SUCCESS) return "refused";
  // A buffer is left as it is where there is nothing for it.
  EXPECT_EQ(text[size], size == 0 && room != 0 ? 'x' : '\0');
  return text.substr(0, size);
}

TEST(DriverLog, AnIteratorSeesEachMessageOnce) {
  DriverLog log;
  log.write(CU_LOG_LEVEL_ERROR, "before");
  CUlogIterator iterator = 0;
  ASSERT_EQ(log.current(&iterator, 0), CUDA_SUCCESS);
  EXPECT_EQ(dump(log, &iterator), "");
  log.write(CU_LOG_LEVEL_ERROR, "first");
  log.write(CU_LOG_LEVEL_WARNING, "second\nline");
  EXPECT_EQ(dump(log, &iterator), "[E] first\n[W] second line\n");
  EXPECT_EQ(dump(log, &iterator), "");
  EXPECT_EQ(dump(log, &iterator, 0), "");
  EXPECT_EQ(dump(log, nullptr, 0), "refused");
  EXPECT_EQ(dump(log, nullptr), "[E] before\n[E] first\n[W] second line\n");
}

TEST(DriverLog, OldMessagesAreLostAndTheReaderIsTold) {
  DriverLog log;
  CUlogIterator iterator = 0;
  ASSERT_EQ(log.current(&iterator, 0), CUDA_SUCCESS);
  for (std::size_t i = 0; i < DriverLog::kMessagesMax + 1; ++i) {
    log.write(CU_LOG_LEVEL_ERROR, std::to_string(i));
  }
  const std::string text = dump(log, &iterator);
  EXPECT_EQ(text.substr(0, 40), "[W] earlier messages are lost\n[E] 1\n[E] ");
  EXPECT_TRUE(text.ends_with("[E] 100\n"));
}

TEST(DriverLog, ASmallBufferGetsTheNewestThatFit) {
  DriverLog log;
  for (int i = 0; i < 9; ++i) log.write(CU_LOG_LEVEL_ERROR, "message " + std::to_string(i));
  const std::string text = dump(log, nullptr, 80);
  EXPECT_EQ(text, "[W] earlier messages do not fit\n[E] message 6\n[E] message 7\n[E] message 8\n");
  EXPECT_EQ(dump(log, nullptr, 20), "refused");
  EXPECT_EQ(dump(log, nullptr, 1), "refused");
}

TEST(DriverLog, NoMessageIsLongerThanItsLimit) {
  DriverLog log;
  log.write(CU_LOG_LEVEL_ERROR, std::string(10000, 'a'));
  EXPECT_EQ(dump(log, nullptr).size(), DriverLog::kMessageBytesMax + 1);
}

TEST(DriverLog, CallbacksHearUntilTheyAreUnregistered) {
  DriverLog log;
  std::string heard;
  const auto hear = [](void* data, CUlogLevel level, char* message, std::size_t length) {
    EXPECT_EQ(level, CU_LOG_LEVEL_ERROR);
    static_cast<std::string*>(data)->append(message, length);
  };
  CUlogsCallbackHandle handle = nullptr;
  ASSERT_EQ(log.register_callback(hear, &heard, &handle), CUDA_SUCCESS);
  log.write(CU_LOG_LEVEL_ERROR, "one");
  EXPECT_EQ(heard, "[E] one");
  EXPECT_EQ(log.unregister_callback(handle), CUDA_SUCCESS);
  EXPECT_EQ(log.unregister_callback(handle), CUDA_ERROR_INVALID_VALUE);
  log.write(CU_LOG_LEVEL_ERROR, "two");
  EXPECT_EQ(heard, "[E] one");
  EXPECT_EQ(log.register_callback(nullptr, nullptr, &handle), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace flyt::cuda
