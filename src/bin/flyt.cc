// flyt: runs CUDA programs on a GPU that belongs to a server.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "control/cli/completion.h"
#include "control/cli/launcher.h"
#include "control/client/server_info.h"

namespace {

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt run --server tcp://gpu-host:7700 -- python train.py\n"
    "  flyt run --server unix:///run/flyt.sock -- ./a.out 100\n"
    "  flyt server-info --server tcp://gpu-host:7700 --json\n"
    "  source <(flyt completion bash)\n";

int fail(const flyt::Error& error, int status) {
  std::cerr << "flyt: " << error.message << "\n";
  return status;
}

int server_info(const std::string& url, bool json) {
  const auto info = flyt::control::greet(url);
  if (!info) return fail(info.error(), EXIT_FAILURE);
  std::cout << flyt::control::describe(*info, json);
  return EXIT_SUCCESS;
}

int version(bool json) {
  std::cout << (json ? "{\"version\": \"" FLYT_VERSION "\"}\n" : "flyt " FLYT_VERSION "\n");
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs CUDA programs on a GPU that belongs to a server.", "flyt");
  app.footer(kFooter);
  app.set_version_flag("--version", FLYT_VERSION);
  app.require_subcommand(1);
  flyt::cli::RunOptions options;
  bool json = false;
  std::string url;
  std::string shell;

  CLI::App* run = app.add_subcommand("run", "Run a program with the GPU of a server");
  run->add_option("--server", options.server,
                  "unix:///PATH or tcp://HOST:PORT; FLYT_SERVER of the environment if missing")
      ->type_name("URL");
  run->add_flag("--verbose", options.verbose, "Say what happens on stderr");
  run->add_option("command", options.command, "The program and its arguments, after --")
      ->required()
      ->type_name("PROGRAM ARGS");
  run->positionals_at_end();

  CLI::App* info = app.add_subcommand("server-info", "Show what a server says about itself");
  info->add_option("--server", url, "unix:///PATH or tcp://HOST:PORT")
      ->envname("FLYT_SERVER")
      ->required()
      ->type_name("URL");
  info->add_flag("--json", json, "As one JSON object");
  CLI::App* about = app.add_subcommand("version", "Show the version");
  about->add_flag("--json", json, "As one JSON object");
  CLI::App* complete = app.add_subcommand("completion", "Print a script for a shell to source");
  complete->add_option("shell", shell)->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI11_PARSE(app, argc, argv);

  if (*run) return fail(flyt::cli::run(options), flyt::cli::kExitNotStarted);
  if (*info) return server_info(url, json);
  if (*about) return version(json);
  std::cout << flyt::cli::completion_script(shell);
  return EXIT_SUCCESS;
}
