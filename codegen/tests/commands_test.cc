// Every command and every reply that is described: there and back again, and refused when cut,
// extended or over a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "base/random.h"
#include "commands/all.h"
#include "commands/ops.h"

namespace flyt::commands {
namespace {

using Buffer = std::vector<std::byte>;

// Fills a message's members with values from a seed; keeps what views look at.
class Fill {
 public:
  explicit Fill(std::uint64_t seed) : random_(seed) {}

  template <class T>
  requires Plain<T> || std::is_pointer_v<T>
  void operator()(const char*, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = random_.next() % 2 == 1;
    } else {
      fill(&value, sizeof(value));
    }
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    value.reset();
    if (random_.next() % 2 == 0) (*this)(name, value.emplace());
  }
  void operator()(const char*, std::string_view& value, std::uint32_t limit) {
    value = text_of(bytes(limit, 1));
  }
  void operator()(const char*, Bytes& value, std::uint32_t limit) { value = bytes(limit, 1); }
  template <class T>
  void operator()(const char*, wire::List<T>& value, std::uint32_t limit) {
    value = wire::List<T>::from_bytes(bytes(limit, sizeof(T)));
  }

 private:
  void fill(void* data, std::size_t size) {
    for (std::byte& each : mutable_bytes_at(data, size)) each = std::byte(random_.next());
  }
  Bytes bytes(std::uint32_t limit, std::size_t element_bytes) {
    const std::size_t count = random_.next() % (std::min<std::size_t>(limit, 9) + 1);
    Buffer& kept = kept_.emplace_back(count * element_bytes);
    fill(kept.data(), kept.size());
    return kept;
  }

  Random random_;
  std::list<Buffer> kept_;
};

template <class T>
Buffer encoded(const T& message) {
  Buffer bytes(encoded_size(message));
  Writer writer(bytes);
  encode(writer, message);
  EXPECT_EQ(writer.remaining(), 0U);
  return bytes;
}

template <class T>
void comes_back_equal(std::uint64_t seed) {
  Fill fill(seed);
  T sent;
  T::each(sent, fill);
  const Buffer bytes = encoded(sent);
  T received;
  ASSERT_TRUE(decode(bytes, received));
  EXPECT_EQ(encoded(received), bytes);
}

template <class T>
void is_refused_when_cut_or_extended(std::uint64_t seed) {
  Fill fill(seed);
  T sent;
  T::each(sent, fill);
  Buffer bytes = encoded(sent);
  T received;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of just that size, so that a sanitizer sees every byte read beyond it.
    const Buffer cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(cut, received)) << size << " of " << bytes.size() << " bytes";
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes, received)) << "one byte too many";
}

// Puts a length of one above each limit in turn, with as many bytes behind it.
template <class T>
class OverLimit {
 public:
  template <class Member>
  void operator()(const char*, const Member&) {
    ASSERT_TRUE((std::is_trivially_copyable_v<Member> || std::is_class_v<Member>));
  }
  void operator()(const char* name, std::string_view, std::uint32_t limit) {
    check(name, limit, 1);
  }
  void operator()(const char* name, Bytes, std::uint32_t limit) { check(name, limit, 1); }
  template <class E>
  void operator()(const char* name, const wire::List<E>&, std::uint32_t limit) {
    check(name, limit, sizeof(E));
  }

 private:
  // The members before `name` are empty or zero; those after it are left out: the length alone
  // must be refused.
  void check(const char* name, std::uint32_t limit, std::size_t element_bytes) {
    Buffer bytes;
    bool reached = false;
    T message;
    T::each(message, [&](const char* member, const auto& value, auto... more) {
      if (reached) return;
      reached = std::string_view(member) == name;
      if (!reached) {
        wire::internal::Measure measure;
        measure(member, value, more...);
        bytes.resize(bytes.size() + measure.bytes);
      }
    });
    const std::uint32_t length = limit + 1;
    Buffer tail(sizeof(length) + length * element_bytes);
    std::memcpy(tail.data(), &length, sizeof(length));
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    Reader reader(bytes);
    wire::internal::Decode decoder{reader};
    bool refused_here = false;
    T::each(message, [&](const char* member, auto& value, auto... more) {
      const bool before = reader.ok();
      decoder(member, value, more...);
      if (std::string_view(member) == name) refused_here = before && !reader.ok();
    });
    EXPECT_TRUE(refused_here) << T::kName << "." << name;
  }
};

template <class Reply>
struct NamedReply : Reply {
  static constexpr std::string_view kName = "reply";
};

template <class Visit>
void for_every_command(Visit visit) {
  All::each([&]<class Command>() {
    SCOPED_TRACE(Command::kName);
    visit.template operator()<Command>();
  });
}

constexpr std::uint64_t kSeeds = 20;

TEST(Commands, AndRepliesComeBackEqual) {
  for_every_command([]<class Command>() {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      comes_back_equal<Command>(seed);
      comes_back_equal<typename Command::Reply>(seed);
    }
  });
}

TEST(Commands, AndRepliesAreRefusedAtEveryLengthButTheirOwn) {
  for_every_command([]<class Command>() {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      is_refused_when_cut_or_extended<Command>(seed);
      is_refused_when_cut_or_extended<typename Command::Reply>(seed);
    }
  });
}

TEST(Commands, AndRepliesAreRefusedAboveEveryLimit) {
  for_every_command([]<class Command>() {
    Command command;
    Command::each(command, OverLimit<Command>{});
    using Reply = NamedReply<typename Command::Reply>;
    Reply reply;
    Reply::each(reply, OverLimit<Reply>{});
  });
}

TEST(Commands, HaveNumbersAndNamesOfTheirOwn) {
  std::vector<std::string_view> names(kOpMax + 1);
  for_every_command([&]<class Command>() {
    ASSERT_LE(Command::kOp, kOpMax);
    EXPECT_TRUE(names[Command::kOp].empty());
    names[Command::kOp] = Command::kName;
    EXPECT_EQ(command_name(Command::kOp), Command::kName);
  });
  EXPECT_EQ(command_name(0), "");
  EXPECT_EQ(command_name(kOpMax + 1), "");
}

TEST(Commands, DescribeThemselvesAndSayWhenTheyAreMalformed) {
  for_every_command([]<class Command>() {
    Fill fill(1);
    Command command;
    Command::each(command, fill);
    Buffer bytes = encoded(command);
    const std::string name(Command::kName);
    EXPECT_EQ(describe(Command::kOp, bytes).substr(0, name.size() + 1), name + "(");
    bytes.push_back(std::byte{0});
    EXPECT_EQ(describe(Command::kOp, bytes), name + "(malformed)");
  });
  EXPECT_EQ(describe(0, {}), "unknown op");
}

}  // namespace
}  // namespace flyt::commands
