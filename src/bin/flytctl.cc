// flytctl: asks a node manager for leases of virtual GPUs.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "control/cli/node/commands.h"
#include "control/cli/node/completion.h"

namespace {

using flyt::cli::CtlOptions;

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flytctl describe\n"
    "  flytctl create train --sms 32 --memory 20G --expires-in 12h --label team=vision\n"
    "  flytctl resize train --sms 64\n"
    "  eval \"$(flytctl token train --export)\" && flyt run -- python train.py\n"
    "  flytctl --node gpu-host:7701 --cert me.crt --key me.key --ca ca.crt leases --json\n"
    "  flytctl events --follow\n"
    "  source <(flytctl completion bash)\n"
    "\nExit status: 0 done, 1 the node failed, 2 bad request, 3 the node does not answer,\n"
    "4 no such lease, 5 no room, 6 refused in this state.\n";

void add_global(CLI::App& app, CtlOptions& options) {
  app.add_option("--node", options.address.node,
                 "unix:///PATH, or HOST:PORT with --cert, --key and --ca")
      ->envname("FLYT_NODE")
      ->capture_default_str()
      ->type_name("ADDR");
  app.add_option("--cert", options.address.cert, "This user's certificate")
      ->envname("FLYT_NODE_CERT")
      ->type_name("FILE");
  app.add_option("--key", options.address.key, "Its key")
      ->envname("FLYT_NODE_KEY")
      ->type_name("FILE");
  app.add_option("--ca", options.address.ca, "The certificate that the node's is signed with")
      ->envname("FLYT_NODE_CA")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "One JSON object a line");
}

CLI::App* add_lease_command(CLI::App& app, CtlOptions& options, const char* name, const char* about,
                            bool required) {
  CLI::App* command = app.add_subcommand(name, about);
  command->add_option("lease", options.lease, "Its name or id")
      ->required(required)
      ->type_name("LEASE");
  return command;
}

void add_sizes(CLI::App& command, CtlOptions& options, bool required) {
  command.add_option("--sms", options.sms, "Multiprocessors; rounded up to whole groups")
      ->required(required)
      ->type_name("N");
  command.add_option("--memory", options.memory, "Memory, such as 512M or 20G")
      ->required(required)
      ->type_name("SIZE");
}

void add_create(CLI::App& app, CtlOptions& options) {
  CLI::App* create = app.add_subcommand("create", "Make a lease and start its server");
  create->add_option("name", options.lease, "How it is to be called")->required();
  add_sizes(*create, options, true);
  create->add_option("--gpu", options.gpu, "Which GPU; the first with room if missing")
      ->type_name("N");
  create->add_option("--mode", options.mode, "Only on a GPU in this mode")
      ->check(CLI::IsMember({"isolated", "shared"}));
  create->add_option("--priority", options.priority, "From -1000 to 1000")->capture_default_str();
  create->add_option("--expires-in", options.expires_in, "Ends by itself after this: 90s, 12h, 7d")
      ->type_name("TIME");
  create->add_option("--label", options.labels, "For whoever looks; repeatable")
      ->type_name("KEY=VALUE")
      ->take_all();
}

void add_commands(CLI::App& app, CtlOptions& options) {
  add_lease_command(app, options, "describe", "Show the node and its GPUs, or one lease", false);
  app.add_subcommand("leases", "List the leases");
  add_create(app, options);
  add_sizes(*add_lease_command(app, options, "resize", "Change a lease while it runs", true),
            options, false);
  add_lease_command(app, options, "release", "End a lease, its sessions and its server", true);
  add_lease_command(app, options, "sessions", "List client processes, of all leases or one", false);
  CLI::App* token = add_lease_command(app, options, "token", "Issue a token for clients", true);
  token->add_option("--lasts", options.lasts, "How long it admits clients: 60, 5m")
      ->type_name("TIME");
  token->add_flag("--export", options.exports, "As settings for a shell");
  token->add_flag("--tcp", options.tcp, "With --export: the address for other machines");
  app.add_subcommand("drain", "Make no new leases; those there are go on");
  app.add_subcommand("undrain", "Make new leases again");
  CLI::App* events = app.add_subcommand("events", "Show what happened");
  events->add_flag("--follow", options.follow, "And what happens from now on");
  events->add_option("--after", options.after, "Only those after this number")->type_name("N");
  CLI::App* top = app.add_subcommand("top", "Show the leases again and again");
  top->add_option("--interval", options.interval, "Seconds between pages")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  top->add_option("--pages", options.pages, "End after so many; 0: go on")->capture_default_str();
  app.add_subcommand("health", "Say what is wrong with the node");
}

flyt::Status run(const std::string& command, const CtlOptions& options) {
  if (command == "describe") return flyt::cli::ctl_describe(options);
  if (command == "leases") return flyt::cli::ctl_leases(options);
  if (command == "create") return flyt::cli::ctl_create(options);
  if (command == "resize") return flyt::cli::ctl_resize(options);
  if (command == "release") return flyt::cli::ctl_release(options);
  if (command == "sessions") return flyt::cli::ctl_sessions(options);
  if (command == "token") return flyt::cli::ctl_token(options);
  if (command == "drain") return flyt::cli::ctl_drain(options, true);
  if (command == "undrain") return flyt::cli::ctl_drain(options, false);
  if (command == "events") return flyt::cli::ctl_events(options);
  if (command == "top") return flyt::cli::ctl_top(options);
  return flyt::cli::ctl_health(options);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Leases virtual GPUs of a machine with flyt-node-manager.", "flytctl");
  app.footer(kFooter);
  app.set_version_flag("--version", FLYT_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  CtlOptions options;
  options.address.node = "unix:///run/flyt/node.sock";
  add_global(app, options);
  add_commands(app, options);
  std::string shell;
  CLI::App* completion = app.add_subcommand("completion", "Print a script for a shell to source");
  completion->add_option("shell", shell)->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : flyt::cli::kExitUsage;
  }
  if (*completion) {
    std::cout << flyt::cli::ctl_completion_script(shell);
    return EXIT_SUCCESS;
  }
  const flyt::Status status = run(app.get_subcommands().front()->get_name(), options);
  if (status) return EXIT_SUCCESS;
  std::cerr << "flytctl: " << status.error().message << "\n";
  return flyt::cli::exit_status_of(status.error().code);
}
