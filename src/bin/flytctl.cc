// flytctl: asks a cluster manager, or a node manager, for virtual GPUs.
#include <cstdlib>
#include <iostream>

#include "bin/flytctl_commands.h"
#include "control/cli/node/completion.h"

namespace {

constexpr char kFooter[] =
    "\nExamples, of a cluster:\n"
    "  flytctl vm set train --sms 32 --memory 20G --address 10.0.0.7\n"
    "  flytctl --cluster cluster-host:7700 --cert me.crt --key me.key --ca ca.crt vms --watch\n"
    "  flytctl explain train\n"
    "  flytctl drain gpu-host-3\n"
    "  flytctl ca issue gpu-host-3 --role node --host gpu-host-3.example.org\n"
    "Examples, of a node:\n"
    "  flytctl create train --sms 32 --memory 20G --expires-in 12h --label team=vision\n"
    "  eval \"$(flytctl token train --export)\" && flyt run -- python train.py\n"
    "  flytctl --node gpu-host:7701 --cert me.crt --key me.key --ca ca.crt leases --json\n"
    "  source <(flytctl completion bash)\n"
    "\nExit status: 0 done, 1 it failed, 2 bad request, 3 no answer, 4 no such thing,\n"
    "5 no room, 6 refused in this state or for this user.\n";

}  // namespace

int main(int argc, char** argv) {
  flyt::CommandLine app("flytctl",
                        "Virtual GPUs of a cluster with flyt-cluster-manager, or of one machine.");
  app.footer(kFooter);
  app.require_command();
  app.fallthrough();
  flyt::ctl::Options options;
  flyt::ctl::add_global(app, options);
  flyt::ctl::add_cluster_commands(app, options);
  flyt::ctl::add_node_commands(app, options);
  flyt::ctl::add_flyt_commands(app, options);
  const flyt::Command completion =
      app.add_command("completion", "Print a script for a shell to source");
  completion.add_option("shell", options.shell).required().one_of({"bash", "zsh", "fish"});
  flyt::ctl::add_examples(app);
  if (const auto done = app.parse(argc, argv, flyt::cli::kExitUsage)) return *done;
  if (completion.given()) {
    flyt::cli::Choices choices;
    for (const flyt::Command& command : app.commands()) {
      choices[command.name()] = command.choices();
    }
    std::cout << flyt::cli::ctl_completion_script(options.shell, choices);
    return app.finish(EXIT_SUCCESS);
  }
  const flyt::Status status = flyt::ctl::run(app.given_commands().front(), options);
  if (status) return app.finish(EXIT_SUCCESS);
  std::cerr << "flytctl: " << status.error().message << "\n";
  return flyt::cli::exit_status_of(status.error().code);
}
