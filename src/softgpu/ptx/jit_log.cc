#include "softgpu/ptx/jit_log.h"

namespace flyt::ptx {

void JitLog::error(std::uint32_t line, std::string_view message) {
  std::string text = "ptxas fatal   : ";
  if (line != 0) text = "ptxas error   : line " + std::to_string(line) + ": ";
  text += message;
  append(errors_, text);
}

void JitLog::info(std::string_view message) { append(infos_, message); }

void JitLog::append(std::string& log, std::string_view text) {
  if (log.size() + text.size() + 1 > kLogBytesMax) return;
  log += text;
  log += '\n';
}

}  // namespace flyt::ptx
