#include "server/recovery/variable_places.h"

#include <algorithm>
#include <string>
#include <utility>

namespace flyt::server {
namespace {

constexpr std::uint64_t kChunk = VariablePlaces::kChunkBytes;

std::string filler_code(std::uint64_t bytes) {
  return ".version 7.0\n.target sm_75\n.address_size 64\n"
         ".visible .global .align 16 .b8 filler[" +
         std::to_string(bytes) + "];\n";
}

// Bytes that two ranges have in common.
template <class One, class Other>
std::uint64_t common(const One& one, const Other& other) {
  const std::uint64_t from = std::max(one.base, other.base);
  const std::uint64_t to = std::min(one.base + one.bytes, other.base + other.bytes);
  return from < to ? to - from : 0;
}

}  // namespace

bool VariablePlaces::plan(const std::vector<SavedVariable>& saved) {
  if (planned_) return !places_.empty();
  planned_ = true;
  for (const SavedVariable& variable : saved) {
    if (plan_one(variable)) continue;
    places_.clear();
    break;
  }
  outcome_.wanted = places_.size();
  return !places_.empty();
}

bool VariablePlaces::plan_one(const SavedVariable& variable) {
  // No such variable was ever saved.
  constexpr std::uint64_t kBytesOfAll = Snapshot::kContentsBytesMax;
  const std::uint64_t address = variable.address;
  if (address == 0 || variable.bytes > kBytesOfAll ||
      address > ~std::uint64_t{0} - kBytesOfAll - kChunk) {
    return false;
  }
  const std::uint64_t base = address / kChunk * kChunk;
  const std::uint64_t end = address + std::max<std::uint64_t>(variable.bytes, 1);
  Place place{variable.context, variable.owner, true, base,
              (end - base + kChunk - 1) / kChunk * kChunk};
  for (Place& known : places_) {
    if (known.context != place.context) continue;
    place.first = false;
    if (common(known, place) == 0) continue;
    // What reaches from one chunk into the next is in one range with both.
    const std::uint64_t last = std::max(known.base + known.bytes, place.base + place.bytes);
    known.base = std::min(known.base, place.base);
    known.bytes = last - known.base;
    return true;
  }
  if (places_.size() == kPlacesMax) return false;
  places_.push_back(place);
  return true;
}

bool VariablePlaces::held(const Place& place) const {
  std::uint64_t bytes = 0;
  for (const Filler& filler : fillers_) bytes += common(place, filler);
  return bytes == place.bytes;
}

bool VariablePlaces::missing(std::uint32_t context) const {
  for (const Place& place : places_) {
    if (place.context == context && !place.aimed && !held(place)) return true;
  }
  return false;
}

const VariablePlaces::Filler* VariablePlaces::load(std::uint32_t context, std::uint64_t bytes) {
  if (outcome_.modules == kModulesMax || bytes_ + bytes > bytes_max_) return nullptr;
  Filler filler{nullptr, context, 0, bytes};
  if (driver_.cuModuleLoadData(&filler.module, filler_code(bytes).c_str()) != CUDA_SUCCESS) {
    return nullptr;
  }
  ++outcome_.modules;
  CUdeviceptr base = 0;
  std::size_t size = 0;
  if (driver_.cuModuleGetGlobal_v2(&base, &size, filler.module, "filler") != CUDA_SUCCESS ||
      base % kChunk != 0) {
    driver_.cuModuleUnload(filler.module);
    return nullptr;
  }
  filler.base = base;
  bytes_ += bytes;
  fillers_.push_back(filler);
  return &fillers_.back();
}

template <class Goes>
void VariablePlaces::unload_if(Goes&& goes) {
  std::uint64_t unloaded = 0;
  std::erase_if(fillers_, [&](const Filler& filler) {
    if (!goes(filler)) return false;
    // In a context that is gone it is gone, too.
    if (enter_(filler.context) == CUDA_SUCCESS) driver_.cuModuleUnload(filler.module);
    unloaded += filler.bytes;
    return true;
  });
  bytes_ -= unloaded;
}

void VariablePlaces::hold(std::uint32_t context, const std::vector<SavedVariable>& saved) {
  const Lock lock(mutex_);
  if (ended_ || !plan(saved) || !missing(context) || enter_(context) != CUDA_SUCCESS) return;
  std::size_t free = 0;
  std::size_t total = 0;
  if (driver_.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return;
  bytes_max_ = std::min<std::uint64_t>(kBytesMax, bytes_ + free / 2);
  bool room = true;
  while (room && missing(context)) room = load(context, kChunk) != nullptr;
  // There is something else, or they are out of reach.
  std::vector<Place> good;
  for (const Place& place : places_) {
    if (place.context != context || place.aimed || held(place)) good.push_back(place);
  }
  places_ = std::move(good);
  if (places_.empty()) return end();
  holding_.store(true);
}

bool VariablePlaces::aim(std::uint32_t context, std::uint64_t code) {
  if (!holding()) return false;
  const Lock lock(mutex_);
  bool first_of_all = !std::exchange(aimed_, true);
  bool any = false;
  bool good = true;
  for (Place& place : places_) {
    if (context != 0 && place.context != context) continue;
    const bool first = place.first && (context != 0 || std::exchange(first_of_all, false));
    if (place.aimed || !held(place) || !(first || place.owner == code)) continue;
    any = true;
    good = good && aim_at(place);
  }
  if (!any) return false;
  // Found ones stay taken until all are: those that one module needs are free together.
  for (const Place& place : places_) {
    if (!place.aimed) continue;
    unload_if([&](const Filler& filler) {
      return filler.base == place.base && filler.bytes == place.bytes;
    });
  }
  // The rest would be as hard to find.
  if (!good) end();
  return true;
}

bool VariablePlaces::aim_at(Place& place) {
  place.aimed = true;
  if (enter_(place.context) != CUDA_SUCCESS) return true;
  unload_if([&](const Filler& filler) { return common(place, filler) != 0; });
  if (enter_(place.context) != CUDA_SUCCESS) return true;
  const Filler* probe = nullptr;
  do {
    probe = load(place.context, place.bytes);
    if (probe == nullptr) return false;
  } while (probe->base != place.base);
  ++outcome_.found;
  return true;
}

void VariablePlaces::forget_context(std::uint32_t context) {
  if (!holding()) return;
  const Lock lock(mutex_);
  unload_if([context](const Filler& filler) { return filler.context == context; });
  std::erase_if(places_, [context](const Place& place) { return place.context == context; });
}

void VariablePlaces::end() {
  ended_ = true;
  holding_.store(false);
  unload_if([](const Filler&) { return true; });
  places_.clear();
}

VariablePlaces::Outcome VariablePlaces::let_go() {
  const Lock lock(mutex_);
  end();
  return std::exchange(outcome_, {});
}

}  // namespace flyt::server
