#include "control/cluster/requirements/mongodb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"

namespace flyt::cluster::requirements {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string number(std::int64_t value, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string field(char type, const std::string& name, const std::string& value) {
  return type + name + '\0' + value;
}

std::string text(const std::string& name, const std::string& value) {
  return field('\x02', name, number(static_cast<std::int64_t>(value.size()) + 1, 4) + value + '\0');
}

std::string document(const std::string& fields) {
  return number(static_cast<std::int64_t>(fields.size()) + 5, 4) + fields + '\0';
}

std::string whole_row() {
  return document(field('\x07', "_id", std::string(12, '\x11')) + text("vm_ip", "10.1.0.7") +
                  text("host_ip", "10.0.0.1") + field('\x10', "compute_units", number(32, 4)) +
                  field('\x12', "memory", number(8192, 8)));
}

TEST(MongoRow, IsReadFromADocumentsBytes) {
  const auto row = row_of(bytes_of(whole_row()));
  ASSERT_TRUE(row);
  EXPECT_EQ(row->id, "111111111111111111111111");
  const auto requirement = requirement_of(*row);
  ASSERT_TRUE(requirement);
  EXPECT_EQ(*requirement, (Requirement{"10.1.0.7", "10.0.0.1", 32, 8192ull << 20}));
}

TEST(MongoRow, HasTheKindsThatShellsWrite) {
  const std::string thirty_two("\0\0\0\0\0\0\x40\x40", 8);
  const auto row = row_of(
      bytes_of(document(text("_id", "mine") + text("vm_ip", "a") +
                        field('\x01', "compute_units", thirty_two) + field('\x0a', "memory", ""))));
  ASSERT_TRUE(row);
  EXPECT_EQ(row->id, "mine");
  EXPECT_EQ(std::get<double>(row->fields.at("compute_units")), 32.0);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(row->fields.at("memory")));
}

TEST(MongoRow, OfTwoFieldsOfOneNameIsTheFirst) {
  const auto row = row_of(bytes_of(document(text("vm_ip", "a") + text("vm_ip", "b"))));
  ASSERT_TRUE(row);
  EXPECT_EQ(std::get<std::string>(row->fields.at("vm_ip")), "a");
}

TEST(MongoRow, RefusesEveryTruncationAndWhatIsBehindTheEnd) {
  const std::string whole = whole_row();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(row_of(bytes_of(std::string_view(whole).substr(0, size)))) << size;
    // The same with a length that says that it is all.
    if (size < 5) continue;
    const auto row =
        row_of(bytes_of(number(static_cast<std::int64_t>(size), 4) + whole.substr(4, size - 4)));
    EXPECT_FALSE(row) << size;
  }
  EXPECT_FALSE(row_of(bytes_of(whole + '\0')));
}

TEST(MongoRow, RefusesTextThatIsNone) {
  const auto row = row_of(bytes_of(document(text("vm_ip", "\xff\xfe"))));
  EXPECT_FALSE(row && requirement_of(*row));
  EXPECT_FALSE(row_of(bytes_of(document(field('\x02', "vm_ip", number(0x7fffffff, 4) + "a")))));
  EXPECT_FALSE(row_of(bytes_of(document(field('\x02', "vm_ip", number(-1, 4))))));
  EXPECT_FALSE(row_of(bytes_of(document(text("x", std::string(kRowBytesMax, 'a'))))));
}

TEST(MongoRow, SurvivesAnyChangeOfItsBytes) {
  const std::uint64_t seed = 4711;
  Random random(seed);
  for (int turn = 0; turn < 20000; ++turn) {
    std::string bytes = whole_row();
    for (std::uint64_t i = 0; i <= random.below(4); ++i) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    if (const auto row = row_of(bytes_of(bytes))) {
      static_cast<void>(requirement_of(*row).ok());
    }
  }
}

TEST(MongoSource, RefusesAUriThatCannotBeWithoutItsSecrets) {
  for (const char* uri : {"mongodb://u:hunter2%zz@h/", "mongodb://u:hunter2@h:99999999/"}) {
    const auto source = make_mongodb({.uri = uri, .database = "d", .collection = "c"});
    ASSERT_FALSE(source) << uri;
    EXPECT_THAT(source.error().message, HasSubstr("mongodb://h"));
    EXPECT_THAT(source.error().message, Not(HasSubstr("hunter2")));
  }
}

TEST(MongoSource, TellsThatNobodyAnswers) {
  const auto source = make_mongodb({.uri = "mongodb://u:hunter2@127.0.0.1:1/?connectTimeoutMS=500",
                                    .database = "d",
                                    .collection = "c"});
  ASSERT_TRUE(source);
  const auto answer = (*source)->read([] { return false; });
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(answer.error().message, Not(HasSubstr("hunter2")));
}

TEST(MongoSource, NeedsThePasswordFileThatItIsGiven) {
  const auto source = make_mongodb({.uri = "mongodb://u@127.0.0.1:1/",
                                    .database = "d",
                                    .collection = "c",
                                    .password_file = "/nowhere/password"});
  ASSERT_TRUE(source);
  const auto answer = (*source)->read([] { return false; });
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("/nowhere/password"));
}

}  // namespace
}  // namespace flyt::cluster::requirements
