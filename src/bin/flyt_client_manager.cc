// flyt-client-manager: serves a cluster's virtual GPU to the programs of this machine.

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "control/client/client_thread.h"
#include "control/client/config.h"
#include "control/daemon/stop_signals.h"

namespace {

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt-client-manager --config /etc/flyt/client.toml\n"
    "  flyt-client-manager --config client.toml --check-config\n"
    "\n"
    "SIGTERM and SIGINT stop it; programs go on, and the next client manager takes over.\n";

int fail(const flyt::Error& error) {
  std::cerr << "flyt-client-manager: " << error.message << "\n";
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Serves a cluster's virtual GPU to the programs of this machine.",
               "flyt-client-manager");
  app.footer(kFooter);
  app.set_version_flag("--version", FLYT_VERSION);
  std::string file = "/etc/flyt/client.toml";
  std::string socket;
  std::string state;
  bool check = false;
  app.add_option("--config", file, "The configuration; see docs/flyt-client-manager.md")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_flag("--check-config", check, "Say whether the configuration is right, and end");
  app.add_option("--socket", socket, "Instead of programs.socket")->type_name("PATH");
  app.add_option("--state", state, "Instead of client.state")->type_name("DIR");
  CLI11_PARSE(app, argc, argv);

  auto config = flyt::vm::read_config(file);
  if (!config) return fail(config.error());
  if (!socket.empty()) config->socket = socket;
  if (!state.empty()) config->state_folder = state;
  if (check) {
    const auto users = flyt::vm::users_of(*config);
    if (!users) return fail(users.error());
    std::cout << "the configuration is right\n";
    return EXIT_SUCCESS;
  }
  const flyt::Fd signals = flyt::control::take_stop_signals();
  const flyt::Status status = flyt::vm::run_client(*config, signals);
  return status ? EXIT_SUCCESS : fail(status.error());
}
