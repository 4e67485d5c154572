#include "control/daemon/pages_thread.h"

#include <httplib.h>

#include <atomic>
#include <thread>

#include "base/clock.h"

namespace flyt::control {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kRequestBytesMax = 64 << 10;
constexpr int kPatienceSeconds = 5;

PageRequest request_of(const httplib::Request& request) {
  PageRequest out{.path = request.path, .query = {}};
  for (const auto& [name, value] : request.params) out.query.emplace(name, value);
  return out;
}

void answer(httplib::Response& response, const Page& page) {
  response.status = page.status;
  // What a browser guesses, or remembers, is not what was told.
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-store");
  response.set_content(page.text, page.type);
}

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
  explicit Server(PageMap map) : map_(std::move(map)) {
    const std::size_t threads = kThreads + (map_.streams.empty() ? 0 : kStreamsMax);
    server_.new_task_queue = [threads] {
      return std::make_unique<httplib::ThreadPool>(threads).release();
    };
    server_.set_payload_max_length(kRequestBytesMax);
    server_.set_read_timeout(kPatienceSeconds);
    server_.set_write_timeout(kPatienceSeconds);
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    });
  }
  ~Server() override {
    stopping_ = true;
    if (!thread_.joinable()) return;
    // One that is not yet running would not notice.
    const Instant deadline = system_clock().now() + std::chrono::seconds(1);
    while (!server_.is_running() && system_clock().now() < deadline) {
      system_clock().sleep_for(std::chrono::milliseconds(1));
    }
    server_.stop();
    thread_.join();
  }

  Status start(const Address& address) {
    const int port = address.port == 0 ? server_.bind_to_any_port(address.host.c_str())
                     : server_.bind_to_port(address.host.c_str(), address.port) ? address.port
                                                                                : -1;
    if (port < 0) {
      return Error{ErrorCode::kSystem, "metrics.listen: cannot listen on " + address.host + ":" +
                                           std::to_string(address.port)};
    }
    port_ = static_cast<std::uint16_t>(port);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return {};
  }
  std::uint16_t port() const override { return port_; }

 private:
  void serve(const httplib::Request& request, httplib::Response& response) {
    if (const auto page = map_.pages.find(request.path); page != map_.pages.end()) {
      answer(response, page->second(request_of(request)));
    } else if (const auto found = map_.streams.find(request.path); found != map_.streams.end()) {
      stream(found->second, request, response);
    } else {
      answer(response, {.text = "there is no such page\n", .status = 404});
    }
  }

  void stream(const StreamMaker& maker, const httplib::Request& request,
              httplib::Response& response) {
    if (++streams_ > kStreamsMax) {
      --streams_;
      answer(response, {.text = "too many watch already\n", .status = 503});
      return;
    }
    response.set_header("Cache-Control", "no-store");
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, &maker, asked = request_of(request)](std::size_t, httplib::DataSink& sink) {
          Stream out(sink, stopping_);
          maker(asked, out);
          sink.done();
          return true;
        },
        [this](bool) { --streams_; });
  }

  const PageMap map_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> streams_{0};
  std::uint16_t port_ = 0;
  httplib::Server server_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Pages>> Pages::start(const Address& address, PageMap map) {
  auto server = std::make_unique<Server>(std::move(map));
  if (Status status = server->start(address); !status) return status.error();
  return std::unique_ptr<Pages>(std::move(server));
}

}  // namespace flyt::control
