// flyt-server: gives the GPUs of this machine to clients elsewhere.
#include <fcntl.h>

#include <filesystem>
#include <iostream>

#include "bin/command_line.h"
#include "server/parent/supervisor.h"

namespace {

constexpr char kDescription[] = "Gives the GPUs of this machine to CUDA programs elsewhere.";

constexpr char kFooter[] =
    "\nExamples:\n"
    "  flyt-server --listen unix:///run/flyt.sock\n"
    "  flyt-server --listen tcp://0.0.0.0:7700 --listen unix:///run/flyt.sock --warm 2\n"
    "  flyt-server --listen tcp://127.0.0.1:0 --driver soft     (a software GPU; port in the log)\n"
    "  flyt-server --listen unix:///run/vm7.sock --lease vm7 --gpu 0 --memory 20G\\\n"
    "      --token-key /etc/flyt/vm7.key --control unix:///run/vm7.control\n"
    "\n"
    "Without --token-key clients are not asked who they are: listen where only trusted ones can\n"
    "connect.\n"
    "SIGTERM takes no new clients and lets sessions end; SIGINT ends them at once. SIGUSR1, with\n"
    "--keeper, ends the server as soon as no session has work under way; they go on in the next.\n"
    "All processes of the server may get them.\n";

// The software GPU's library stands beside the programs: ../lib.
std::string soft_path() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path().parent_path() / "lib" / "libflyt-softgpu.so").string();
}

// What means something only together with others, so that it matters whether it was given.
struct Given {
  std::optional<std::uint32_t> gpu_sessions;
  std::optional<std::int32_t> ready_fd;
};

void add_lease_options(const flyt::Command& app, flyt::server::SupervisorOptions& options,
                       Given& given) {
  flyt::server::LeaseOptions& lease = options.session.lease;
  app.add_option(
         "--lease", lease.id,
         "What this server's sessions are called together, in logs and tokens; if missing nothing")
      .type_name("ID");
  app.add_option(
         "--gpu", lease.gpu,
         "The only GPU that clients see: its number or UUID; if missing all, or GPU 0 where there"
         " are other limits")
      .type_name("N|UUID");
  app.add_option("--memory", lease.memory_bytes,
                 "Memory of the GPU that all sessions have together; 0: as much as there is")
      .size()
      .type_name("BYTES[K|M|G]");
  app.add_option("--sms", lease.sms,
                 "Multiprocessors of the GPU for all sessions, rounded up to groups; 0: all")
      .range(0, 65535);
  app.add_option("--sm-groups", lease.sm_groups,
                 "The groups that they are, by number; if missing the first ones that suffice")
      .delimiter(',')
      .type_name("N,N,...");
  app.add_option("--fault-board", options.session.fault_board,
                 "A file that all servers of a GPU under MPS are given: what one session's kernel"
                 " breaks there the others survive, with --recover; if missing none")
      .type_name("PATH");
  app.add_option(
         "--gpu-room", options.session.gpu_room,
         "A file that all servers of a GPU are given, which takes so many sessions of them"
         " together; those beyond --gpu-sessions are refused; if missing they are not counted")
      .type_name("PATH");
  app.add_option("--gpu-sessions", given.gpu_sessions,
                 "With --gpu-room: sessions on the GPU, with the processes that are kept warm")
      .range(1, 1024)
      .show_default(std::to_string(options.session.gpu_sessions));
  app.add_option(
         "--token-key", lease.token_key,
         "A file of 32 bytes: clients need a token signed with it, for this --lease; if missing"
         " they need none")
      .type_name("FILE");
  app.add_option(
         "--token-book", lease.token_book,
         "With --token-key: a file in which the tokens in use are remembered for the next server;"
         " if missing they are forgotten when this one ends")
      .type_name("PATH");
  app.add_option("--control", options.control,
                 "Where this user and root control the server: unix:///PATH; if missing nowhere")
      .type_name("URL");
}

// The caller waits for a word that would never come, or would go somewhere else.
flyt::Status check_ready_fd(std::int32_t fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  const std::string front = "--ready-fd " + std::to_string(fd) + ": ";
  if (flags < 0) {
    return flyt::Error{flyt::ErrorCode::kInvalid,
                       front +
                           "no such descriptor is open; whoever starts this program has to"
                           " leave it open for it"};
  }
  if ((flags & O_ACCMODE) != O_RDONLY) return {};
  return flyt::Error{flyt::ErrorCode::kInvalid, front + "the descriptor cannot be written to"};
}

flyt::Status check(const flyt::server::SupervisorOptions& options, const Given& given) {
  const auto invalid = [](const char* message) {
    return flyt::Error{flyt::ErrorCode::kInvalid, message};
  };
  if (given.gpu_sessions && options.session.gpu_room.empty()) {
    return invalid("--gpu-sessions needs --gpu-room: sessions are counted in that file");
  }
  if (!options.session.lease.token_book.empty() && options.session.lease.token_key.empty()) {
    return invalid("--token-book needs --token-key: it has the tokens signed with that");
  }
  if (given.ready_fd) {
    if (flyt::Status status = check_ready_fd(*given.ready_fd); !status) return status;
  }
  if (options.session.code_store.bytes_max < flyt::CacheFolder::kEntryBytesMin) {
    return invalid("--module-cache-bytes keeps nothing below 4K; --module-cache off says so");
  }
  const std::string& lease = options.session.lease.id;
  if (!lease.empty() && !flyt::server::valid_lease_id(lease)) {
    return invalid("--lease takes at most 64 letters, digits, '.', '_' and '-'");
  }
  if (!options.keeper.empty() && options.recover_seconds == 0) {
    return invalid("--keeper needs --recover: it keeps what sessions go on with");
  }
  return {};
}

int fail(const flyt::Error& error) {
  std::cerr << "flyt-server: " << error.message << "\n";
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  flyt::CommandLine app("flyt-server", kDescription);
  app.footer(kFooter);
  app.show_defaults();
  flyt::server::SupervisorOptions options;
  options.session.driver = "auto";
  options.session.soft_path = soft_path();
  std::string level = "info";
  app.add_option("--listen", options.urls,
                 "Where clients connect: unix:///PATH or tcp://HOST:PORT; repeatable")
      .required()
      .type_name("URL")
      .take_all();
  app.add_option("--driver", options.session.driver,
                 "auto (NVIDIA's if it works here, else soft), soft, or the path of a libcuda.so")
      .type_name("auto|soft|PATH");
  app.add_option("--warm", options.warm,
                 "Processes kept ready with the driver started, so that clients start faster")
      .range(0, 64);
  app.add_option("--warm-pause", options.warm_pause_ms,
                 "Milliseconds that a session is left alone before another process is made warm")
      .range(0, 600000);
  app.add_option("--max-sessions", options.sessions_max, "Clients served at once").range(1, 100000);
  std::string store = "auto";
  app.add_option("--module-cache", store,
                 "Where code that clients sent is kept: auto (the user's cache folder), off, or a"
                 " folder")
      .type_name("auto|off|DIR");
  app.add_option("--module-cache-bytes", options.session.code_store.bytes_max,
                 "How much of it, for each user or address that clients come from")
      .size()
      .show_default("4G")
      .type_name("BYTES[K|M|G]");
  app.add_option("--recover", options.recover_seconds,
                 "Seconds for which the memory of a session whose process was killed is kept, so"
                 " that the client can go on in another one; 0: not at all")
      .range(0, 3600);
  app.add_option("--keeper", options.keeper,
                 "A socket's path, with --recover: if this server is killed, sessions go on in the"
                 " next one that is started with the same path; if missing they end")
      .type_name("PATH");
  app.add_option("--handover-seconds", options.handover_seconds,
                 "How long SIGUSR1 waits for sessions to come to a moment without work")
      .range(0, 3600);
  app.add_option("--drain-seconds", options.drain_seconds,
                 "How long sessions may go on after SIGTERM")
      .range(0, 86400);
  app.add_option("--log-level", level, "What is logged to stderr")
      .one_of({"debug", "info", "warn", "error", "off"});
  Given given;
  app.add_option(
         "--ready-fd", given.ready_fd,
         "An open descriptor that gets \"ready\" once clients can connect; if missing none does")
      .type_name("FD");
  add_lease_options(app, options, given);
  if (const auto done = app.parse(argc, argv, EXIT_FAILURE)) return *done;
  if (const flyt::Status wrong = check(options, given); !wrong) return fail(wrong.error());
  if (given.gpu_sessions) options.session.gpu_sessions = *given.gpu_sessions;
  if (given.ready_fd) options.ready_fd = *given.ready_fd;
  if (store == "auto") store = flyt::server::default_store_folder();
  if (store != "off") options.session.code_store.folder = store;
  options.session.log_level = flyt::log_level_of(level, flyt::LogLevel::kInfo);

  flyt::server::Supervisor supervisor(std::move(options));
  const flyt::Status status = supervisor.run();
  return status ? EXIT_SUCCESS : fail(status.error());
}
