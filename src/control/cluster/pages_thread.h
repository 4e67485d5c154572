// PagesThread: /metrics, /healthz and /readyz over HTTP.
#pragma once

#include <memory>
#include <thread>

#include "base/result.h"
#include "control/cluster/manager.h"

namespace httplib {
class Server;
}

namespace flyt::cluster {

// Serves from its making to its end.
class PagesThread {
 public:
  static Result<std::unique_ptr<PagesThread>> start(const control::Address& address,
                                                    Manager& manager);
  explicit PagesThread(std::unique_ptr<httplib::Server> server);
  ~PagesThread();
  PagesThread(const PagesThread&) = delete;
  PagesThread& operator=(const PagesThread&) = delete;

 private:
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace flyt::cluster
