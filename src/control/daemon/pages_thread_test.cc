#include "control/daemon/pages_thread.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace flyt::control {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

std::unique_ptr<Pages> serve(PageMap map) {
  auto pages = Pages::start({"127.0.0.1", 0}, std::move(map));
  EXPECT_TRUE(pages) << pages.error().message;
  return std::move(*pages);
}

// A browser that asks once and reads until the other side ends, or `stop` has come.
std::string ask(std::uint16_t port, const std::string& path, std::string_view stop = {}) {
  const Instant deadline = system_clock().now() + kPatience;
  const auto url = transport::parse_url("tcp://127.0.0.1:" + std::to_string(port));
  auto connection = transport::connect(*url, deadline);
  if (!connection) return connection.error().message;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  const Bytes front[] = {std::as_bytes(std::span(request))};
  EXPECT_TRUE((*connection)->write(front, transport::Patience::kWait));
  std::string answer;
  std::array<std::byte, 4096> space;
  while (stop.empty() || answer.find(stop) == std::string::npos) {
    const MutableBytes into[] = {std::span(space)};
    const auto count = (*connection)->read(into, transport::Patience::kWait);
    if (!count) break;
    for (std::size_t i = 0; i < *count; ++i) answer.push_back(static_cast<char>(space[i]));
  }
  return answer;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool becomes(const std::atomic<int>& value, int wanted) {
  const Instant deadline = system_clock().now() + kPatience;
  while (value != wanted && system_clock().now() < deadline) std::this_thread::yield();
  return value == wanted;
}

TEST(Pages, AnswerEachPathByItsFunction) {
  PageMap map;
  map.pages["/hello"] = [](const PageRequest& request) {
    return Page{.text = request.path + " " + request.query.find("a")->second,
                .type = "application/json",
                .status = 503};
  };
  const auto pages = serve(std::move(map));
  const std::string answer = ask(pages->port(), "/hello?a=x%20y&a=z");
  EXPECT_TRUE(has(answer, "HTTP/1.1 503")) << answer;
  EXPECT_TRUE(has(answer, "Content-Type: application/json\r\n")) << answer;
  EXPECT_TRUE(has(answer, "X-Content-Type-Options: nosniff\r\n")) << answer;
  EXPECT_TRUE(has(answer, "\r\n\r\n/hello x y")) << answer;
  EXPECT_TRUE(has(ask(pages->port(), "/hello/there"), "HTTP/1.1 404"));
  EXPECT_TRUE(has(ask(pages->port(), "/"), "HTTP/1.1 404"));
}

TEST(Pages, AStreamLastsUntilItsFunctionReturns) {
  PageMap map;
  map.streams["/events"] = [](const PageRequest&, PageStream& out) {
    EXPECT_TRUE(out.open());
    EXPECT_TRUE(out.send("change", "1\n2"));
    EXPECT_TRUE(out.send("", "3"));
  };
  const auto pages = serve(std::move(map));
  const std::string answer = ask(pages->port(), "/events");
  EXPECT_TRUE(has(answer, "Content-Type: text/event-stream\r\n")) << answer;
  EXPECT_TRUE(has(answer, "event: change\ndata: 1\ndata: 2\n\n")) << answer;
  EXPECT_TRUE(has(answer, "data: 3\n\n")) << answer;
}

TEST(Pages, AListenerWhoLeavesAndPagesThatEndCloseAStream) {
  PageMap map;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  map.streams["/events"] = [&](const PageRequest&, PageStream& out) {
    ++begun;
    out.send("", "first");
    while (out.open()) std::this_thread::yield();
    ++ended;
  };
  auto pages = serve(std::move(map));
  EXPECT_TRUE(has(ask(pages->port(), "/events", "first"), "first"));
  EXPECT_TRUE(becomes(ended, 1));
  std::thread listener([&] { ask(pages->port(), "/events"); });
  EXPECT_TRUE(becomes(begun, 2));
  pages.reset();
  listener.join();
  EXPECT_EQ(ended, 2);
}

TEST(Pages, NoMoreStreamsThanTheirLimitAndPagesAreServedBeside) {
  PageMap map;
  std::atomic<int> open{0};
  map.pages["/page"] = [](const PageRequest&) { return Page{.text = "here"}; };
  map.streams["/events"] = [&](const PageRequest&, PageStream& out) {
    ++open;
    while (out.open()) std::this_thread::yield();
    --open;
  };
  auto pages = serve(std::move(map));
  std::vector<std::thread> listeners;
  for (int i = 0; i < Pages::kStreamsMax; ++i) {
    listeners.emplace_back([&] { ask(pages->port(), "/events"); });
  }
  EXPECT_TRUE(becomes(open, Pages::kStreamsMax));
  EXPECT_TRUE(has(ask(pages->port(), "/events"), "HTTP/1.1 503"));
  EXPECT_TRUE(has(ask(pages->port(), "/page"), "here"));
  pages.reset();
  for (std::thread& listener : listeners) listener.join();
}

TEST(Pages, WhoIsNotAdmittedGetsTheReasonAndNothingElse) {
  PageMap map;
  map.pages["/open"] = [](const PageRequest&) { return Page{.text = "here"}; };
  map.pages["/page"] = [](const PageRequest& request) { return Page{.text = request.bearer}; };
  map.streams["/events"] = [](const PageRequest&, PageStream& out) { out.send("", "secret"); };
  map.admit = [](const PageRequest& request) -> Status {
    if (request.path == "/open" || request.bearer == "good") return {};
    return Error{ErrorCode::kDenied, "not you"};
  };
  const auto pages = serve(std::move(map));
  EXPECT_TRUE(has(ask(pages->port(), "/open"), "here"));
  for (const char* path : {"/page", "/events", "/nowhere"}) {
    const std::string answer = ask(pages->port(), path);
    EXPECT_TRUE(has(answer, "HTTP/1.1 401")) << answer;
    EXPECT_TRUE(has(answer, "WWW-Authenticate: Bearer\r\n")) << answer;
    EXPECT_TRUE(has(answer, "not you")) << answer;
    EXPECT_FALSE(has(answer, "secret")) << answer;
  }
  const std::string with = " HTTP/1.1\r\nAuthorization: Bearer good\r\nX: ";
  EXPECT_TRUE(has(ask(pages->port(), "/page" + with), "\r\n\r\ngood"));
}

// Whether the other end goes on taking what is sent, to the last of 64 MiB.
bool takes_all(std::uint16_t port, const std::string& front, const std::string& again) {
  const auto url = transport::parse_url("tcp://127.0.0.1:" + std::to_string(port));
  auto connection = transport::connect(*url, system_clock().now() + kPatience);
  if (!connection) return false;
  std::string text = front;
  for (std::size_t sent = 0; sent < 64 * kMiB;) {
    while (text.size() < kMiB) text += again;
    const Bytes piece[] = {bytes_of(text)};
    const auto count = (*connection)->write(piece, transport::Patience::kWait);
    if (!count) return false;
    sent += *count;
    text.erase(0, *count);
  }
  return true;
}

TEST(Pages, ARequestHasABound) {
  PageMap map;
  map.pages["/page"] = [](const PageRequest&) { return Page{.text = "here"}; };
  const auto pages = serve(std::move(map));
  EXPECT_FALSE(takes_all(pages->port(), "GET /", "a"));
  EXPECT_FALSE(takes_all(pages->port(), "GET / HTTP/1.1\r\n", "a"));
  EXPECT_FALSE(takes_all(pages->port(), "GET / HTTP/1.1\r\n", "a: b\r\n"));
  EXPECT_TRUE(has(ask(pages->port(), "/page?" + std::string(60000, 'a')), "here"));
  EXPECT_TRUE(has(ask(pages->port(), "/page?" + std::string(65530, 'a')), "HTTP/1.1 431"));
}

// Somebody who has said `words`, and is then silent.
class Silent {
 public:
  Silent(std::uint16_t port, std::string_view words) {
    const auto url = transport::parse_url("tcp://127.0.0.1:" + std::to_string(port));
    auto connection = transport::connect(*url, system_clock().now() + kPatience);
    EXPECT_TRUE(connection);
    connection_ = std::move(*connection);
    const Bytes front[] = {bytes_of(words)};
    EXPECT_TRUE(words.empty() || connection_->write(front, transport::Patience::kWait).ok());
  }
  // The other end waits for it still.
  bool awaited() const {
    return connection_->wait(transport::kHangup, system_clock().now(), nullptr) ==
           transport::kNothing;
  }
  bool sent_away() const {
    return connection_->wait(transport::kHangup, system_clock().now() + kPatience, nullptr) !=
           transport::kNothing;
  }

 private:
  std::unique_ptr<transport::Connection> connection_;
};

TEST(Pages, WhoSaysNothingOrLittleHoldsUpNobody) {
  PageMap map;
  map.pages["/page"] = [](const PageRequest&) { return Page{.text = "here"}; };
  const auto pages = serve(std::move(map));
  std::vector<std::unique_ptr<Silent>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<Silent>(pages->port(), i % 2 == 0 ? "" : "GET /pa"));
  }
  EXPECT_TRUE(has(ask(pages->port(), "/page"), "here"));
  // Nor has it been given up.
  for (const auto& one : silent) EXPECT_TRUE(one->awaited());
  // For longer than a request may take nobody is waited for.
  for (const auto& one : silent) EXPECT_TRUE(one->sent_away());
}

TEST(Pages, WhoIsSilentForLongestGoesForNewcomers) {
  PageMap map;
  map.pages["/page"] = [](const PageRequest&) { return Page{.text = "here"}; };
  const auto pages = serve(std::move(map));
  std::vector<std::unique_ptr<Silent>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Silent>(pages->port(), "G"));
  EXPECT_TRUE(has(ask(pages->port(), "/page"), "here"));
  EXPECT_FALSE(silent.front()->awaited());
  EXPECT_TRUE(silent.back()->awaited());
}

TEST(Pages, FilesThatAreNoCertificatesAreNamed) {
  const PageTls tls{.files = {"/nowhere.crt", "/nowhere.key", "/nowhere.ca"}, .admit = {}};
  const auto pages = Pages::start({"127.0.0.1", 0}, {}, tls);
  ASSERT_FALSE(pages);
  EXPECT_EQ(pages.error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(has(pages.error().message, "/nowhere.crt: expected a certificate"));
}

TEST(Pages, AnAddressThatIsTakenIsAnError) {
  // By a socket that does not share its port.
  const auto url = transport::parse_url("tcp://127.0.0.1:0");
  const auto other = transport::listen(*url);
  ASSERT_TRUE(other);
  EXPECT_FALSE(Pages::start({"127.0.0.1", (*other)->url().port}, {}));
}

}  // namespace
}  // namespace flyt::control
