// Json: what a node said, for programs. Names and numbers are the API's.
#pragma once

#include <string>

#include "control/node.pb.h"

namespace flyt::cli {

// One object on one line, with every field, also those that are 0 or empty.
std::string json_of(const google::protobuf::Message& message);

}  // namespace flyt::cli
