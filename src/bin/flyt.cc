// flyt: runs CUDA programs on a GPU that belongs to a server.
#include <cstdlib>
#include <iostream>

#include "bin/command_line.h"
#include "control/cli/completion.h"
#include "control/cli/install.h"
#include "control/cli/launcher.h"
#include "control/cli/smi.h"
#include "control/cli/trace.h"
#include "control/client/gpu_queue.h"
#include "control/client/server_info.h"
#include "trace/recording.h"

namespace {

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt run --server tcp://gpu-host:7700 -- python train.py\n"
    "  flyt run --server unix:///run/flyt.sock -- ./a.out 100\n"
    "  flyt trace --server tcp://gpu-host:7700 --chrome trace.json -- python train.py\n"
    "  flyt server-info --server tcp://gpu-host:7700 --json\n"
    "  flyt smi --server tcp://gpu-host:7700\n"
    "  flyt run -- python train.py                    this machine's GPU of a cluster\n"
    "  flyt client install\n"
    "  source <(flyt completion bash)\n";

constexpr char kRunExamples[] =
    "  flyt run --server tcp://gpu-host:7700 -- python train.py\n"
    "  flyt run --server 'unix:///run/flyt.sock?delay=5ms' -- ./a.out 100\n"
    "  flyt run --server tcp://gpu-host:7710 --token-file my.token -- ./a.out\n"
    "  flyt run -- python train.py                    this machine's GPU of a cluster\n"
    "\nExit status: the program's, or 127 if it was not started.\n";

constexpr int kExitUsage = 2;

int fail(const flyt::Error& error, int status) {
  std::cerr << "flyt: " << error.message << "\n";
  return status;
}

void show_examples(const flyt::Command& command, const std::string& lines) {
  command.footer("\nExamples:\n" + lines);
}

constexpr char kTraceFooter[] =
    "\nThe report goes to stderr when the program has ended, however it did. Programs started\n"
    "otherwise record their calls where FLYT_TRACE=PREFIX is set, in PREFIX.PID.\n"
    "\nExamples:\n"
    "  flyt trace --server tcp://gpu-host:7700 -- ./a.out\n"
    "  flyt trace --json --output calls.json -- python train.py\n"
    "  flyt trace --chrome trace.json -- ./a.out        open it at ui.perfetto.dev\n"
    "  flyt trace --server 'tcp://gpu-host:7700?delay=5ms' -- ./a.out\n"
    "  flyt trace --read /tmp/calls.4711 --read /tmp/calls.4712\n";

int server_info(const std::string& url, bool json) {
  const auto info = flyt::control::greet(url);
  if (!info) return fail(info.error(), EXIT_FAILURE);
  std::cout << flyt::control::describe(*info, json);
  return EXIT_SUCCESS;
}

int smi(const std::string& url, bool json) {
  // NVML has no words for why nobody answers.
  const auto info = flyt::control::greet(url);
  if (!info) return fail(info.error(), EXIT_FAILURE);
  const auto report = flyt::cli::smi(url, json);
  if (!report) return fail(report.error(), EXIT_FAILURE);
  std::cout << *report;
  return EXIT_SUCCESS;
}

int print(const flyt::Result<std::string>& text) {
  if (!text) return fail(text.error(), EXIT_FAILURE);
  std::cout << *text;
  return EXIT_SUCCESS;
}

// "flyt client": the library of this machine, and its client manager.
struct ClientCommands {
  flyt::Command client;
  flyt::Command install;
  flyt::Command restore;
  flyt::Command status;
  flyt::cli::InstallOptions options;

  explicit ClientCommands(const flyt::Command& app)
      : client(app.add_command("client", "The client library of this machine, and its manager")),
        install(client.add_command("install", "Let every program find the client library")),
        restore(client.add_command("restore", "Undo that, byte for byte")),
        status(client.add_command("status", "What the client manager says, as one JSON object")) {
    client.require_command();
    show_examples(client,
                  "  flyt client install && flyt client status\n"
                  "  flyt client restore\n");
    show_examples(install,
                  "  flyt client install\n"
                  "  flyt client install --root /srv/image --library /usr/lib/flyt/client\n");
    show_examples(restore, "  flyt client restore\n");
    show_examples(status, "  flyt client status\n");
    for (const flyt::Command& one : {install, restore}) {
      one.add_option("--root", options.root,
                     "The root folder of another system, such as an image; if missing of this one")
          .type_name("DIR");
    }
    install
        .add_option("--library", options.library,
                    "The folder of the libraries, as programs see it; beside this program if"
                    " missing")
        .type_name("DIR");
  }

  int run() {
    if (status.given()) {
      const auto json = flyt::control::client_manager_status();
      return print(json ? flyt::Result<std::string>(*json + "\n") : json);
    }
    while (options.root.ends_with('/')) options.root.pop_back();
    if (restore.given()) return print(flyt::cli::restore_client(options));
    if (options.library.empty()) {
      const auto folder = flyt::cli::client_library_folder();
      if (!folder) return fail(folder.error(), EXIT_FAILURE);
      options.library = *folder;
    }
    return print(flyt::cli::install_client(options));
  }
};

int trace_program(const flyt::cli::TraceOptions& options) {
  if (options.recordings.empty() == options.run.command.empty()) {
    return fail({flyt::ErrorCode::kInvalid, "trace takes a program behind --, or --read FILE"},
                flyt::cli::kExitNotStarted);
  }
  const flyt::Result<int> status = flyt::cli::trace(options);
  return status ? *status : fail(status.error(), flyt::cli::kExitNotStarted);
}

void add_run_options(const flyt::Command& command, flyt::cli::RunOptions& options) {
  command
      .add_option("--server", options.server,
                  "unix:///PATH, shm:///PATH or tcp://HOST:PORT; if missing FLYT_SERVER of the"
                  " environment, else this machine's client manager is asked")
      .type_name("URL");
  command
      .add_option(
          "--token-file", options.token_file,
          "A file with the token that the server wants; if missing FLYT_TOKEN or FLYT_TOKEN_FILE of"
          " the environment")
      .type_name("FILE");
  command
      .add_option("--wait", options.wait_seconds,
                  "Seconds to wait for this machine's virtual GPU, where no server is named")
      .range(0, 604800)
      .show_default()
      .type_name("N");
  command.add_flag("--verbose", options.verbose, "Say on stderr what happens");
}

// A command that asks a server and prints what it says.
flyt::Command add_question(const flyt::Command& app, const char* name, const char* description,
                           std::string& url, bool& json) {
  const flyt::Command question = app.add_command(name, description);
  question.add_option("--server", url, "unix:///PATH, shm:///PATH or tcp://HOST:PORT")
      .environment("FLYT_SERVER")
      .required()
      .type_name("URL");
  question.add_flag("--json", json, "As one JSON object");
  show_examples(question, "  flyt " + std::string(name) + " --server tcp://gpu-host:7700\n" +
                              "  FLYT_SERVER=unix:///run/flyt.sock flyt " + name + " --json\n");
  return question;
}

flyt::Command add_trace(const flyt::Command& app, flyt::cli::TraceOptions& options) {
  const flyt::Command trace = app.add_command("trace", "Run a program and tell what it called");
  trace.footer(kTraceFooter);
  add_run_options(trace, options.run);
  trace.add_flag("--json", options.json, "The report as one JSON object");
  trace.add_option("--output", options.output, "Where the report goes; if missing to stderr")
      .type_name("FILE");
  trace
      .add_option("--chrome", options.chrome,
                  "Also a trace-event file, for Perfetto; if missing none")
      .type_name("FILE");
  trace
      .add_option("--events", options.events_max,
                  "With --chrome: how many calls of each process the file holds")
      .range(1, flyt::trace::kEventsMax)
      .show_default();
  trace
      .add_option("--read", options.recordings,
                  "Report on a recording, and run nothing; repeatable")
      .type_name("FILE");
  trace.add_option("command", options.run.command, "The program and its arguments, after --")
      .type_name("PROGRAM ARGS");
  trace.positionals_at_end();
  return trace;
}

int version(bool json) {
  std::cout << (json ? "{\"version\": \"" FLYT_VERSION "\"}\n" : "flyt " FLYT_VERSION "\n");
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  flyt::CommandLine app("flyt", "Runs CUDA programs on a GPU that belongs to a server.");
  app.footer(kFooter);
  app.require_command();
  flyt::cli::RunOptions options;
  bool json = false;
  std::string url;
  std::string shell;

  const flyt::Command run = app.add_command("run", "Run a program with the GPU of a server");
  add_run_options(run, options);
  run.add_option("command", options.command, "The program and its arguments, after --")
      .required()
      .type_name("PROGRAM ARGS");
  run.positionals_at_end();
  show_examples(run, kRunExamples);

  flyt::cli::TraceOptions traced;
  const flyt::Command trace = add_trace(app, traced);
  const flyt::Command info =
      add_question(app, "server-info", "Show what a server says about itself", url, json);
  const flyt::Command gpus = add_question(
      app, "smi", "Show a server's GPUs, and which programs of this machine use them", url, json);
  ClientCommands client(app);
  const flyt::Command about = app.add_command("version", "Show the version");
  about.add_flag("--json", json, "As one JSON object");
  show_examples(about, "  flyt version --json\n");
  const flyt::Command complete =
      app.add_command("completion", "Print a script for a shell to source");
  complete.add_option("shell", shell).required().one_of({"bash", "zsh", "fish"});
  show_examples(complete,
                "  source <(flyt completion bash)\n"
                "  flyt completion fish >~/.config/fish/completions/flyt.fish\n");
  if (const auto done = app.parse(argc, argv, kExitUsage)) {
    // Who started a program shall not take it for that program's status.
    return *done != 0 && (run.given() || trace.given()) ? flyt::cli::kExitNotStarted : *done;
  }

  if (run.given()) return fail(flyt::cli::run(options), flyt::cli::kExitNotStarted);
  if (trace.given()) return trace_program(traced);
  if (info.given()) return app.finish(server_info(url, json));
  if (gpus.given()) return app.finish(smi(url, json));
  if (client.client.given()) return app.finish(client.run());
  if (about.given()) return app.finish(version(json));
  std::cout << flyt::cli::completion_script(shell);
  return app.finish(EXIT_SUCCESS);
}
