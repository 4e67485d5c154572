// What a VM asks a cluster manager: cluster_vm ADDRESS CERT KEY CA WORD VM, each answer a line of
// JSON. "request": once; "release": once; "watch": until it is killed.
// Or a machine that enrols, with the request for its certificate on the standard input:
// cluster_vm ADDRESS CA TOKEN ROLE enrol NAME
// Or one that wants another certificate and shows none: cluster_vm ADDRESS CA - - renew NAME
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "control/cluster.grpc.pb.h"
#include "control/cluster_client/cluster_client.h"
#include "control/cluster_client/enrol_client.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"

namespace {

using flyt::cluster::ClusterClient;
namespace v1 = flyt::cluster::v1;

const char* phase_of(v1::Phase phase) {
  switch (phase) {
    case v1::PHASE_WAITING:
      return "waiting";
    case v1::PHASE_STARTING:
      return "starting";
    case v1::PHASE_READY:
      return "ready";
    default:
      return "none";
  }
}

// Nothing that is told has a quote in it.
void tell(const v1::VirtualGpu& gpu) {
  std::printf(
      "{\"vm\": \"%s\", \"phase\": \"%s\", \"ahead\": %u, \"node\": \"%s\", \"token\": \"%s\","
      " \"generation\": %llu, \"urls\": [",
      gpu.vm().c_str(), phase_of(gpu.phase()), gpu.ahead(), gpu.node().c_str(), gpu.token().c_str(),
      static_cast<unsigned long long>(gpu.generation()));
  for (int i = 0; i < gpu.urls_size(); ++i) {
    std::printf("%s\"%s\"", i == 0 ? "" : ", ", gpu.urls(i).c_str());
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

int fail(const flyt::Error& error) {
  std::fprintf(stderr, "%s: %s\n", std::string(flyt::to_string(error.code)).c_str(),
               error.message.c_str());
  return 1;
}

template <class Stream>
std::string all_of(Stream&& stream) {
  return {std::istreambuf_iterator<char>(stream), {}};
}

int enrol(char** argv) {
  const auto certificate = flyt::cluster::ask_to_enrol(
      {argv[1], all_of(std::ifstream(argv[2])), argv[3], argv[4], argv[6], all_of(std::cin)},
      std::chrono::seconds(30));
  if (!certificate) return fail(certificate.error());
  std::printf("%s", certificate->c_str());
  return 0;
}

int renew(char** argv) {
  const auto stub = v1::Enrolment::NewStub(
      flyt::control::open_nameless_channel(argv[1], all_of(std::ifstream(argv[2])), {}));
  v1::EnrolReply reply;
  const grpc::Status status =
      flyt::control::call(*stub, &v1::Enrolment::Stub::Renew, v1::RenewRequest(),
                          std::chrono::milliseconds(30'000), reply);
  std::printf("%d %s%s", status.error_code(), status.error_message().c_str(),
              reply.certificate().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  if (std::string(argv[5]) == "enrol") return enrol(argv);
  if (std::string(argv[5]) == "renew") return renew(argv);
  const auto client = ClusterClient::connect({argv[1], argv[2], argv[3], argv[4]});
  if (!client) return fail(client.error());
  const std::string word = argv[5];
  if (word == "watch") {
    const flyt::Status status = (*client)->watch_gpu(argv[6], [](const v1::VirtualGpu& gpu) {
      tell(gpu);
      return true;
    });
    return status ? 0 : fail(status.error());
  }
  v1::GpuRequest request;
  request.set_vm(argv[6]);
  request.set_token(true);
  const auto gpu = word == "release" ? (*client)->release(argv[6]) : (*client)->request(request);
  if (!gpu) return fail(gpu.error());
  tell(*gpu);
  return 0;
}
