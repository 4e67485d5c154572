// A message of the APIs as JSON: for --json, and for the cluster's page.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace flyt::control {

// One object on one line, with every field, also those that are 0 or empty. Names and numbers are
// the API's; what is no UTF-8 is replaced.
std::string json_of(const google::protobuf::Message& message);

}  // namespace flyt::control
