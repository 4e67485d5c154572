// Channels: how a manager is reached.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/grpc/credentials.h"

namespace flyt::control {

bool is_local(std::string_view address);
// kInvalid: it is neither unix:///PATH nor HOST:PORT.
Status check_address(const std::string& address);

// `address`: unix:///PATH, which needs no certificates, or HOST:PORT. It is connected to when it is
// first used. Sets what the environment tells gRPC: to be called before there are other threads.
Result<std::shared_ptr<grpc::Channel>> open_channel(const std::string& address,
                                                    const TlsFiles& files, ServerRole server,
                                                    grpc::ChannelArguments arguments,
                                                    Revoked revoked = nullptr);

// To a cluster manager, for who has no certificate of its own: it must show one of this authority.
std::shared_ptr<grpc::Channel> open_nameless_channel(const std::string& address,
                                                     const std::string& ca,
                                                     grpc::ChannelArguments arguments);

// The same without certificates also to HOST:PORT: of loopback, or of a network that nobody else is
// in.
std::shared_ptr<grpc::Channel> open_clear_channel(const std::string& address,
                                                  grpc::ChannelArguments arguments);

}  // namespace flyt::control
