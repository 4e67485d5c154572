// flyt-client-manager: serves a cluster's virtual GPU to the programs of this machine.

#include <cstdlib>
#include <iostream>

#include "bin/command_line.h"
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
  flyt::CommandLine app("flyt-client-manager",
                        "Serves a cluster's virtual GPU to the programs of this machine.");
  app.footer(kFooter);
  std::string file = "/etc/flyt/client.toml";
  std::string socket;
  std::string state;
  bool check = false;
  app.add_option("--config", file, "The configuration; see docs/flyt-client-manager.md")
      .type_name("FILE")
      .show_default();
  app.add_flag("--check-config", check,
               "Say whether the configuration is right and its files can be read, and end");
  app.add_option("--socket", socket, "Where programs ask; instead of programs.socket")
      .type_name("PATH");
  app.add_option("--state", state,
                 "The folder of what the next client manager has to know; instead of client.state")
      .type_name("DIR");
  if (const auto done = app.parse(argc, argv, EXIT_FAILURE)) return *done;

  auto config = flyt::vm::read_config(file);
  if (!config) return fail(config.error());
  if (!socket.empty()) config->socket = socket;
  if (!state.empty()) config->state_folder = state;
  if (check) {
    const auto users = flyt::vm::users_of(*config);
    if (!users) return fail(users.error());
    const flyt::Status files = flyt::vm::check_files(*config);
    if (!files) return fail({files.error().code, file + ": " + files.error().message});
    std::cout << "the configuration is right\n";
    return app.finish(EXIT_SUCCESS);
  }
  const flyt::Fd signals = flyt::control::take_stop_signals();
  const flyt::Status status = flyt::vm::run_client(*config, signals);
  return status ? EXIT_SUCCESS : fail(status.error());
}
