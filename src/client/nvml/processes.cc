#include "client/nvml/processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/fd.h"
#include "client/nvml/call.h"
#include "commands/nvml_memory.h"

namespace flyt::client::nvml {
namespace {

std::string read_front(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::array<char, 4096> front;
  const ssize_t got = ::read(file.get(), front.data(), front.size());
  return got > 0 ? std::string(front.data(), static_cast<std::size_t>(got)) : std::string();
}

}  // namespace

std::string process_name(unsigned int pid) {
  const int before = errno;
  const std::string folder = "/proc/" + std::to_string(pid) + "/";
  std::string name = read_front(folder + "cmdline");
  if (name.empty()) name = read_front(folder + "comm");
  errno = before;
  return name.substr(0, name.find_first_of(std::string_view("\0\n", 2)));
}

nvmlReturn_t fetch_processes(nvmlDevice_t device, std::vector<nvmlProcessInfo_t>& processes) {
  if (const nvmlReturn_t no = check(device); no != NVML_SUCCESS) return no;
  commands::NvmlProcesses::Reply reply;
  rpc::Reply answer;
  const nvmlReturn_t result = call(commands::NvmlProcesses{.device = device}, reply, answer);
  if (result == NVML_SUCCESS) processes = reply.processes.to_vector();
  return result;
}

}  // namespace flyt::client::nvml
