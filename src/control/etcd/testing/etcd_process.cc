#include "control/etcd/testing/etcd_process.h"

#include <arpa/inet.h>  // lint: allow(sockets): a port is looked for
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>  // lint: allow(sockets): a port is looked for
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"

namespace flyt::control::testing {
namespace {

constexpr const char* kPrograms[] = {"/usr/bin/etcd", "/usr/local/bin/etcd"};
constexpr int kTries = 5;
constexpr Duration kPatience = std::chrono::seconds(30);
constexpr Duration kRest = std::chrono::milliseconds(20);

const char* program() {
  for (const char* path : kPrograms) {
    if (::access(path, X_OK) == 0) return path;
  }
  return nullptr;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// In memory where that can be: etcd waits for its disk at every change, and its clients do not wait
// long for it.
std::filesystem::path place_of_data() {
  const char* const memory = "/dev/shm";
  return ::access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

// One that nobody has just now.
std::string free_address() {
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = static_cast<sockaddr*>(static_cast<void*>(&address));
  if (::bind(probe.get(), generic, size) != 0) return {};
  if (::getsockname(probe.get(), generic, &size) != 0) return {};
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

}  // namespace

bool EtcdProcess::installed() { return program() != nullptr; }

std::unique_ptr<EtcdProcess> EtcdProcess::start(const TlsFiles& tls) {
  std::string folder = place_of_data() / "flyt-etcd-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return nullptr;
  std::unique_ptr<EtcdProcess> etcd(new EtcdProcess(folder, tls));
  for (int i = 0; i < kTries; ++i) {
    etcd->address_ = free_address();
    etcd->peer_ = free_address();
    if (etcd->launch()) return etcd;
    etcd->kill();
    std::filesystem::remove_all(folder + "/data");
  }
  return nullptr;
}

EtcdProcess::~EtcdProcess() {
  kill();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void EtcdProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool EtcdProcess::restart() {
  kill();
  return launch();
}

void EtcdProcess::hold(bool still) const {
  ::kill(pid_, still ? SIGSTOP : SIGCONT);
  // Until all of its threads stand it may still answer.
  if (still) ::waitpid(pid_, nullptr, WUNTRACED);
}

bool EtcdProcess::listens() const {
  const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto port = std::stoi(address_.substr(address_.rfind(':') + 1));
  sockaddr_in address = loopback(static_cast<std::uint16_t>(port));
  const auto* generic = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  return ::connect(probe.get(), generic, sizeof(address)) == 0;
}

bool EtcdProcess::launch() {
  const bool secret = tls_.complete();
  const std::string client = (secret ? "https://" : "http://") + address_;
  const std::string peer = "http://" + peer_;
  std::vector<std::string> words = {program(),
                                    "--name=one",
                                    "--data-dir=" + folder_ + "/data",
                                    "--listen-client-urls=" + client,
                                    "--advertise-client-urls=" + client,
                                    "--listen-peer-urls=" + peer,
                                    "--initial-advertise-peer-urls=" + peer,
                                    "--initial-cluster=one=" + peer,
                                    "--logger=zap",
                                    "--log-outputs=" + folder_ + "/log"};
  if (secret) {
    for (const std::string& word :
         {"--cert-file=" + tls_.cert, "--key-file=" + tls_.key, "--trusted-ca-file=" + tls_.ca,
          std::string("--client-cert-auth=true")}) {
      words.push_back(word);
    }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int failed =
      ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  const Instant end = system_clock().now() + kPatience;
  while (system_clock().now() < end) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return false;
    }
    if (listens()) return true;
    // lint: allow(sleep): another process is waited for.
    system_clock().sleep_for(kRest);
  }
  return false;
}

}  // namespace flyt::control::testing
