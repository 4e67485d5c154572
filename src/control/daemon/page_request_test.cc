#include "control/daemon/page_request.h"

#include <gtest/gtest.h>

namespace flyt::control {
namespace {

TEST(PageRequest, IsAPathAQueryAndAWord) {
  const PageParsed parsed = parse_page_request(
      "GET /a%20b+c?x=1%2B1&y&x=2&=3&z=a+b HTTP/1.1\r\nHost: a\r\naUTHORIZATION:\t Bearer good "
      "\r\n\r\n");
  EXPECT_EQ(parsed.status, 200);
  EXPECT_FALSE(parsed.ask.head_only);
  const PageRequest& request = parsed.ask.request;
  EXPECT_EQ(request.path, "/a b+c");
  EXPECT_EQ(request.query, (decltype(request.query){{"x", "1+1"}, {"y", ""}, {"z", "a b"}}));
  EXPECT_EQ(request.bearer, "good");
}

TEST(PageRequest, MayWantTheHeadAlone) {
  const PageParsed parsed = parse_page_request("HEAD /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(parsed.status, 200);
  EXPECT_TRUE(parsed.ask.head_only);
  EXPECT_EQ(parsed.ask.request.path, "/x");
}

TEST(PageRequest, ThatIsNoneIsRefused) {
  EXPECT_EQ(parse_page_request("POST /x HTTP/1.1\r\n\r\n").status, 405);
  for (const char* head :
       {"", "\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / FTP\r\n\r\n",
        "GET x HTTP/1.1\r\n\r\n", " / HTTP/1.1\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(parse_page_request(head).status, 400) << head;
  }
}

TEST(PageRequest, WhatIsNoSequenceStandsForItself) {
  const PageParsed parsed = parse_page_request("GET /%?%=%4&%zz=%41% HTTP/1.1\r\n\r\n");
  EXPECT_EQ(parsed.ask.request.path, "/%");
  EXPECT_EQ(parsed.ask.request.query,
            (decltype(parsed.ask.request.query){{"%", "%4"}, {"%zz", "A%"}}));
}

TEST(PageRequest, EndsWithAnEmptyLine) {
  EXPECT_FALSE(page_head_in("GET / HTTP/1.1\r\n\r"));
  EXPECT_EQ(page_head_in("GET / HTTP/1.1\r\n\r\nmore"), 18U);
}

}  // namespace
}  // namespace flyt::control
