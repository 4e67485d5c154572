#include "tests/recovery/own_reach.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "tests/recovery/survivor_code.h"

namespace flyt::tests {
namespace {

constexpr std::size_t kMappedBytes = 2 * kMiB;
constexpr CUmemLocation kHere{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
constexpr CUmemLocation kThere{CU_MEM_LOCATION_TYPE_DEVICE, {1}};

std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

}  // namespace

std::string OwnReach::answer(const std::string& what) {
  if (module_ == nullptr) {
    CUresult result = cu_.cuModuleLoadData(&module_, kPtx);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&kernel_, module_, "add_one");
    if (result == CUDA_SUCCESS) result = cu_.cuCtxGetCurrent(&here_);
    if (result != CUDA_SUCCESS) return "code " + text(result);
  }
  if (what == "managed") return text(make_managed());
  if (what == "registered") return text(make_registered());
  if (what == "pinned") return text(make_pinned());
  if (what == "peer") return text(make_peer());
  if (what == "pool") return text(make_pool());
  if (what == "mapped") return text(make_mapped());
  if (what == "close") return text(close());
  if (what == "launch") return text(launch());
  if (what == "sync") return text(sync());
  if (what == "end") return text(end());
  if (what == "check") return check();
  if (what != "use") return "unknown";
  write();
  CUresult result = launch();
  if (result == CUDA_SUCCESS) result = sync();
  return result == CUDA_SUCCESS ? check() : text(result);
}

void OwnReach::add(std::uint32_t* host, CUdeviceptr address) {
  Place place{host, address, std::vector<std::uint32_t>(kWords, 0)};
  if (host != nullptr) std::fill_n(host, kWords, 0U);
  if (host == nullptr) cu_.cuMemsetD32_v2(address, 0, kWords);
  places_.push_back(std::move(place));
}

CUresult OwnReach::make_managed() {
  CUdeviceptr address = 0;
  const CUresult result = cu_.cuMemAllocManaged(&address, kWords * 4, CU_MEM_ATTACH_GLOBAL);
  if (result == CUDA_SUCCESS) add(static_cast<std::uint32_t*>(pointer_at(address)), address);
  return result;
}

CUresult OwnReach::make_registered() {
  registered_.resize(kWords);
  CUresult result =
      cu_.cuMemHostRegister_v2(registered_.data(), kWords * 4, CU_MEMHOSTREGISTER_DEVICEMAP);
  CUdeviceptr address = 0;
  if (result == CUDA_SUCCESS) {
    result = cu_.cuMemHostGetDevicePointer_v2(&address, registered_.data(), 0);
  }
  if (result == CUDA_SUCCESS) add(registered_.data(), address);
  return result;
}

CUresult OwnReach::make_pinned() {
  void* host = nullptr;
  CUdeviceptr address = 0;
  CUresult result = cu_.cuMemHostAlloc(&host, kWords * 4, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = cu_.cuMemHostGetDevicePointer_v2(&address, host, 0);
  pinned_ = host;
  if (result == CUDA_SUCCESS) add(static_cast<std::uint32_t*>(host), address);
  return result;
}

CUresult OwnReach::make_peer() {
  CUresult result = cu_.cuDevicePrimaryCtxRetain(&there_, 1);
  if (result == CUDA_SUCCESS) result = cu_.cuCtxEnablePeerAccess(there_, 0);
  CUdeviceptr address = 0;
  cu_.cuCtxSetCurrent(there_);
  if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&address, kWords * 4);
  if (result == CUDA_SUCCESS) add(nullptr, address);
  if (result == CUDA_SUCCESS) result = sync();
  cu_.cuCtxSetCurrent(here_);
  return result;
}

CUresult OwnReach::make_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = kThere;
  CUresult result = cu_.cuDevicePrimaryCtxRetain(&there_, 1);
  if (result == CUDA_SUCCESS) result = cu_.cuMemPoolCreate(&pool_, &properties);
  const CUmemAccessDesc open{kHere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (result == CUDA_SUCCESS) result = cu_.cuMemPoolSetAccess(pool_, &open, 1);
  CUdeviceptr address = 0;
  cu_.cuCtxSetCurrent(there_);
  if (result == CUDA_SUCCESS) {
    result = cu_.cuMemAllocFromPoolAsync(&address, kWords * 4, pool_, nullptr);
  }
  if (result == CUDA_SUCCESS) add(nullptr, address);
  if (result == CUDA_SUCCESS) result = sync();
  cu_.cuCtxSetCurrent(here_);
  return result;
}

CUresult OwnReach::make_mapped() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = kThere;
  CUmemGenericAllocationHandle allocation = 0;
  CUdeviceptr address = 0;
  CUresult result = cu_.cuMemCreate(&allocation, kMappedBytes, &properties, 0);
  if (result == CUDA_SUCCESS) {
    result = cu_.cuMemAddressReserve(&address, kMappedBytes, 0, 0, 0);
  }
  if (result == CUDA_SUCCESS) result = cu_.cuMemMap(address, kMappedBytes, 0, allocation, 0);
  const CUmemAccessDesc open[] = {{kHere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                  {kThere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  if (result == CUDA_SUCCESS) result = cu_.cuMemSetAccess(address, kMappedBytes, open, 2);
  if (result == CUDA_SUCCESS) add(nullptr, address);
  return result == CUDA_SUCCESS ? sync() : result;
}

// Kernels of the first device reach the other one's memory no more.
CUresult OwnReach::close() {
  const CUmemAccessDesc none{kHere, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return pool_ != nullptr ? cu_.cuMemPoolSetAccess(pool_, &none, 1)
                          : cu_.cuCtxDisablePeerAccess(there_);
}

CUresult OwnReach::end() {
  CUresult result = CUDA_SUCCESS;
  for (const Place& place : std::exchange(places_, {})) {
    if (result != CUDA_SUCCESS) break;
    if (place.host == registered_.data()) {
      result = cu_.cuMemHostUnregister(registered_.data());
    } else if (place.host == pinned_) {
      result = cu_.cuMemFreeHost(pinned_);
    } else {
      result = cu_.cuMemFree_v2(place.address);
    }
  }
  return result;
}

CUresult OwnReach::launch() {
  for (Place& place : places_) {
    void* parameters[] = {&place.address};
    const CUresult result =
        cu_.cuLaunchKernel(kernel_, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
    if (result != CUDA_SUCCESS) return result;
    for (std::uint32_t& word : place.words) ++word;
  }
  return CUDA_SUCCESS;
}

void OwnReach::write() {
  for (Place& place : places_) {
    if (place.host == nullptr) continue;
    for (std::uint32_t i = 0; i < kWords; ++i) {
      place.host[i] = place.words[i] = seed_++ * 2654435761U;
    }
  }
}

std::string OwnReach::check() {
  for (const Place& place : places_) {
    std::vector<std::uint32_t> found(kWords);
    if (place.host != nullptr) {
      std::copy_n(place.host, kWords, found.begin());
    } else {
      const CUresult result = cu_.cuMemcpyDtoH_v2(found.data(), place.address, kWords * 4);
      if (result != CUDA_SUCCESS) return "copying " + text(result);
    }
    if (found != place.words) {
      return place.host != nullptr ? "host memory is wrong" : "another device's memory is wrong";
    }
  }
  return "ok";
}

}  // namespace flyt::tests
