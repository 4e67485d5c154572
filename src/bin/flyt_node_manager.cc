// flyt-node-manager: leases virtual GPUs of this machine, and runs a server for each lease.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bin/command_line.h"
#include "control/daemon/stop_signals.h"
#include "control/node/config.h"
#include "control/node/node_thread.h"

namespace {

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt-node-manager --config /etc/flyt/node.toml\n"
    "  flyt-node-manager --config node.toml --check-config\n"
    "  flyt-node-manager --soft 2 --state /tmp/node --run /tmp/node-run     without a GPU\n"
    "  flytctl --node unix:///run/flyt/node.sock describe\n"
    "\n"
    "SIGTERM and SIGINT stop the manager; leases' servers go on, and the next manager takes them\n"
    "over. With --end-leases they end; the leases stay, and get servers again at the next start.\n";

struct Options {
  std::string config;
  std::string state;
  std::string run;
  std::uint32_t soft = 0;
  bool check = false;
  bool end_leases = false;
};

int fail(const flyt::Error& error) {
  std::cerr << "flyt-node-manager: " << error.message << "\n";
  return EXIT_FAILURE;
}

flyt::Result<flyt::node::Config> configure(const Options& options) {
  flyt::node::Config config;
  if (!options.config.empty()) {
    auto read = flyt::node::read_config(options.config);
    if (!read) return std::move(read).error();
    config = std::move(*read);
  }
  if (options.soft != 0) config.soft = options.soft;
  std::error_code error;
  if (!options.state.empty()) config.state_folder = std::filesystem::absolute(options.state, error);
  if (!options.run.empty()) config.run_folder = std::filesystem::absolute(options.run, error);
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const flyt::Status status =
      flyt::node::finish(config, self.parent_path().string(), flyt::control::own_folders("node"));
  if (status) return config;
  const std::string front = options.config.empty() ? "" : options.config + ": ";
  return flyt::Error{status.error().code, front + status.error().message};
}

}  // namespace

int main(int argc, char** argv) {
  flyt::CommandLine app("flyt-node-manager", "Leases virtual GPUs of this machine.");
  app.footer(kFooter);
  Options options;
  app.add_option("--config", options.config,
                 "The configuration, see docs/flyt-node-manager.md; if missing all has its default")
      .type_name("FILE");
  app.add_flag("--check-config", options.check,
               "Say whether the configuration is right and its files can be read, and end");
  app.add_option("--soft", options.soft, "Serve so many software GPUs instead of real ones")
      .range(1, flyt::node::kSoftGpusMax)
      .type_name("N");
  app.add_option("--state", options.state, "The folder of the database; instead of node.state")
      .type_name("DIR");
  app.add_option("--run", options.run, "The folder of sockets; instead of node.run")
      .type_name("DIR");
  app.add_flag("--end-leases", options.end_leases,
               "End the leases' servers when stopped; if missing they go on");
  if (const auto done = app.parse(argc, argv, EXIT_FAILURE)) return *done;

  const auto config = configure(options);
  if (!config) return fail(config.error());
  if (options.check) {
    const flyt::Status files = flyt::node::check_files(*config);
    if (!files) return fail({files.error().code, options.config + ": " + files.error().message});
    std::cout << "the configuration is right\n";
    return app.finish(EXIT_SUCCESS);
  }
  const flyt::Fd signals = flyt::control::take_stop_signals(flyt::control::Hangups::kTold);
  const flyt::Status status =
      flyt::node::run_node(*config, FLYT_VERSION, signals, options.end_leases);
  return status ? EXIT_SUCCESS : fail(status.error());
}
