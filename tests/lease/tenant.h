// Tenant: a CUDA program of a lease that does what it is told line by line, and the server of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "control/lease/control_client.h"
#include "tests/kill/child.h"
#include "tests/support/server_process.h"

namespace flyt::tests {

inline constexpr double kSeconds = 60;

// The program: reads commands from its input until that ends. See tenant.cc for them.
int run_tenant();

class LeaseTest : public testing::Test {
 protected:
  ~LeaseTest() override;

  // A server with a control socket, over the software GPU.
  void start(std::vector<std::string> arguments, const std::string& listen = "");
  std::unique_ptr<control::ControlClient> control();
  std::string control_url() const { return "unix://" + folder_ + "/control"; }
  // A private one, made when it is first asked for.
  const std::string& folder();

  // A client; "ready" has been heard unless it `may_fail`.
  std::unique_ptr<kill::Child> tenant(bool may_fail = false);
  // What the program answers, a CUresult or numbers.
  static std::string ask(const std::unique_ptr<kill::Child>& tenant, const std::string& line) {
    return tenant->ask(line, kSeconds);
  }
  static std::string ask(const std::unique_ptr<kill::Child>& tenant, const std::string& what,
                         std::uint64_t mebibytes) {
    return ask(tenant, what + " " + std::to_string(mebibytes * kMiB));
  }
  // How often threads of a process went to sleep: a loop that spins does not, and one that looks
  // for something again and again does often.
  static std::uint64_t sleeps(pid_t process);
  std::uint64_t used() { return control()->describe()->memory_used; }

  ServerProcess server_;

 private:
  std::string folder_;
};

}  // namespace flyt::tests
