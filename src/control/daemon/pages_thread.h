// Pages: what a daemon tells over HTTP, at each path by a function.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/daemon/page_request.h"
#include "control/daemon/page_tls.h"
#include "control/settings/settings.h"

namespace flyt::control {

// What is answered; `type` is what a browser takes it for.
struct Page {
  std::string text;
  std::string type = "text/plain; charset=utf-8";
  int status = 200;
};

// What goes on being answered: server-sent events.
class PageStream {
 public:
  virtual ~PageStream() = default;
  // False: nobody listens any more, or the pages end. `data` may have several lines. An empty
  // `event` has no name.
  virtual bool send(std::string_view event, std::string_view data) = 0;
  // The same without sending. Asked at least once a second, so that the pages can end.
  virtual bool open() const = 0;
};

// Functions run on threads of the server's, several at once.
using PageMaker = std::function<Page(const PageRequest&)>;
// Whether who asks may have what is asked for; kDenied says why not.
using PageAdmission = std::function<Status(const PageRequest&)>;
using StreamMaker = std::function<void(const PageRequest&, PageStream&)>;
struct PageMap {
  std::map<std::string, PageMaker> pages;      // By path: "/metrics".
  std::map<std::string, StreamMaker> streams;  // The stream lasts until the function returns.
  PageAdmission admit;                         // Asked for each request; none: everybody may.
};

// Serves GET and HEAD from its making to its end, one request a connection; any other path is 404.
// What is streamed to more than kStreamsMax at once is 503.
class Pages {
 public:
  static constexpr int kStreamsMax = 32;
  virtual ~Pages() = default;
  // In the clear without `tls`. An error names the address.
  static Result<std::unique_ptr<Pages>> start(const Address& address, PageMap map,
                                              std::optional<PageTls> tls = std::nullopt);
  // As the system chose it, for an address with port 0.
  virtual std::uint16_t port() const = 0;
};

}  // namespace flyt::control
