#include "control/daemon/pages_thread.h"

#include <openssl/ssl.h>

#include <array>
#include <atomic>
#include <deque>
#include <set>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/shortage.h"
#include "control/daemon/page_arrivals.h"
#include "control/daemon/page_line.h"
#include "transport/transport.h"

namespace flyt::control {
namespace {

constexpr std::size_t kThreads = 2;
// A browser keeps several connections, and each has a thread.
constexpr std::size_t kBrowserThreads = 8;
// Of those who have asked, so many wait for a thread; all others wait in the system then.
constexpr std::size_t kWaitingMax = 64;
// For certificates and the head of the request, and then for each piece of the answer.
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kLingerTime = std::chrono::milliseconds(200);
// How long nobody may come before it is looked whether the pages end; nothing depends on it.
constexpr Duration kTurnTime = std::chrono::seconds(10);
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct ContextFree {
  void operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
};

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Answer";
  }
}

// Fields of an answer, each with the end of its line.
std::string head_of(int status, std::string_view type, std::string_view further) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  head.append(reason_of(status)).append("\r\n");
  add("Content-Type", type);
  // What a browser guesses, or remembers, is not what was told.
  add("X-Content-Type-Options", "nosniff");
  add("Cache-Control", "no-store");
  add("Content-Security-Policy", kPolicy);
  add("Referrer-Policy", "no-referrer");
  add("Connection", "close");
  return head.append(further).append("\r\n");
}

bool send_text(PageLine& line, std::string_view text) {
  return line.write(bytes_of(text), kPatience).ok();
}

class Stream final : public PageStream {
 public:
  Stream(PageLine& line, const std::atomic<bool>& stopping) : line_(line), stopping_(stopping) {}
  bool send(std::string_view event, std::string_view data) override {
    std::string text;
    if (!event.empty()) text.append("event: ").append(event).append("\n");
    while (true) {
      const std::size_t end = data.find('\n');
      text.append("data: ").append(data.substr(0, end)).append("\n");
      if (end == std::string_view::npos) break;
      data.remove_prefix(end + 1);
    }
    text += "\n";
    return open() && send_text(line_, text);
  }
  bool open() const override { return !stopping_ && line_.open(); }

 private:
  PageLine& line_;
  const std::atomic<bool>& stopping_;
};

class Server final : public Pages {
 public:
  Server(PageMap map, std::optional<PageTls> tls) : map_(std::move(map)), tls_(std::move(tls)) {}
  ~Server() override {
    stopping_ = true;
    if (listener_ == nullptr) return;
    wakeup_.signal();
    {
      const Lock lock(mutex_);
      for (PageLine* line : lines_) line->shut_down();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Status start(const Address& address) {
    if (tls_) {
      context_.reset(SSL_CTX_new(TLS_server_method()));
      if (context_ == nullptr) return Error{ErrorCode::kSystem, "no memory for pages"};
      if (Status status = set_up_tls(*context_, *tls_); !status) return status;
    }
    transport::Url url;
    url.kind = transport::Kind::kTcp;
    url.host = address.host;
    url.port = address.port;
    auto listener = transport::listen(url);
    if (!listener) {
      return std::move(listener).error();
    }
    listener_ = std::move(*listener);
    const std::size_t threads = map_.streams.empty() ? kThreads : kBrowserThreads + kStreamsMax;
    threads_.emplace_back([this] { accept(); });
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    return {};
  }
  std::uint16_t port() const override { return listener_->url().port; }

 private:
  void accept() {
    Shortage no_connections;
    PageArrivals arrivals(!tls_, kPatience);
    while (!stopping_) {
      {
        std::unique_lock<Mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || waiting_.size() < kWaitingMax; });
      }
      const Instant begun = system_clock().now();
      // No descriptor is free, or the like: it passes.
      const bool rests = no_connections.resting(begun);
      const int listener = rests ? -1 : listener_->fd();
      PageArrivals::Turn turn =
          arrivals.wait(listener, wakeup_, begun + (rests ? Duration(Shortage::kRest) : kTurnTime));
      if (turn.at_door) {
        const Instant now = system_clock().now();
        auto connection = listener_->accept(now, nullptr);
        if (connection) {
          arrivals.add(std::move(*connection), now);
        } else if (connection.error().code == ErrorCode::kSystem) {
          static_cast<void>(no_connections.met(now));
        }
      }
      if (turn.ready.empty()) continue;
      const Lock lock(mutex_);
      for (PageArrival& one : turn.ready) waiting_.push_back(std::move(one));
      changed_.notify_all();
    }
  }

  void work() {
    while (true) {
      PageArrival arrival;
      {
        std::unique_lock<Mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (stopping_) return;
        arrival = std::move(waiting_.front());
        waiting_.pop_front();
        changed_.notify_all();
      }
      PageLine line(std::move(arrival.connection), context_.get());
      if (!enter(line)) return;
      serve(line, std::move(arrival.said));
      leave(line);
    }
  }

  // False: the pages end.
  bool enter(PageLine& line) {
    const Lock lock(mutex_);
    if (stopping_) return false;
    lines_.insert(&line);
    return true;
  }
  void leave(PageLine& line) {
    const Lock lock(mutex_);
    lines_.erase(&line);
  }

  void serve(PageLine& line, std::string said) {
    const Instant deadline = system_clock().now() + kPatience;
    if (!line.greet(deadline)) return;
    const auto head = tls_ ? read_head(line, deadline) : std::optional(head_in(std::move(said)));
    if (!head) return;
    if (head->empty()) {
      answer(line, {.text = "too long\n", .status = 431}, false);
      return linger(line);
    }
    PageParsed parsed = parse_page_request(*head);
    if (parsed.status != 200) {
      return answer(line, {.text = "pages are for GET\n", .status = parsed.status}, false,
                    parsed.status == 405 ? "Allow: GET, HEAD\r\n" : "");
    }
    parsed.ask.request.certificate = line.certificate();
    serve(line, parsed.ask);
  }

  // Empty: it is longer than a head may be.
  static std::string head_in(std::string said) {
    const auto end = page_head_in(said);
    said.resize(end.value_or(0));
    return said;
  }

  // The same; nothing: the peer is gone, or slow.
  static std::optional<std::string> read_head(PageLine& line, Instant deadline) {
    std::string head;
    std::array<std::byte, 4096> space;
    while (head.size() < kPageRequestBytesMax) {
      const auto got = line.read(space, deadline);
      if (!got) return std::nullopt;
      // The end may have begun in the piece before.
      const std::size_t from = head.size() < 3 ? 0 : head.size() - 3;
      head.append(text_of(Bytes(space).first(*got)));
      const auto end = page_head_in(std::string_view(head).substr(from));
      if (!end) continue;
      head.resize(from + *end);
      return head;
    }
    return std::string();
  }

  // What has been sent behind that is taken, else the system would tell the peer of the end before
  // the answer.
  static void linger(PageLine& line) {
    const Instant deadline = system_clock().now() + kLingerTime;
    std::array<std::byte, 4096> space;
    for (std::size_t left = kPageRequestBytesMax; left >= space.size(); left -= space.size()) {
      if (!line.read(space, deadline)) return;
    }
  }

  void serve(PageLine& line, const PageAsk& ask) {
    const PageRequest& request = ask.request;
    const Status admitted = map_.admit ? map_.admit(request) : Status();
    if (!admitted) {
      answer(line, {.text = admitted.error().message + "\n", .status = tls_ ? 403 : 401},
             ask.head_only, tls_ ? "" : "WWW-Authenticate: Bearer\r\n");
    } else if (const auto page = map_.pages.find(request.path); page != map_.pages.end()) {
      answer(line, page->second(request), ask.head_only);
    } else if (const auto found = map_.streams.find(request.path); found != map_.streams.end()) {
      stream(line, found->second, ask);
    } else {
      answer(line, {.text = "there is no such page\n", .status = 404}, ask.head_only);
    }
  }

  static void answer(PageLine& line, const Page& page, bool head_only,
                     const std::string& further = {}) {
    std::string text =
        head_of(page.status, page.type,
                "Content-Length: " + std::to_string(page.text.size()) + "\r\n" + further);
    if (!head_only) text += page.text;
    static_cast<void>(send_text(line, text));
  }

  void stream(PageLine& line, const StreamMaker& maker, const PageAsk& ask) {
    if (++streams_ > kStreamsMax) {
      answer(line, {.text = "too many watch already\n", .status = 503}, ask.head_only);
    } else if (send_text(line, head_of(200, "text/event-stream", "")) && !ask.head_only) {
      Stream out(line, stopping_);
      maker(ask.request, out);
    }
    --streams_;
  }

  const PageMap map_;
  const std::optional<PageTls> tls_;
  std::unique_ptr<ssl_ctx_st, ContextFree> context_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> streams_{0};
  std::unique_ptr<transport::Listener> listener_;
  const transport::Wakeup wakeup_;
  Mutex mutex_;
  Condition changed_;
  std::deque<PageArrival> waiting_ GUARDED_BY(mutex_);
  std::set<PageLine*> lines_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Pages>> Pages::start(const Address& address, PageMap map,
                                            std::optional<PageTls> tls) {
  auto server = std::make_unique<Server>(std::move(map), std::move(tls));
  if (Status status = server->start(address); !status) return status.error();
  return std::unique_ptr<Pages>(std::move(server));
}

}  // namespace flyt::control
