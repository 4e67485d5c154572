#include "softgpu/driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/assert.h"
#include "softgpu/capture.h"
#include "softgpu/graph_exec.h"
#include "softgpu/memory/managed_memory.h"

namespace flyt::softgpu {

namespace {

// "GPU-" and the first hexadecimal digits of the UUID, as few as the user likes.
bool names(std::string_view text, unsigned unit) {
  constexpr std::string_view kPrefix = "GPU-";
  if (!text.starts_with(kPrefix) || text.size() == kPrefix.size()) return false;
  const CUuuid uuid = Device::uuid_of(unit);
  std::string full(kPrefix);
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) full += '-';
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    full += kDigits[byte >> 4U];
    full += kDigits[byte & 15U];
  }
  return full.starts_with(text);
}

}  // namespace

std::vector<unsigned> visible_units(const Settings& settings) {
  std::vector<unsigned> units;
  if (!settings.visible) {
    for (unsigned unit = 0; unit < settings.devices; ++unit) units.push_back(unit);
    return units;
  }
  std::string_view rest = *settings.visible;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view text = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    unsigned unit = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), unit);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
      for (unit = 0; unit < settings.devices && !names(text, unit);) ++unit;
    }
    const bool twice = std::find(units.begin(), units.end(), unit) != units.end();
    if (unit >= settings.devices || twice) break;
    units.push_back(unit);
  }
  return units;
}

Driver::Driver(const Settings& settings)
    : settings_(settings),
      compile_cache_(cuda::compile_cache_options()),
      contexts_(HandleKind::kContext),
      green_contexts_(HandleKind::kGreenContext),
      resource_descriptions_(HandleKind::kResourceDescription),
      streams_(HandleKind::kStream),
      events_(HandleKind::kEvent),
      modules_(HandleKind::kModule),
      functions_(HandleKind::kFunction),
      libraries_(HandleKind::kLibrary),
      kernels_(HandleKind::kKernel),
      linkers_(HandleKind::kLink),
      link_text_bytes_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      pools_(HandleKind::kPool),
      allocations_(HandleKind::kAllocation),
      arrays_(HandleKind::kArray),
      mipmapped_arrays_(HandleKind::kMipmappedArray),
      textures_(HandleKind::kTexture),
      surfaces_(HandleKind::kSurface),
      texture_references_(HandleKind::kTextureReference),
      surface_references_(HandleKind::kSurfaceReference) {
  if (settings.streams_return) streams_.let_return();
  std::vector<ptx::MemoryMap*> maps;
  for (const unsigned unit : visible_units(settings)) {
    const auto number = static_cast<int>(devices_.size());
    devices_.push_back(std::make_unique<Device>(number, unit, settings));
    maps.push_back(&devices_.back()->map());
  }
  regions_ = std::make_unique<Regions>(std::move(maps));
  for (const auto& device : devices_) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->number()};
    auto pool = std::make_shared<Pool>(*device, *regions_, props);
    const std::uint64_t handle = pools_.add(pool);
    pool->set_handle(handle);
    device->set_default_pool(handle);
    device->set_current_pool(handle);
    graph_memory_.push_back(std::make_unique<GraphMemory>(*device, *regions_));
  }
}

Device* Driver::device(int number) const {
  if (number < 0 || number >= device_count()) return nullptr;
  return devices_[static_cast<std::size_t>(number)].get();
}

std::shared_ptr<Context> Driver::make_context(Device& device, unsigned flags, bool primary,
                                              std::uint64_t handle) {
  auto context = std::make_shared<Context>(device, workers_, flags, primary, ++next_context_);
  if (handle == 0) handle = contexts_.reserve();
  // Nobody finds it before it knows its own handle.
  context->set_handle(handle);
  contexts_.put(handle, context);
  return context;
}

std::shared_ptr<Partition> Driver::make_green(const std::shared_ptr<Context>& context,
                                              std::shared_ptr<const SmSet> sms) {
  const Partition::Names names{context->handle(), contexts_.reserve(), green_contexts_.reserve(),
                               ++next_context_};
  auto green = context->add_green(names, std::move(sms));
  // To all but what runs in streams it is the context itself.
  contexts_.put(names.handle, context);
  green_contexts_.put(names.green, green);
  return green;
}

void Driver::end_green(const std::shared_ptr<Partition>& green) {
  const auto context = contexts_.take(green->names().handle);
  if (context != nullptr) context->end_green(green);
}

void Driver::end_context(Context& context) {
  const std::uint64_t handle = context.handle();
  // Who waits for an event looks at it, which goes now.
  FLYT_ASSERT(!settings_.event_waits_late || context.event_waits().load() == 0);
  contexts_.take_if([&context](const Context& other) { return &other == &context; });
  context.end_greens();
  if (graphs_.capturing()) abandon_captures(*this, context);
  context.end();
  end_graphs(*this, context);
  output_.flush();
  streams_.take_if([handle](const Stream& stream) { return stream.context() == handle; });
  events_.take_if([handle](const Event& event) { return event.context() == handle; });
  functions_.take_if(
      [handle](const Function& function) { return function.module()->context() == handle; });
  modules_.take_if([handle](const Module& module) { return module.context() == handle; });
  arrays_.take_if([handle](const Array& array) { return array.context() == handle; });
  mipmapped_arrays_.take_if(
      [handle](const MipmappedArray& array) { return array.context() == handle; });
  textures_.take_all_of(handle);
  surfaces_.take_all_of(handle);
  texture_references_.take_if(
      [handle](const TextureReference& reference) { return reference.context() == handle; });
  surface_references_.take_if(
      [handle](const SurfaceReference& reference) { return reference.context() == handle; });
  for (const Region& region : regions_->select([handle](const Region& candidate) {
         return candidate.context == handle &&
                (candidate.kind == RegionKind::kDevice || candidate.kind == RegionKind::kHost ||
                 candidate.kind == RegionKind::kRegistered ||
                 candidate.kind == RegionKind::kManaged);
       })) {
    if (!regions_->remove(region.base, region.kind)) continue;
    if (region.kind == RegionKind::kDevice) {
      device(region.device)->memory().release(region.base, region.size);
    } else if (region.kind == RegionKind::kHost) {
      ::munmap(pointer_at(region.base), region.size);
    } else if (region.kind == RegionKind::kManaged) {
      end_managed(region);
    }
  }
}

void Driver::end_managed(const Region& region) {
  managed().remove(region.base, region.size);
  unmap_managed(region.base, region.size);
}

void Driver::trim_pools(Device& device) {
  for (const std::uint64_t handle : {device.default_pool(), device.current_pool()}) {
    if (const auto pool = pools_.find(handle)) pool->trim(0);
  }
}

std::optional<std::uint64_t> Driver::allocate(Device& device, std::uint64_t bytes) {
  if (const auto address = device.memory().allocate(bytes)) return address;
  trim_pools(device);
  return device.memory().allocate(bytes);
}

bool Driver::charge(Device& device, std::uint64_t bytes) {
  if (device.memory().charge(bytes)) return true;
  trim_pools(device);
  return device.memory().charge(bytes);
}

bool Driver::release_graph_memory(std::uint64_t address) {
  const auto region = regions_->find(address);
  return region && region->kind == RegionKind::kGraph && region->base == address &&
         graph_memory(region->device).release(address);
}

bool Driver::unclaim_graph_memory(std::uint64_t address) {
  const auto region = regions_->find(address);
  return region && region->kind == RegionKind::kGraph &&
         graph_memory(region->device).unclaim(address);
}

void Driver::add_region(RegionKind kind, Context& context, std::uint64_t base, std::uint64_t size) {
  Region region;
  region.kind = kind;
  region.base = base;
  region.size = size;
  region.device = context.device().number();
  region.context = context.handle();
  region.readers = device_set(region.device);
  region.writers = region.readers;
  regions_->add(region);
}

CUresult Driver::library_module(Context& context, Library& library,
                                std::shared_ptr<Module>* module) {
  const Lock lock(library.mutex());
  std::uint64_t& handle = library.modules()[context.handle()];
  if (handle != 0) *module = modules_.find(handle);
  if (handle != 0 && *module != nullptr) return CUDA_SUCCESS;
  *module = Module::load(library.program(), context, *regions_, &library.managed());
  if (*module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  (*module)->set_of_library();
  handle = modules_.add(*module);
  (*module)->set_handle(handle);
  return CUDA_SUCCESS;
}

std::uint64_t Driver::function_of(const std::shared_ptr<Module>& module, std::uint32_t kernel,
                                  const FunctionSettings* settings) {
  return module->function(kernel, [&] {
    const Program& program = module->program();
    const FunctionSettings own =
        settings != nullptr
            ? *settings
            : default_settings(program.function(kernel), ptx::kernel_info(*program.code, kernel),
                               module->device());
    return functions_.add(std::make_shared<Function>(module, kernel, own));
  });
}

CUresult Driver::kernel_function(Context& context, Kernel& kernel, std::uint64_t* function) {
  std::shared_ptr<Module> module;
  if (const CUresult bad = library_module(context, *kernel.library(), &module);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  const auto settings = kernel.settings(context.device().number());
  *function = function_of(module, kernel.kernel(), settings ? &*settings : nullptr);
  return CUDA_SUCCESS;
}

ImageBindings Driver::bindings_of(const Module& module) const {
  ImageBindings bindings;
  for (const std::uint64_t handle : module.references()) {
    if (const auto texture = texture_references_.find(handle)) {
      bindings.textures.emplace(texture->address(), texture->texture());
    } else if (const auto surface = surface_references_.find(handle)) {
      bindings.surfaces.emplace(surface->address(), surface->surface());
    }
  }
  return bindings;
}

void Driver::unload(Module& module) {
  for (const std::uint64_t handle : module.references()) {
    texture_references_.take(handle);
    surface_references_.take(handle);
  }
  for (const std::uint64_t handle : module.functions()) functions_.take(handle);
  modules_.take(module.handle());
}

void Driver::synchronised() {
  output_.flush();
  for (const auto& device : devices_) {
    if (const auto pool = pools_.find(device->current_pool())) pool->trim_to_threshold();
  }
}

}  // namespace flyt::softgpu
