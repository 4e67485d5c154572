#include "control/cluster/requirements/requirement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flyt::cluster::requirements {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string text(const char* value) { return value; }
std::int64_t whole(std::int64_t value) { return value; }

Row row_of(const std::string& vm, Value sms = whole(8), Value memory = whole(1024)) {
  return {.id = "id-of-" + vm,
          .fields = {{"vm_ip", vm},
                     {"host_ip", text("10.0.0.1")},
                     {"compute_units", std::move(sms)},
                     {"memory", std::move(memory)}}};
}

std::string why_not(const Row& row) {
  const auto requirement = requirement_of(row);
  return requirement ? "" : requirement.error().message;
}

TEST(Requirement, IsARowOfTheEarlierFlyt) {
  const auto one = requirement_of(row_of("10.1.0.7"));
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, (Requirement{"10.1.0.7", "10.0.0.1", 8, 1024ull << 20}));
}

TEST(Requirement, TakesNumbersOfAnyKindThatAreWhole) {
  const auto one = requirement_of(row_of("a", 16.0, 2048.0));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->sms, 16u);
  EXPECT_EQ(one->memory_bytes, 2048ull << 20);
}

TEST(Requirement, TakesAVmWithoutHostAndFieldsThatNobodyKnows) {
  Row row = row_of("a");
  row.fields.erase("host_ip");
  row.fields.emplace("comment", text("x"));
  row.fields.emplace("nested", Value());
  EXPECT_EQ(why_not(row), "");
}

TEST(Requirement, RefusesWhatIsMissingOrOfAnotherKind) {
  for (const char* field : {"vm_ip", "compute_units", "memory"}) {
    Row row = row_of("a");
    row.fields.erase(field);
    EXPECT_EQ(why_not(row), std::string(field) + " is missing");
    row.fields.emplace(field, Value());
    EXPECT_THAT(why_not(row), HasSubstr(std::string(field) + " is no "));
  }
  Row row = row_of("a", text("8"));
  EXPECT_THAT(why_not(row), HasSubstr("compute_units is no whole number from 1 to 4096"));
  row = row_of("a");
  row.fields["vm_ip"] = whole(7);
  EXPECT_THAT(why_not(row), HasSubstr("vm_ip is no text"));
  row = row_of("a");
  row.fields["host_ip"] = 1.5;
  EXPECT_THAT(why_not(row), HasSubstr("host_ip is no text"));
}

TEST(Requirement, RefusesNumbersThatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const Value& bad : {Value(whole(0)), Value(whole(-1)), Value(whole(4097)),
                           Value(std::numeric_limits<std::int64_t>::min()), Value(1.5), Value(-1.0),
                           Value(0.0), Value(nan), Value(inf), Value(-inf), Value(1e300)}) {
    EXPECT_THAT(why_not(row_of("a", bad)), HasSubstr("compute_units is no whole number"));
  }
  for (const Value& bad : {Value(whole(-1)), Value(whole((1ll << 22) + 1)), Value(1e30),
                           Value(std::numeric_limits<std::int64_t>::max())}) {
    EXPECT_THAT(why_not(row_of("a", whole(8), bad)), HasSubstr("memory is no whole number"));
  }
}

TEST(Requirement, RefusesTextsThatCannotBeShown) {
  EXPECT_THAT(why_not(row_of("")), HasSubstr("vm_ip is no text"));
  EXPECT_THAT(why_not(row_of(std::string(257, 'a'))), HasSubstr("vm_ip is no text"));
  EXPECT_THAT(why_not(row_of("a\nb")), HasSubstr("vm_ip is no text"));
  EXPECT_THAT(why_not(row_of(std::string("a\0b", 3))), HasSubstr("vm_ip is no text"));
}

TEST(RequirementAnswer, SkipsBadRowsAndKeepsTheOthers) {
  Answer answer;
  answer.add(row_of("a"));
  answer.add(row_of("b", whole(-1)));
  answer.add(row_of("c\x1b[31m"));
  answer.skip("row 4", "the document is damaged");
  answer.add(row_of("d"));
  EXPECT_THAT(answer.vms(), SizeIs(2));
  EXPECT_EQ(answer.rows(), 5u);
  ASSERT_THAT(answer.skipped(), SizeIs(3));
  EXPECT_EQ(answer.skipped()[0].row, "b (id-of-b)");
  EXPECT_THAT(answer.skipped()[1].row, Not(HasSubstr("\x1b")));
  EXPECT_TRUE(answer.names("b"));
}

TEST(RequirementAnswer, TakesTheFirstOfTwoRowsOfAVm) {
  Answer answer;
  answer.add(row_of("a", whole(8)));
  answer.add(row_of("a", whole(16)));
  EXPECT_EQ(answer.vms().at("a").sms, 8u);
  ASSERT_THAT(answer.skipped(), SizeIs(1));
  EXPECT_THAT(answer.skipped()[0].why, HasSubstr("before it"));
}

TEST(RequirementAnswer, NamesOnlySoManySkippedRows) {
  Answer answer;
  for (int i = 0; i < 300; ++i) answer.add(row_of("vm" + std::to_string(i), whole(0)));
  EXPECT_EQ(answer.skipped_count(), 300u);
  EXPECT_THAT(answer.skipped(), SizeIs(kSkippedNamedMax));
  // What is not named is known all the same.
  EXPECT_TRUE(answer.names("vm299"));
}

TEST(RequirementAnswer, TakesNoMoreRowsThanThereMayBe) {
  Answer answer;
  for (std::size_t i = 0; i < kRowsMax; ++i) answer.add(row_of("vm" + std::to_string(i)));
  EXPECT_TRUE(answer.complete());
  answer.add(row_of("more"));
  EXPECT_FALSE(answer.complete());
  EXPECT_THAT(answer.vms(), SizeIs(kRowsMax));
  EXPECT_FALSE(answer.names("more"));
}

Known known(const std::string& name, std::uint32_t sms, bool listed = true,
            const std::string& address = "") {
  return {name, address, listed, "10.0.0.1", sms, 1024ull << 20};
}

std::vector<std::string> changed(const Difference& difference) {
  std::vector<std::string> names;
  for (const Requirement& one : difference.changed) names.push_back(one.vm);
  return names;
}

Answer answer_of(std::initializer_list<const char*> vms) {
  Answer answer;
  for (const char* vm : vms) answer.add(row_of(vm));
  return answer;
}

TEST(RequirementDifference, IsWhatIsNewChangedOrGone) {
  const Answer answer = answer_of({"same", "other", "new", "theirs", "10.1.0.7"});
  const Difference difference = requirements::difference(
      {known("same", 8), known("other", 16), known("gone", 8), known("theirs", 8, false),
       known("kept", 8, false), known("vm-7", 8, true, "10.1.0.7")},
      answer);
  EXPECT_THAT(changed(difference), ElementsAre("new", "other", "theirs"));
  EXPECT_THAT(difference.gone, ElementsAre("gone"));
  EXPECT_THAT(difference.refused, IsEmpty());
}

TEST(RequirementDifference, NobodyIsGoneByAnAnswerThatIsNotWhole) {
  EXPECT_THAT(difference({known("a", 8)}, Answer()).gone, IsEmpty());
  Answer cut = answer_of({"b"});
  cut.cut();
  EXPECT_THAT(difference({known("a", 8)}, cut).gone, IsEmpty());
}

TEST(RequirementDifference, AVmWhoseRowIsBadIsNotGone) {
  Answer answer = answer_of({"b"});
  answer.add(row_of("a", whole(0)));
  const Difference difference = requirements::difference({known("a", 8), known("b", 8)}, answer);
  EXPECT_THAT(difference.gone, IsEmpty());
  EXPECT_THAT(changed(difference), IsEmpty());
}

TEST(RequirementDifference, OneVmIsNotChangedByTwoRows) {
  Answer answer;
  answer.add(row_of("10.1.0.7", whole(8)));
  answer.add(row_of("vm-7", whole(16)));
  const Difference difference =
      requirements::difference({known("vm-7", 8, true, "10.1.0.7")}, answer);
  EXPECT_THAT(changed(difference), IsEmpty());
  ASSERT_THAT(difference.refused, SizeIs(1));
  EXPECT_EQ(difference.refused[0].row, "vm-7");
}

TEST(MongoUri, IsShownWithoutSecrets) {
  const char* uri = "mongodb://ann:pa%20ss@h1:27017,h2/admin?tlsCertificateKeyFilePassword=hunter2";
  EXPECT_EQ(shown_uri(uri), "mongodb://h1:27017,h2");
  EXPECT_EQ(shown_uri("mongodb://ann:a/b@c@h/x"), "mongodb://h");
  EXPECT_EQ(shown_uri("hunter2"), "no URI");
  EXPECT_EQ(shown_uri("mongodb://h/?password=a@b"), "mongodb://b");
}

TEST(MongoUri, CanBeOneOrNot) {
  for (const char* good : {"mongodb://h", "mongodb://u:p@h:1,i:2/d?tls=true",
                           "mongodb+srv://example.org", "mongodb://%2Frun%2Fmongodb.sock"}) {
    EXPECT_TRUE(check_uri(good)) << good;
  }
  for (const std::string& bad :
       {std::string("mongodb://"), std::string("mongodb:///d"), std::string("http://h"),
        std::string("mongodb://a b"), std::string("mongodb://h\n"), std::string("mongodb://u:p@"),
        "mongodb://" + std::string(5000, 'h')}) {
    EXPECT_FALSE(check_uri(bad)) << bad;
  }
  EXPECT_THAT(check_uri("http://u:hunter2@h").error().message, Not(HasSubstr("hunter2")));
}

TEST(MongoUri, SecretsAreTakenOutOfWhatOthersSay) {
  EXPECT_EQ(without_secret("bad hunter2: hunter2", "hunter2"), "bad ***: ***");
  EXPECT_EQ(without_secret("***", "*"), "*********");
  EXPECT_EQ(without_secret("text", ""), "text");
}

}  // namespace
}  // namespace flyt::cluster::requirements
