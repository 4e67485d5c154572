// Messages: a manager's values as the API's messages, and back.
#pragma once

#include <string_view>

#include "base/result.h"
#include "control/node.pb.h"
#include "control/node/manager.h"

namespace flyt::node {

v1::Mode message_of(Mode mode);
v1::NodeDescription message_of(const NodeView& node, std::string_view version);
v1::Lease message_of(const LeaseView& view);
v1::Session message_of(const SessionView& view);
v1::Token message_of(const TokenView& token);
v1::Event message_of(const Event& event);

// kInvalid: a value that no enumeration has.
Result<LeaseRequest> request_of(const v1::CreateLeaseRequest& message);
ResizeRequest request_of(const v1::ResizeLeaseRequest& message);

}  // namespace flyt::node
