#include "control/cli/cluster/import.h"

#include <gtest/gtest.h>

namespace flyt::cli {
namespace {

TEST(Import, TakesFlytsDocuments) {
  const auto request =
      vms_of(R"({"_id":{"$oid":"1"},"vm_ip":"10.0.0.7","host_ip":"10.0.0.1","compute_units":32,)"
             R"("memory":4096})"
             "\n\n"
             R"({"vm_ip":"10.0.0.8","host_ip":"10.0.0.1","compute_units":8,)"
             R"("memory":{"$numberLong":"512"}})"
             "\n",
             "vms.json");
  ASSERT_TRUE(request.ok()) << request.error().message;
  ASSERT_EQ(request->vms_size(), 2);
  EXPECT_EQ(request->vms(0).name(), "10.0.0.7");
  EXPECT_EQ(request->vms(0).host(), "10.0.0.1");
  EXPECT_EQ(request->vms(0).sms(), 32u);
  EXPECT_EQ(request->vms(0).memory_bytes(), 4096ull << 20);
  EXPECT_EQ(request->vms(1).memory_bytes(), 512ull << 20);
}

TEST(Import, TakesWholeNumbersOfWhicheverKind) {
  const auto request =
      vms_of(R"({"vm_ip":"10.0.0.7","compute_units":32.0,"memory":{"$numberDouble":"4096.0"}})"
             "\n"
             R"({"vm_ip":"10.0.0.8","compute_units":{"$numberInt":"8"},"memory":5.12e2})",
             "vms.json");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->vms(0).sms(), 32u);
  EXPECT_EQ(request->vms(0).memory_bytes(), 4096ull << 20);
  EXPECT_EQ(request->vms(1).sms(), 8u);
  EXPECT_EQ(request->vms(1).memory_bytes(), 512ull << 20);
}

TEST(Import, TakesWhatFlytctlSays) {
  const auto request =
      vms_of(R"({"vms":[{"spec":{"name":"a","address":"10.0.0.7","host":"","sms":8,)"
             R"("memory_bytes":1073741824,"priority":-3,"policy":"pack","mode":"unspecified",)"
             R"("labels":{"team":"x"},"apart":["team"],"keep":true,"share_sms":true,)"
             R"("sms_min":4,"sms_max":16},"gpu":{},"sessions":2}]})",
             "vms.json");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto& vm = request->vms(0);
  EXPECT_EQ(vm.name(), "a");
  EXPECT_EQ(vm.address(), "10.0.0.7");
  EXPECT_EQ(vm.memory_bytes(), 1ull << 30);
  EXPECT_EQ(vm.priority(), -3);
  EXPECT_EQ(vm.labels().at("team"), "x");
  EXPECT_EQ(vm.apart(0), "team");
  EXPECT_TRUE(vm.keep());
  EXPECT_TRUE(vm.share_sms());
  EXPECT_EQ(vm.sms_min(), 4u);
  EXPECT_EQ(vm.sms_max(), 16u);
}

TEST(Import, TakesSizesWithUnits) {
  const auto request = vms_of(R"([{"name":"a","sms":8,"memory":"20G"}])", "f");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->vms(0).memory_bytes(), 20ull << 30);
}

TEST(Import, SaysWhichObjectIsWrongAndWhy) {
  const auto says = [](const char* text, const char* what) {
    const auto request = vms_of(text, "f");
    ASSERT_FALSE(request.ok()) << text;
    EXPECT_NE(request.error().message.find(what), std::string::npos) << request.error().message;
  };
  says(R"([{"name":"a"},{"name":"b","colour":"red"}])", "object 2: colour");
  says(R"([{"name":7}])", "object 1: name");
  says(R"([{"sms":-1}])", "sms");
  for (const char* bad : {"8.5", "-8.0", "1e300", R"({"$numberDouble":"NaN"})",
                          R"({"$numberLong":"many"})", R"({"$numberInt":8})", R"("8")"}) {
    says((std::string(R"([{"sms":)") + bad + "}]").c_str(), "sms: a whole number is expected");
  }
  says(R"([{"sms":99999999999}])", "sms");
  says(R"([{"memory":18446744073709551615}])", "memory");
  says(R"([{"labels":["a"]}])", "labels");
  says(R"([{"mode":"mps"}])", "isolated, shared or any");
  says(R"([7])", "object 1");
  says("{\"name\":\"a\"}\nnothing\n", "object 2 is no JSON");
  says("", "no VM");
  says("[]", "no VM");
}

}  // namespace
}  // namespace flyt::cli
