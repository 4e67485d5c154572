// flyt-cluster-manager: hands virtual GPUs of many nodes to VMs.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bin/command_line.h"
#include "control/cluster/cluster_threads.h"
#include "control/cluster/config.h"
#include "control/cluster/gate.h"
#include "control/cluster/requirements/mongodb.h"
#include "control/daemon/stop_signals.h"

namespace {

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt-cluster-manager --config /etc/flyt/cluster.toml\n"
    "  flyt-cluster-manager --config cluster.toml --check-config\n"
    "  flyt-cluster-manager --state /tmp/cluster --run /tmp/cluster-run     on one machine\n"
    "  flytctl --cluster unix:///run/flyt-cluster/cluster.sock nodes\n"
    "\n"
    "SIGTERM and SIGINT stop the manager; virtual GPUs go on, and the next manager knows them.\n";

struct Options {
  std::string config;
  std::string state;
  std::string run;
  bool check = false;
};

int fail(const flyt::Error& error) {
  std::cerr << "flyt-cluster-manager: " << error.message << "\n";
  return EXIT_FAILURE;
}

flyt::Result<flyt::cluster::Config> configure(const Options& options) {
  flyt::cluster::Config config;
  if (!options.config.empty()) {
    auto read = flyt::cluster::read_config(options.config);
    if (!read) return std::move(read).error();
    config = std::move(*read);
  }
  std::error_code error;
  if (!options.state.empty()) config.state_folder = std::filesystem::absolute(options.state, error);
  if (!options.run.empty()) config.run_folder = std::filesystem::absolute(options.run, error);
  const flyt::Status status = flyt::cluster::finish(config, flyt::control::own_folders("cluster"));
  if (status) return config;
  const std::string front = options.config.empty() ? "" : options.config + ": ";
  return flyt::Error{status.error().code, front + status.error().message};
}

}  // namespace

int main(int argc, char** argv) {
  flyt::cluster::requirements::forget_counters();
  flyt::CommandLine app("flyt-cluster-manager", "Hands virtual GPUs of many nodes to VMs.");
  app.footer(kFooter);
  Options options;
  app.add_option(
         "--config", options.config,
         "The configuration, see docs/flyt-cluster-manager.md; if missing all has its default")
      .type_name("FILE");
  app.add_flag("--check-config", options.check,
               "Say whether the configuration is right and its files can be read, and end");
  app.add_option("--state", options.state, "The folder of the database; instead of cluster.state")
      .type_name("DIR");
  app.add_option("--run", options.run, "The folder of the socket; instead of cluster.run")
      .type_name("DIR");
  if (const auto done = app.parse(argc, argv, EXIT_FAILURE)) return *done;

  const auto config = configure(options);
  if (!config) return fail(config.error());
  if (options.check) {
    const flyt::Status files = flyt::cluster::check_files(*config);
    if (!files) return fail({files.error().code, options.config + ": " + files.error().message});
    // Users and the list of the revoked, which a manager would refuse to start with.
    const flyt::Status let_in = flyt::cluster::Gate(*config).check();
    if (!let_in) return fail(let_in.error());
    std::cout << "the configuration is right\n";
    return app.finish(EXIT_SUCCESS);
  }
  const flyt::Fd signals = flyt::control::take_stop_signals();
  const flyt::Status status = flyt::cluster::run_cluster(*config, FLYT_VERSION, signals);
  return status ? EXIT_SUCCESS : fail(status.error());
}
