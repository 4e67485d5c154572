// Any bytes as PTX, several texts with zeros between them as what is linked: they are refused or
// executed within limits, never more.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "softgpu/interpreter/grid.h"

namespace {

using namespace flyt::ptx;

class Nothing final : public Environment {
 public:
  void print(std::string_view) override {}
  void assertion(std::string_view) override {}
  std::uint64_t allocate(std::uint64_t) override { return 0; }
  void release(std::uint64_t) override {}
};

// What a MemoryMap tells apart: memory around a smaller piece counts as valid, too.
struct alignas(64) Granule {
  std::array<std::byte, 64> bytes;
};

constexpr std::uint64_t kVariableBytesMax = 1u << 20;
constexpr std::size_t kMemoryBytes = 64u << 10;

void run_all(const std::shared_ptr<const Program>& program) {
  const auto& variables = module_of(*program).variables();
  MemoryMap memory;
  std::vector<std::vector<Granule>> storage;
  std::vector<std::uint64_t> addresses;
  for (const Variable& variable : variables) {
    addresses.push_back(0);
    if (!Image::takes_memory(variable) || variable.size > kVariableBytesMax) continue;
    storage.emplace_back(variable.size / sizeof(Granule) + 1);
    addresses.back() = flyt::address_of(storage.back().data());
    memory.add(addresses.back(), storage.back().size() * sizeof(Granule));
  }
  storage.emplace_back(kMemoryBytes / sizeof(Granule));
  const std::uint64_t buffer = flyt::address_of(storage.back().data());
  memory.add(buffer, kMemoryBytes);
  const auto image = Image::load(program, addresses);
  Nothing environment;
  for (std::uint32_t i = 0; i < module_of(*program).kernels().size() && i < 4; ++i) {
    Launch launch;
    launch.block = {40, 1, 1};
    launch.grid = {2, 1, 1};
    launch.dynamic_shared_bytes = 256;
    launch.instructions_max = 20000;
    // Every parameter may be a pointer.
    launch.parameters.resize(256);
    for (std::size_t at = 0; at < launch.parameters.size(); at += 8) {
      std::memcpy(launch.parameters.data() + at, &buffer, 8);
    }
    run(image, i, launch, memory, environment);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kTextsMax = 8;
  std::string_view rest = flyt::text_of(flyt::bytes_at(data, size));
  JitLog log;
  std::vector<std::shared_ptr<const Module>> modules;
  do {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    auto module = parse(rest.substr(0, end), &log);
    if (!module) return 0;
    modules.push_back(std::move(*module));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  } while (!rest.empty() && modules.size() < kTextsMax);
  auto whole = link(modules, &log);
  if (!whole) return 0;
  auto program = translate(*whole, &log);
  if (program) run_all(*program);
  return 0;
}
