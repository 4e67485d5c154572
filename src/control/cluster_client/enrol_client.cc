#include "control/cluster_client/enrol_client.h"

#include "control/cluster.grpc.pb.h"
#include "control/grpc/call.h"
#include "control/grpc/channel.h"

namespace flyt::cluster {
namespace {

constexpr int kMessageBytesMax = 1 << 20;

}  // namespace

Result<std::string> ask_to_enrol(const EnrolQuestion& question, Duration patience) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  const auto stub = v1::Enrolment::NewStub(
      control::open_nameless_channel(question.address, question.authority, arguments));
  v1::EnrolRequest request;
  request.set_token(question.token);
  request.set_role(question.role);
  request.set_name(question.name);
  request.set_signing_request(question.signing_request);
  v1::EnrolReply reply;
  const grpc::Status status =
      control::call(*stub, &v1::Enrolment::Stub::Enrol, request,
                    std::chrono::duration_cast<std::chrono::milliseconds>(patience), reply);
  if (status.ok()) return reply.certificate();
  return control::error_of(status, question.address, "flyt-cluster-manager with enrol.listen");
}

}  // namespace flyt::cluster
