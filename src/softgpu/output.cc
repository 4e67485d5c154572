#include "softgpu/output.h"

#include <cstdio>

namespace flyt::softgpu {
namespace {

// More than this does not wait for anybody.
constexpr std::size_t kHeldBytesMax = 8 * 1024 * 1024;

void show(std::string& text, FILE* file) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), file);
  text.clear();
}

}  // namespace

void Output::print(std::string_view text) {
  const Lock lock(mutex_);
  text_.append(text);
  if (text_.size() > kHeldBytesMax) show(text_, stdout);
}

void Output::complain(std::string_view text) {
  const Lock lock(mutex_);
  if (complained_bytes_ + text.size() > kHeldBytesMax) return;
  complained_bytes_ += text.size();
  std::string line(text);
  if (!text.ends_with('\n')) line.push_back('\n');
  // At once: whoever learns of the fault may ask for nothing more.
  show(line, stderr);
}

void Output::flush() {
  const Lock lock(mutex_);
  show(text_, stdout);
}

}  // namespace flyt::softgpu
