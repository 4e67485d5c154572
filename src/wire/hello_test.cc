#include "wire/hello.h"

#include <gtest/gtest.h>

#include <cstring>

namespace flyt::wire {
namespace {

ClientHello full_hello() {
  return {.version_min = 1,
          .version_max = 3,
          .name = "python3",
          .process_id = 4711,
          .user_id = 1000,
          .role = ConnectionRole::kBulk,
          .token = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
          .windows = {{WindowPurpose::kArena, 0, 0x300000000000, std::uint64_t{1} << 40},
                      {WindowPurpose::kPinned, 0, 0x380000000000, std::uint64_t{1} << 40}},
          .limits = {.commands_in_flight = 100},
          .highest_op = 700,
          .credential = "secret",
          .lane = 15,
          .packing = LanePacking::kOn};
}

Welcome full_welcome() {
  return {.version = 1,
          .name = "gpu-host-7",
          .process_id = 99,
          .token = {9, 9, 9},
          .driver = "soft",
          .driver_version = 13000,
          .windows = {{WindowPurpose::kArena, 0, 0x300000000000, std::uint64_t{1} << 40}},
          .limits = {.bytes_in_flight = 32 * kMiB},
          .highest_op = 650};
}

void put_u16(std::vector<std::byte>& bytes, std::size_t at, std::uint16_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
void put_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint32_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// A hello with one more record behind its others.
std::vector<std::byte> with_record(std::vector<std::byte> bytes, std::uint16_t id,
                                   std::string_view value) {
  std::uint16_t count = 0;
  std::memcpy(&count, bytes.data() + 14, sizeof count);
  put_u16(bytes, 14, count + 1);
  const std::size_t at = bytes.size();
  bytes.resize(at + 4 + value.size());
  put_u16(bytes, at, id);
  put_u16(bytes, at + 2, static_cast<std::uint16_t>(value.size()));
  std::memcpy(bytes.data() + at + 4, value.data(), value.size());
  put_u32(bytes, 16, static_cast<std::uint32_t>(bytes.size() - kHelloPrefixBytes));
  return bytes;
}

TEST(Hello, ReadsBackWhatAClientWrote) {
  const Result<ClientHello> read = decode_client_hello(encode(full_hello()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, full_hello());
  const Result<ClientHello> plain = decode_client_hello(encode(ClientHello{}));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, ClientHello{});
}

TEST(Hello, ReadsBackWhatAServerWrote) {
  const Result<Welcome> read = decode_answer(encode(full_welcome()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, full_welcome());
}

TEST(Hello, TellsTheReasonOfARefusal) {
  const Result<Welcome> denied = decode_answer(encode(Refusal{RefusalCode::kFull, "no room"}));
  ASSERT_FALSE(denied.ok());
  EXPECT_EQ(denied.error().code, ErrorCode::kDenied);
  EXPECT_EQ(denied.error().message, "refused by the server: no room");
  const Result<Welcome> version = decode_answer(encode(Refusal{RefusalCode::kVersion, "too old"}));
  EXPECT_EQ(version.error().code, ErrorCode::kUnsupported);
  const Result<Welcome> full = decode_answer(encode(Refusal{RefusalCode::kGpuFull, "46 of 46"}));
  EXPECT_EQ(full.error().code, ErrorCode::kLimit);
  EXPECT_EQ(full.error().message, "refused by the server: 46 of 46");
  const Result<Welcome> later = decode_answer(encode(Refusal{RefusalCode{99}, "who knows"}));
  EXPECT_EQ(later.error().code, ErrorCode::kDenied);
}

TEST(Hello, TellsWhetherASessionCanGoOnElsewhere) {
  ClientHello hello;
  hello.recoverable = true;
  hello.recovers = {1, 2, 3};
  const Result<ClientHello> read = decode_client_hello(encode(hello));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, hello);
  Welcome welcome;
  welcome.recovery = {4, 5};
  welcome.returns_ms = 10'000;
  const Result<Welcome> answered = decode_answer(encode(welcome));
  ASSERT_TRUE(answered.ok());
  EXPECT_EQ(answered->recovery, welcome.recovery);
  EXPECT_EQ(answered->returns_ms, 10'000U);
  const auto returns = static_cast<std::uint16_t>(HelloRecord::kReturns);
  EXPECT_FALSE(decode_answer(with_record(encode(Welcome{}), returns, "abc")).ok());
  EXPECT_FALSE(decode_answer(with_record(encode(welcome), returns, "abcd")).ok());
  const auto id = static_cast<std::uint16_t>(HelloRecord::kRecovery);
  for (const std::string& wrong : {std::string(), std::string(15, 'x'), std::string(17, 'x')}) {
    EXPECT_FALSE(decode_client_hello(with_record(encode(ClientHello{}), id, wrong)).ok());
  }
  EXPECT_FALSE(decode_client_hello(with_record(encode(hello), id, std::string(16, 'x'))).ok());
}

TEST(Hello, SkipsRecordsThatItDoesNotKnow) {
  const auto bytes = with_record(encode(full_hello()), 999, "from the future");
  const Result<ClientHello> read = decode_client_hello(bytes);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, full_hello());
}

TEST(Hello, RefusesAnUnknownRecordThatMustBeUnderstood) {
  const Result<ClientHello> read =
      decode_client_hello(with_record(encode(full_hello()), kMustUnderstand | 5, ""));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
}

TEST(Hello, RefusesARecordThatComesTwice) {
  EXPECT_FALSE(decode_client_hello(with_record(encode(full_hello()), 1, "again")).ok());
}

TEST(Hello, RefusesALaneThatThereIsNot) {
  using namespace std::string_view_literals;
  const auto with = [](std::string_view lane) {
    return decode_client_hello(with_record(encode(ClientHello{}), 12, lane));
  };
  EXPECT_TRUE(with("\x0f\0\2\0"sv).ok());
  for (const std::string_view lane : {"\x10\0\0\0"sv, "\0\1\0\0"sv, "\0\0\3\0"sv, "\0\0\0"sv}) {
    EXPECT_FALSE(with(lane).ok());
  }
}

TEST(Hello, RefusesItselfCutAtEveryByte) {
  const std::vector<std::byte> bytes = encode(full_hello());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_client_hello(Bytes(bytes).first(size)).ok()) << size;
    // Also when the prefix is honest about the shorter length.
    if (size < kHelloPrefixBytes) continue;
    std::vector<std::byte> shorter(bytes.begin(),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(size));
    put_u32(shorter, 16, static_cast<std::uint32_t>(size - kHelloPrefixBytes));
    EXPECT_FALSE(decode_client_hello(shorter).ok()) << size;
  }
}

TEST(Hello, RefusesBytesBehindTheLastRecord) {
  std::vector<std::byte> bytes = encode(full_hello());
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_client_hello(bytes).ok());
  put_u32(bytes, 16, static_cast<std::uint32_t>(bytes.size() - kHelloPrefixBytes));
  EXPECT_FALSE(decode_client_hello(bytes).ok());
}

TEST(Hello, RefusesAPrefixThatBreaksARule) {
  const std::vector<std::byte> good = encode(ClientHello{});
  EXPECT_TRUE(decode_hello_prefix(good).ok());
  std::vector<std::byte> bytes = good;
  bytes[0] = std::byte{'G'};
  EXPECT_FALSE(decode_hello_prefix(bytes).ok());
  bytes = good;
  put_u16(bytes, 8, 4);
  EXPECT_FALSE(decode_hello_prefix(bytes).ok());
  bytes = good;
  put_u16(bytes, 10, 9);
  EXPECT_FALSE(decode_hello_prefix(bytes).ok());
  bytes = good;
  put_u32(bytes, 16, kHelloRecordsBytesMax + 1);
  EXPECT_FALSE(decode_hello_prefix(bytes).ok());
  bytes = good;
  put_u16(bytes, 14, kHelloRecordCountMax + 1);
  EXPECT_FALSE(decode_hello_prefix(bytes).ok());
}

TEST(Hello, IsNotTakenForAnAnswerNorTheOtherWayRound) {
  EXPECT_FALSE(decode_answer(encode(full_hello())).ok());
  EXPECT_FALSE(decode_client_hello(encode(full_welcome())).ok());
  EXPECT_FALSE(decode_client_hello(encode(Refusal{})).ok());
}

TEST(Hello, RefusesWindowsThatAreEmptyUnalignedOrWrapAround) {
  for (const Window window : {Window{WindowPurpose::kArena, 0, 0x1000, 0},
                              Window{WindowPurpose::kArena, 0, 0x1001, 0x1000},
                              Window{WindowPurpose::kArena, 0, ~std::uint64_t{0xfff}, 0x2000}}) {
    EXPECT_FALSE(decode_client_hello(encode(ClientHello{.windows = {window}})).ok());
  }
}

TEST(Hello, RefusesAWelcomeWithTwoWindowsOfOnePurpose) {
  Welcome welcome = full_welcome();
  welcome.windows.push_back(welcome.windows[0]);
  EXPECT_FALSE(decode_answer(encode(welcome)).ok());
}

TEST(Hello, CutsTextsThatAreTooLongForTheReader) {
  const Result<ClientHello> read =
      decode_client_hello(encode(ClientHello{.name = std::string(5000, 'x')}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->name.size(), kHelloTextBytesMax);
}

TEST(Hello, FindsTheHighestCommonVersion) {
  const Result<std::uint16_t> version = common_version(1, 9);
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(*version, kVersionMax);
  EXPECT_FALSE(common_version(kVersionMax + 1, kVersionMax + 2).ok());
  EXPECT_FALSE(common_version(0, 0).ok());
}

TEST(Hello, AgreesOnTheSmallerLimitsUnlessTheyAreTooSmall) {
  const Result<Limits> limits = common_limits({}, {.commands_in_flight = 50});
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->commands_in_flight, 50u);
  EXPECT_EQ(limits->bytes_in_flight, kBytesInFlightMax);
  EXPECT_FALSE(common_limits({}, {.commands_in_flight = 1}).ok());
  EXPECT_FALSE(common_limits({}, {.bytes_in_flight = kMiB}).ok());
  EXPECT_FALSE(common_limits({}, {.frame_payload_bytes = 100}).ok());
  EXPECT_FALSE(common_limits({}, {.calls_waiting = 0}).ok());
}

}  // namespace
}  // namespace flyt::wire
