#include "control/node/server_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/fd.h"
#include "base/random.h"

namespace flyt::node {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeyBytes = 32;
constexpr std::string_view kScheme = "unix://";

// Written whole under another name first, so that no server ever reads half a key.
Status write_key(const std::string& path) {
  std::array<char, kKeyBytes> bytes{};
  random_bytes(bytes.data(), bytes.size());
  const std::string fresh = path + ".new";
  Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return system_error("cannot write " + fresh, errno);
  const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) {
    const int failure = written < 0 ? errno : ENOSPC;
    ::unlink(fresh.c_str());
    return system_error("cannot write " + fresh, failure);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return system_error("rename " + fresh, errno);
  return {};
}

// What the servers of one GPU tell each other of faults; gone with the machine's next start.
std::string fault_board(const Config& config, std::uint32_t gpu) {
  return config.run_folder + "/faults-" + std::to_string(gpu);
}

std::string listen_address(const Config& config, std::uint16_t port) {
  const bool v6 = config.tcp_host.find(':') != std::string::npos;
  return "tcp://" + (v6 ? "[" + config.tcp_host + "]" : config.tcp_host) + ":" +
         std::to_string(port);
}

// What tells a server which GPUs there are.
void set_gpus(const Config& config, std::uint32_t gpu, const std::string& uuid, Mode mode,
              ProcessCommand& command) {
  std::string name = uuid;
  if (config.soft != 0) {
    name = std::to_string(gpu);
    command.changes.emplace_back("FLYT_SOFTGPU_DEVICES", std::to_string(config.soft));
    command.changes.emplace_back("FLYT_SOFTGPU_SMS", std::to_string(config.soft_sms));
    command.changes.emplace_back("FLYT_SOFTGPU_MEMORY", std::to_string(config.soft_memory_bytes));
  } else {
    // MPS of this GPU, which shows it alone; or none, whoever runs one on this machine.
    const std::string pipe =
        mode == Mode::kShared ? mps_pipe_folder(config, gpu) : config.run_folder + "/no-mps";
    command.changes.emplace_back("CUDA_MPS_PIPE_DIRECTORY", pipe);
    command.changes.emplace_back("CUDA_VISIBLE_DEVICES", "");
  }
  command.words.insert(command.words.end(),
                       {"--gpu", name, "--driver", config.soft != 0 ? "soft" : "auto"});
  if (mode != Mode::kShared) return;
  // A software GPU has no MPS to share faults.
  if (config.soft != 0) {
    command.changes.emplace_back("FLYT_SOFTGPU_SHARED_FAULTS", config.run_folder);
  }
  command.words.insert(command.words.end(), {"--fault-board", fault_board(config, gpu)});
}

ProcessCommand base_command(const Config& config, const std::string& lease) {
  const ServerFiles files(config, lease);
  ProcessCommand command;
  command.words = {config.server, "--lease",           lease,
                   "--control",   files.control_url(), "--token-key",
                   files.key(),   "--listen",          std::string(kScheme) + files.socket(),
                   "--log-level", config.log_level,    "--ready-fd",
                   "3",           "--drain-seconds",   "0"};
  command.log = files.log();
  command.tells_ready = true;
  return command;
}

Status make_folder(const std::string& path, bool reachable) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  fs::create_directories(parent, error);
  if (error) return system_error("cannot make " + parent.string(), error.value());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot make " + path, errno);
  }
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return system_error(path, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0) {
    return Error{ErrorCode::kDenied, path + " is no folder of this user's alone"};
  }
  const mode_t wanted = found.st_mode | (reachable ? 0111 : 0);
  if (wanted == found.st_mode || ::chmod(path.c_str(), wanted & 07777) == 0) return {};
  return system_error("cannot set the mode of " + path, errno);
}

}  // namespace

ServerFiles::ServerFiles(const Config& config, std::string lease)
    : lease_(std::move(lease)),
      run_(run_folder_of_leases(config) + "/" + lease_),
      state_(state_folder_of_leases(config) + "/" + lease_) {}

std::string run_folder_of_leases(const Config& config) { return config.run_folder + "/leases"; }

std::string state_folder_of_leases(const Config& config) { return config.state_folder + "/leases"; }

std::string gpu_room(const Config& config, std::uint32_t gpu) {
  return config.run_folder + "/room-" + std::to_string(gpu);
}

std::string mps_pipe_folder(const Config& config, std::uint32_t gpu) {
  return config.run_folder + "/mps-" + std::to_string(gpu);
}

Status make_private_folder(const std::string& path) { return make_folder(path, false); }

Status make_reachable_folder(const std::string& path) { return make_folder(path, true); }

Status ServerFiles::prepare() const {
  if (Status status = make_reachable_folder(run_); !status) return status;
  if (Status status = make_private_folder(state_); !status) return status;
  std::error_code error;
  if (fs::file_size(key(), error) == kKeyBytes && !error) return {};
  return write_key(key());
}

void ServerFiles::remove() const {
  std::error_code ignored;
  fs::remove_all(run_, ignored);
  fs::remove_all(state_, ignored);
}

ProcessCommand server_command(const Config& config, const Lease& lease, const Gpu& gpu) {
  ProcessCommand command = base_command(config, lease.id);
  set_gpus(config, lease.grant.gpu, lease.gpu_uuid, lease.grant.mode, command);
  const auto add = [&command](const char* option, std::uint64_t value) {
    command.words.insert(command.words.end(), {option, std::to_string(value)});
  };
  add("--memory", lease.grant.memory_bytes);
  // From the start, so that no program ever runs elsewhere. All groups are the whole GPU.
  if (gpu.divisible && lease.grant.groups.size() < gpu.groups.size()) {
    std::string list;
    for (const std::uint32_t group : lease.grant.groups) {
      list += (list.empty() ? "" : ",") + std::to_string(group);
    }
    command.words.insert(command.words.end(), {"--sm-groups", list});
  }
  add("--max-sessions", config.sessions_max);
  add("--warm", config.warm);
  if (config.gpu_sessions != 0) {
    command.words.insert(command.words.end(), {"--gpu-room", gpu_room(config, lease.grant.gpu)});
    add("--gpu-sessions", config.gpu_sessions);
  }
  if (config.recover_seconds != 0) {
    add("--recover", config.recover_seconds);
    add("--handover-seconds", config.handover_seconds);
    command.words.insert(command.words.end(), {"--keeper", ServerFiles(config, lease.id).keeper()});
  }
  if (lease.port != 0) {
    command.words.insert(command.words.end(), {"--listen", listen_address(config, lease.port)});
  }
  command.words.insert(command.words.end(),
                       {"--token-book", ServerFiles(config, lease.id).token_book()});
  // Code that tenants sent is kept for each lease apart.
  command.words.insert(command.words.end(),
                       {"--module-cache", ServerFiles(config, lease.id).modules()});
  return command;
}

ProcessCommand probe_command(const Config& config, std::uint32_t gpu, const std::string& gpu_uuid,
                             Mode mode) {
  ProcessCommand command = base_command(config, "probe-" + std::to_string(gpu));
  set_gpus(config, gpu, gpu_uuid, mode, command);
  command.words.insert(command.words.end(), {"--module-cache", "off"});
  return command;
}

std::string lease_of(const Config& config, const ProcessFacts& facts) {
  const std::string front = std::string(kScheme) + run_folder_of_leases(config) + "/";
  const auto& words = facts.words;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--control" || !words[i + 1].starts_with(front)) continue;
    const std::string rest = words[i + 1].substr(front.size());
    return rest.substr(0, rest.find('/'));
  }
  return {};
}

bool is_keeper(const ProcessFacts& facts) { return facts.name == "flyt-keeper"; }

std::vector<std::string> urls_of(const Config& config, const Lease& lease) {
  const ServerFiles files(config, lease.id);
  std::vector<std::string> urls = {std::string(kScheme) + files.socket()};
  if (lease.port != 0) {
    const bool v6 = config.advertise.find(':') != std::string::npos;
    urls.push_back("tcp://" + (v6 ? "[" + config.advertise + "]" : config.advertise) + ":" +
                   std::to_string(lease.port));
  }
  return urls;
}

}  // namespace flyt::node
