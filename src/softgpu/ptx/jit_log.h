// JitLog: what the assembler has to say, in the shape the driver's JIT log buffers take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace flyt::ptx {

// Collects lines such as "ptxas error   : line 12: Unknown symbol 'foo'". Not thread-safe.
class JitLog {
 public:
  void error(std::uint32_t line, std::string_view message);
  void info(std::string_view message);

  const std::string& errors() const { return errors_; }
  const std::string& infos() const { return infos_; }

 private:
  static constexpr std::size_t kLogBytesMax = 64 * 1024;
  static void append(std::string& log, std::string_view text);

  std::string errors_;
  std::string infos_;
};

}  // namespace flyt::ptx
