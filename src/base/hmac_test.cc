#include "base/hmac.h"

#include <gtest/gtest.h>

#include <string>

namespace flyt {
namespace {

std::string hmac(const std::string& key, const std::string& message) {
  return to_hex(hmac_sha256(bytes_of(key), bytes_of(message)));
}

// The test cases 1, 2 and 6 of RFC 4231.
TEST(Hmac, AgreesWithTheStandardsExamples) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparesWholeTexts) {
  EXPECT_TRUE(equal_in_constant_time({}, {}));
  EXPECT_TRUE(equal_in_constant_time(bytes_of("abc"), bytes_of("abc")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("xbc")));
  EXPECT_FALSE(equal_in_constant_time(bytes_of("abc"), bytes_of("ab")));
}

}  // namespace
}  // namespace flyt
