#include "base/listening.h"

#include <cerrno>

namespace flyt {

bool is_taken(const Error& error) {
  // Errors have no numbers; whoever listens ends them with the system's text.
  static const std::string in_use = system_error("", EADDRINUSE).message;
  return error.message.ends_with(in_use);
}

Error with_listening_advice(Error error, std::string_view setting) {
  if (!is_taken(error)) return error;
  // A path may also be taken by what is no socket, which nobody can end.
  const bool path = error.message.find(":///") != std::string::npos;
  error.message +=
      path ? "; another process listens there, or a file has that name: end or remove that"
           : "; another process listens there: end that";
  error.message += ", or name another address with ";
  error.message += setting;
  return error;
}

}  // namespace flyt
