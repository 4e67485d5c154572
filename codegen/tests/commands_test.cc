// Every command and every reply that is described: there and back again, and refused when cut,
// extended or over a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "base/assert.h"
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
  return bytes;
}

// A member whose length varies, in a message without contents.
struct Bounded {
  std::string_view name;
  std::size_t offset;  // of its length, bytes
  std::uint32_t limit;
  std::size_t element_bytes;
};

// Finds the members of a message whose length varies.
struct FindBounded {
  std::vector<Bounded>& found;
  wire::internal::Measure before{};

  template <class T>
  void operator()(const char* name, const T& value) {
    before(name, value);
  }
  void operator()(const char* name, std::string_view value, std::uint32_t limit) {
    add(name, value, limit, 1);
  }
  void operator()(const char* name, Bytes value, std::uint32_t limit) {
    add(name, value, limit, 1);
  }
  template <class E>
  void operator()(const char* name, const wire::List<E>& value, std::uint32_t limit) {
    add(name, value, limit, sizeof(E));
  }

 private:
  template <class T>
  void add(const char* name, const T& value, std::uint32_t limit, std::size_t element_bytes) {
    found.push_back({name, before.bytes, limit, element_bytes});
    before(name, value, limit);
  }
};

// What the tests do to a message, without its type: they are compiled once, not for each message.
struct Message {
  std::string name;
  Buffer (*empty)();
  Buffer (*filled)(Fill& fill);
  bool (*decodes)(Bytes bytes);
  Buffer (*recoded)(Bytes bytes);  // `bytes` decode
  std::vector<Bounded> (*bounded)();
};

template <class T>
Buffer empty() {
  return encoded(T{});
}

template <class T>
Buffer filled(Fill& fill) {
  T message;
  T::each(message, fill);
  return encoded(message);
}

template <class T>
bool decodes(Bytes bytes) {
  T message;
  return decode(bytes, message);
}

template <class T>
Buffer recoded(Bytes bytes) {
  T message;
  FLYT_ASSERT(decode(bytes, message));
  return encoded(message);
}

template <class T>
std::vector<Bounded> bounded() {
  std::vector<Bounded> found;
  FindBounded find{found};
  const T message;
  T::each(message, find);
  return found;
}

template <class T>
Message message_of(std::string name) {
  return {std::move(name), &empty<T>, &filled<T>, &decodes<T>, &recoded<T>, &bounded<T>};
}

struct Command {
  std::uint16_t op;
  Message message;
  Message reply;
};

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> made;
    All::each([&]<class T>() {
      const std::string name(T::kName);
      made.push_back({T::kOp, message_of<T>(name),
                      message_of<typename T::Reply>("reply of " + name)});
    });
    return made;
  }();
  return commands;
}

void for_every_message(void (*visit)(const Message& message)) {
  for (const Command& command : all_commands()) {
    for (const Message* message : {&command.message, &command.reply}) {
      SCOPED_TRACE(message->name);
      visit(*message);
    }
  }
}

// An empty message of which one member is `length` elements of zeros.
Buffer lengthened(const Message& message, const Bounded& member, std::uint32_t length) {
  Buffer bytes = message.empty();
  const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(member.offset);
  std::memcpy(&*at, &length, sizeof(length));
  bytes.insert(at + sizeof(length), length * member.element_bytes, std::byte{0});
  return bytes;
}

constexpr std::uint64_t kSeeds = 20;

TEST(Commands, AndRepliesComeBackEqual) {
  for_every_message([](const Message& message) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Fill fill(seed);
      const Buffer bytes = message.filled(fill);
      ASSERT_TRUE(message.decodes(bytes));
      EXPECT_EQ(message.recoded(bytes), bytes);
    }
  });
}

TEST(Commands, AndRepliesAreRefusedAtEveryLengthButTheirOwn) {
  for_every_message([](const Message& message) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Fill fill(seed);
      Buffer bytes = message.filled(fill);
      for (std::size_t size = 0; size < bytes.size(); ++size) {
        // A copy of just that size, so that a sanitizer sees every byte read beyond it.
        const Buffer cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_FALSE(message.decodes(cut)) << size << " of " << bytes.size() << " bytes";
      }
      bytes.push_back(std::byte{0});
      EXPECT_FALSE(message.decodes(bytes)) << "one byte too many";
    }
  });
}

TEST(Commands, AndRepliesAreRefusedAboveEveryLimit) {
  for_every_message([](const Message& message) {
    for (const Bounded& member : message.bounded()) {
      SCOPED_TRACE(member.name);
      EXPECT_TRUE(message.decodes(lengthened(message, member, member.limit)));
      EXPECT_FALSE(message.decodes(lengthened(message, member, member.limit + 1)));
    }
  });
}

TEST(Commands, HaveNumbersAndNamesOfTheirOwn) {
  std::vector<std::string> names(kOpMax + 1);
  for (const Command& command : all_commands()) {
    ASSERT_LE(command.op, kOpMax);
    EXPECT_EQ(names[command.op], "");
    names[command.op] = command.message.name;
    EXPECT_EQ(command_name(command.op), command.message.name);
  }
  EXPECT_EQ(command_name(0), "");
  EXPECT_EQ(command_name(kOpMax + 1), "");
}

TEST(Commands, DescribeThemselvesAndSayWhenTheyAreMalformed) {
  for (const Command& command : all_commands()) {
    Fill fill(1);
    Buffer bytes = command.message.filled(fill);
    const std::string& name = command.message.name;
    EXPECT_EQ(describe(command.op, bytes).substr(0, name.size() + 1), name + "(");
    bytes.push_back(std::byte{0});
    EXPECT_EQ(describe(command.op, bytes), name + "(malformed)");
  }
  EXPECT_EQ(describe(0, {}), "unknown op");
}

}  // namespace
}  // namespace flyt::commands
