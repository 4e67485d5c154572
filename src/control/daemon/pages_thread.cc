#include "control/daemon/pages_thread.h"

#include <httplib.h>

#include <atomic>
#include <thread>

#include "base/annotations.h"
#include "base/clock.h"

namespace flyt::control {
namespace {

constexpr std::size_t kThreads = 2;
// A browser keeps several connections, and each has a thread.
constexpr std::size_t kBrowserThreads = 8;
constexpr std::size_t kWaitingMax = 64;
constexpr std::size_t kRequestBytesMax = 64 << 10;
constexpr int kPatienceSeconds = 5;
constexpr int kIdleSeconds = 2;
constexpr int kRequestsMax = 100;  // Of one connection.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr std::string_view kBearer = "Bearer ";

PageRequest request_of(const httplib::Request& request) {
  PageRequest out{.path = request.path, .query = {}, .certificate = {}, .bearer = {}};
  for (const auto& [name, value] : request.params) out.query.emplace(name, value);
  if (request.ssl != nullptr) out.certificate = certificate_of(*request.ssl);
  const std::string word = request.get_header_value("Authorization");
  if (word.starts_with(kBearer)) out.bearer = word.substr(kBearer.size());
  return out;
}

void answer(httplib::Response& response, const Page& page) {
  response.status = page.status;
  // What a browser guesses, or remembers, is not what was told.
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-store");
  response.set_header("Content-Security-Policy", kPolicy);
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_content(page.text, page.type);
}

// Connections wait in the system while so many wait here: what is not yet identified costs little.
class BoundedQueue final : public httplib::TaskQueue {
 public:
  explicit BoundedQueue(std::size_t threads) : pool_(threads) {}
  // Some versions tell whether it was taken.
  auto enqueue(std::function<void()> task)
      -> decltype(std::declval<httplib::ThreadPool&>().enqueue(task)) override {
    {
      std::unique_lock<Mutex> lock(mutex_);
      left_.wait(lock, [this] { return waiting_ < kWaitingMax; });
      ++waiting_;
    }
    return pool_.enqueue([this, task = std::move(task)] {
      {
        const Lock lock(mutex_);
        --waiting_;
      }
      left_.notify_one();
      task();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  Mutex mutex_;
  Condition left_;
  std::size_t waiting_ GUARDED_BY(mutex_) = 0;
  httplib::ThreadPool pool_;
};

class Stream final : public PageStream {
 public:
  Stream(httplib::DataSink& sink, const std::atomic<bool>& stopping)
      : sink_(sink), stopping_(stopping) {}
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
    return open() && sink_.write(text.data(), text.size());
  }
  bool open() const override { return !stopping_ && sink_.is_writable(); }

 private:
  httplib::DataSink& sink_;
  const std::atomic<bool>& stopping_;
};

class Server final : public Pages {
 public:
  Server(PageMap map, std::optional<PageTls> tls) : map_(std::move(map)), tls_(std::move(tls)) {
    if (tls_) {
      server_ = std::make_unique<httplib::SSLServer>([this](SSL_CTX& context) {
        set_up_ = set_up_tls(context, *tls_);
        return set_up_.ok();
      });
    } else {
      server_ = std::make_unique<httplib::Server>();
    }
    const std::size_t threads = map_.streams.empty() ? kThreads : kBrowserThreads + kStreamsMax;
    server_->new_task_queue = [threads] {
      return std::make_unique<BoundedQueue>(threads).release();
    };
    server_->set_payload_max_length(kRequestBytesMax);
    server_->set_read_timeout(kPatienceSeconds);
    server_->set_write_timeout(kPatienceSeconds);
    server_->set_keep_alive_timeout(kIdleSeconds);
    server_->set_keep_alive_max_count(kRequestsMax);
    server_->Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    });
  }
  ~Server() override {
    stopping_ = true;
    if (!thread_.joinable()) return;
    // One that is not yet running would not notice.
    const Instant deadline = system_clock().now() + std::chrono::seconds(1);
    while (!server_->is_running() && system_clock().now() < deadline) {
      system_clock().sleep_for(std::chrono::milliseconds(1));
    }
    server_->stop();
    thread_.join();
  }

  Status start(const Address& address) {
    if (!set_up_) return set_up_;
    const int port = address.port == 0 ? server_->bind_to_any_port(address.host.c_str())
                     : server_->bind_to_port(address.host.c_str(), address.port) ? address.port
                                                                                 : -1;
    if (port < 0) {
      return Error{ErrorCode::kSystem,
                   "cannot listen on " + address.host + ":" + std::to_string(address.port)};
    }
    port_ = static_cast<std::uint16_t>(port);
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    return {};
  }
  std::uint16_t port() const override { return port_; }

 private:
  void serve(const httplib::Request& request, httplib::Response& response) {
    const PageRequest asked = request_of(request);
    const Status admitted = map_.admit ? map_.admit(asked) : Status();
    if (!admitted) {
      if (!tls_) response.set_header("WWW-Authenticate", "Bearer");
      answer(response, {.text = admitted.error().message + "\n", .status = tls_ ? 403 : 401});
    } else if (const auto page = map_.pages.find(request.path); page != map_.pages.end()) {
      answer(response, page->second(asked));
    } else if (const auto found = map_.streams.find(request.path); found != map_.streams.end()) {
      stream(found->second, asked, response);
    } else {
      answer(response, {.text = "there is no such page\n", .status = 404});
    }
  }

  void stream(const StreamMaker& maker, const PageRequest& request, httplib::Response& response) {
    if (++streams_ > kStreamsMax) {
      --streams_;
      answer(response, {.text = "too many watch already\n", .status = 503});
      return;
    }
    response.set_header("Cache-Control", "no-store");
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, &maker, request](std::size_t, httplib::DataSink& sink) {
          Stream out(sink, stopping_);
          maker(request, out);
          sink.done();
          return true;
        },
        [this](bool) { --streams_; });
  }

  const PageMap map_;
  const std::optional<PageTls> tls_;
  Status set_up_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> streams_{0};
  std::uint16_t port_ = 0;
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Pages>> Pages::start(const Address& address, PageMap map,
                                            std::optional<PageTls> tls) {
  auto server = std::make_unique<Server>(std::move(map), std::move(tls));
  if (Status status = server->start(address); !status) return status.error();
  return std::unique_ptr<Pages>(std::move(server));
}

}  // namespace flyt::control
