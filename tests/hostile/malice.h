// Malice: fields of commands with what hurts most, and the seeds of tests that choose by chance.
//   FLYT_SIM_SEEDS=N     FLYT_SIM_FIRST_SEED=S
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "wire/fields.h"
#include "wire/handle.h"

namespace flyt::sim {

// How many; `by_itself` unless the environment says otherwise.
inline int rounds(int by_itself) {
  const char* given = std::getenv("FLYT_SIM_SEEDS");
  return given ? std::min(std::atoi(given), 100000) : by_itself;
}

inline std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_SIM_FIRST_SEED");
  static const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : random_seed();
  return seed;
}

// What hurts most. What lists and texts look at lives here.
class Malice {
 public:
  explicit Malice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t number() {
    constexpr std::uint64_t kNasty[] = {0,
                                        1,
                                        2,
                                        7,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        std::uint64_t{1} << 63,
                                        ~std::uint64_t{0},
                                        ~std::uint64_t{0} - 4095,
                                        0x400000,
                                        0x300000000000,
                                        0x300000000000 + 4096,
                                        0x3fffffffffff,
                                        0x340000000000,
                                        0x380000000000,
                                        0x7fff00000000};
    if (random_.one_in(4)) return random_.next();
    if (random_.one_in(4)) return random_.below(64);
    return kNasty[random_.below(std::size(kNasty))];
  }
  std::uint64_t handle() {
    if (random_.one_in(3)) return number();
    const auto kind = static_cast<wire::HandleKind>(1 + random_.below(wire::kHandleKindMax));
    const auto generation = static_cast<std::uint32_t>(1 + random_.below(2));
    const auto index = static_cast<std::uint32_t>(1 + random_.below(4));
    return wire::Handle::make(kind, generation, index).value;
  }
  Bytes bytes(std::size_t limit, std::size_t unit = 1) {
    const std::size_t count = random_.below(std::min<std::size_t>(limit, 64) + 1);
    auto& made = kept_.emplace_back(count * unit);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random_.next());
    return made;
  }
  bool coin() { return random_.one_in(2); }
  Random& random() { return random_; }

 private:
  Random random_;
  std::deque<std::vector<std::byte>> kept_;
};

struct Fill {
  Malice& malice;

  template <class T>
  requires std::is_pointer_v<T>
  void operator()(const char*, T& value) { value = static_cast<T>(pointer_at(malice.handle())); }
  template <class T>
  requires(!std::is_pointer_v<T> && Plain<T>) void operator()(const char*, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = malice.coin();
    } else if constexpr (sizeof(T) <= 8) {
      const std::uint64_t number = malice.number();
      std::memcpy(static_cast<void*>(&value), &number, sizeof(T));
    } else {
      const Bytes noise = malice.bytes(64, sizeof(T));
      const std::size_t size = std::min(noise.size(), sizeof(T));
      if (size != 0) std::memcpy(static_cast<void*>(&value), noise.data(), size);
    }
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (malice.coin()) (*this)(name, value.emplace());
  }
  void operator()(const char*, std::string_view& value, std::uint32_t limit) {
    value = text_of(malice.bytes(limit));
  }
  void operator()(const char*, Bytes& value, std::uint32_t limit) { value = malice.bytes(limit); }
  template <class T>
  void operator()(const char*, wire::List<T>& value, std::uint32_t limit) {
    value = wire::List<T>::from_bytes(malice.bytes(limit, sizeof(T)));
  }
};

}  // namespace flyt::sim
