#include "base/listening.h"

#include <cerrno>

namespace flyt {

Error with_listening_advice(Error error, std::string_view setting) {
  // Errors have no numbers; whoever listens ends them with the system's text.
  static const std::string in_use = system_error("", EADDRINUSE).message;
  if (!error.message.ends_with(in_use)) return error;
  error.message += "; another process listens there: end that, or name another address with ";
  error.message += setting;
  return error;
}

}  // namespace flyt
