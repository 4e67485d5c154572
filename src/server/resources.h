// Resources: the driver's descriptions of a device's resources, by numbers that clients may hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::server {

// The driver's struct may hold addresses of its own, so a client gets a number instead; equal
// structs have one number. Nobody says when one is not needed any more: the oldest are forgotten
// when there are too many. Safe from any thread.
class Resources {
 public:
  // More than one split can make.
  static constexpr std::size_t kResourcesMax = 16384;

  // 0 for what is no multiprocessors.
  std::uint64_t number_of(const CUdevResource& resource) EXCLUDES(mutex_);
  std::optional<CUdevResource> find(std::uint64_t number) const EXCLUDES(mutex_);

 private:
  using Content = std::array<std::byte, sizeof(CUdevResource)>;

  mutable Mutex mutex_;
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Content> contents_ GUARDED_BY(mutex_);
  std::map<Content, std::uint64_t> numbers_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
