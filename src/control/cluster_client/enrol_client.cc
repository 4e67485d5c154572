#include "control/cluster_client/enrol_client.h"

#include "control/cluster.grpc.pb.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"

namespace flyt::cluster {
namespace {

constexpr int kMessageBytesMax = 1 << 20;

grpc::ChannelArguments bounded() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  return arguments;
}

template <class Method, class Request>
Result<std::string> ask(const std::shared_ptr<grpc::Channel>& channel, Method method,
                        const Request& request, const std::string& address, Duration patience) {
  const auto stub = v1::Enrolment::NewStub(channel);
  v1::EnrolReply reply;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  const grpc::Status status = control::call(*stub, method, request, time, reply);
  if (status.ok()) return reply.certificate();
  return control::error_of(status, address, "flyt-cluster-manager with enrol.listen");
}

}  // namespace

Result<std::string> ask_to_enrol(const EnrolQuestion& question, Duration patience) {
  v1::EnrolRequest request;
  request.set_token(question.token);
  request.set_role(question.role);
  request.set_name(question.name);
  request.set_signing_request(question.signing_request);
  return ask(control::open_nameless_channel(question.address, question.authority, bounded()),
             &v1::Enrolment::Stub::Enrol, request, question.address, patience);
}

Result<std::string> ask_to_renew(const std::string& address, const control::TlsFiles& files,
                                 const std::string& signing_request, Duration patience) {
  const auto channel =
      control::open_channel(address, files, control::ServerRole::kCluster, bounded());
  if (!channel) return channel.error();
  v1::RenewRequest request;
  request.set_signing_request(signing_request);
  return ask(*channel, &v1::Enrolment::Stub::Renew, request, address, patience);
}

}  // namespace flyt::cluster
