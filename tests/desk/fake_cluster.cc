// A cluster that says what its test wants: fake_cluster SOCKET. Each line of the input is how the
// virtual GPU is from then on: "PHASE AHEAD GENERATION URL TOKEN REASON...", with "-" for nothing;
// or "error CODE TEXT..." for every request. What it is asked for it writes as lines.
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include "base/wall_clock.h"
#include "control/cluster.grpc.pb.h"

namespace {

namespace v1 = flyt::cluster::v1;

constexpr auto kStep = std::chrono::milliseconds(50);
constexpr std::int64_t kTokenSeconds = 300;

class Service final : public v1::Vms::Service {
 public:
  grpc::Status Request(grpc::ServerContext*, const v1::GpuRequest* request,
                       v1::VirtualGpu* reply) override {
    say("request " + request->vm() + (request->token() ? " token" : ""));
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return error_;
    *reply = gpu_;
    if (gpu_.phase() != v1::PHASE_READY) return grpc::Status::OK;
    reply->set_token(token_);
    reply->set_token_expires_at(flyt::unix_seconds() + kTokenSeconds);
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchGpuRequest*,
                     grpc::ServerWriter<v1::VirtualGpu>* writer) override {
    say("watch");
    std::uint64_t told = 0;
    std::unique_lock lock(mutex_);
    while (!context->IsCancelled()) {
      if (told == version_) {
        changed_.wait_for(lock, kStep);
        continue;
      }
      told = version_;
      const v1::VirtualGpu gpu = gpu_;
      lock.unlock();
      if (!writer->Write(gpu)) return grpc::Status::OK;
      lock.lock();
    }
    return grpc::Status::OK;
  }

  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseGpuRequest*,
                       v1::VirtualGpu* reply) override {
    say("release");
    const std::lock_guard lock(mutex_);
    gpu_ = v1::VirtualGpu();
    gpu_.set_vm("vm");
    gpu_.set_phase(v1::PHASE_NONE);
    ++version_;
    *reply = gpu_;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  void follow(const std::string& line) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    const std::lock_guard lock(mutex_);
    error_ = grpc::Status::OK;
    if (first == "error") {
      int code = 0;
      std::string text;
      words >> code;
      std::getline(words >> std::ws, text);
      error_ = {static_cast<grpc::StatusCode>(code), text};
    } else {
      gpu_ = v1::VirtualGpu();
      read(first, words);
    }
    ++version_;
    changed_.notify_all();
  }

 private:
  void read(const std::string& phase, std::istringstream& words) {
    const std::map<std::string, v1::Phase> phases = {{"none", v1::PHASE_NONE},
                                                     {"waiting", v1::PHASE_WAITING},
                                                     {"starting", v1::PHASE_STARTING},
                                                     {"ready", v1::PHASE_READY},
                                                     {"ending", v1::PHASE_ENDING}};
    std::uint32_t ahead = 0;
    std::uint64_t generation = 0;
    std::string url;
    std::string reason;
    words >> ahead >> generation >> url >> token_;
    std::getline(words >> std::ws, reason);
    gpu_.set_vm("vm");
    gpu_.set_phase(phases.at(phase));
    gpu_.set_ahead(ahead);
    gpu_.set_generation(generation);
    gpu_.set_node("node");
    gpu_.set_host("host");
    gpu_.set_reason(reason);
    if (url != "-") gpu_.add_urls(url);
  }

  static void say(const std::string& text) { std::cout << text << std::endl; }

  std::mutex mutex_;
  std::condition_variable changed_;
  v1::VirtualGpu gpu_;
  std::string token_;
  grpc::Status error_;
  std::uint64_t version_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + std::string(argv[1]), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::cout << "serving" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) service.follow(line);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}
