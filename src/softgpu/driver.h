// Driver: everything that this process has of software GPUs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/counted_bytes.h"
#include "cuda/async_callbacks.h"
#include "cuda/compile_cache.h"
#include "cuda/context_storage.h"
#include "cuda/core_dump.h"
#include "cuda/driver_log.h"
#include "cuda/types.h"
#include "softgpu/array.h"
#include "softgpu/context.h"
#include "softgpu/device.h"
#include "softgpu/event.h"
#include "softgpu/graph_memory.h"
#include "softgpu/graph_store.h"
#include "softgpu/handle_table.h"
#include "softgpu/image_table.h"
#include "softgpu/memory/allocation.h"
#include "softgpu/memory/pool.h"
#include "softgpu/memory/regions.h"
#include "softgpu/module.h"
#include "softgpu/output.h"
#include "softgpu/partition.h"
#include "softgpu/settings.h"
#include "softgpu/stream.h"
#include "softgpu/texture.h"
#include "softgpu/workers.h"

namespace flyt::softgpu {

inline constexpr int kDriverVersion = 13000;

// What a green context is to be made of.
struct ResourceDescription {
  int device = 0;
  std::shared_ptr<const SmSet> sms;
};

// The units that programs see, in their order: all of them, or those on CUDA_VISIBLE_DEVICES up to
// the first one that there is not or that is named twice.
std::vector<unsigned> visible_units(const Settings& settings);

// One for the process, made by cuInit, never destroyed: programs call their driver until the very
// end. Safe from any thread.
class Driver {
 public:
  explicit Driver(const Settings& settings);

  const Settings& settings() const { return settings_; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  // Null for a number that is no device's.
  Device* device(int number) const;

  Workers& workers() { return workers_; }
  Regions& regions() { return *regions_; }
  Output& output() { return output_; }
  cuda::ContextStorage& storage() { return storage_; }
  cuda::CompileCache& compile_cache() { return compile_cache_; }
  cuda::CoreDumpSettings& core_dumps() { return core_dumps_; }
  cuda::DriverLog& driver_log() { return driver_log_; }
  cuda::AsyncCallbacks& async_callbacks() { return async_callbacks_; }

  cuda::ManagedRanges& managed() { return regions_->managed(); }

  HandleTable<Context>& contexts() { return contexts_; }
  HandleTable<Partition>& green_contexts() { return green_contexts_; }
  HandleTable<ResourceDescription>& resource_descriptions() { return resource_descriptions_; }
  HandleTable<Stream>& streams() { return streams_; }
  HandleTable<Event>& events() { return events_; }
  HandleTable<Module>& modules() { return modules_; }
  HandleTable<Function>& functions() { return functions_; }
  HandleTable<Library>& libraries() { return libraries_; }
  HandleTable<Kernel>& kernels() { return kernels_; }
  HandleTable<Linker>& linkers() { return linkers_; }
  // Of the texts of all linkers.
  const CountedBytes::Total& link_text_bytes() const { return link_text_bytes_; }
  HandleTable<Pool>& pools() { return pools_; }
  HandleTable<Allocation>& allocations() { return allocations_; }
  GraphStore& graphs() { return graphs_; }
  GraphMemory& graph_memory(int device) { return *graph_memory_[static_cast<std::size_t>(device)]; }
  // What an allocation node put there is free; false where nothing of one lives.
  bool release_graph_memory(std::uint64_t address);
  // It shall be freed, by something that was just asked for; false where nothing will live there.
  bool unclaim_graph_memory(std::uint64_t address);
  HandleTable<Array>& arrays() { return arrays_; }
  HandleTable<MipmappedArray>& mipmapped_arrays() { return mipmapped_arrays_; }
  ImageTable<TextureObject>& textures() { return textures_; }
  ImageTable<SurfaceObject>& surfaces() { return surfaces_; }
  HandleTable<TextureReference>& texture_references() { return texture_references_; }
  HandleTable<SurfaceReference>& surface_references() { return surface_references_; }

  // Virtual memory management: reserved address ranges, and the counts of allocations.
  Mutex& vmm_mutex() RETURN_CAPABILITY(vmm_mutex_) { return vmm_mutex_; }
  std::map<std::uint64_t, std::uint64_t>& reservations() REQUIRES(vmm_mutex_) {
    return reservations_;
  }

  // `handle`: one that an earlier context had, or 0.
  std::shared_ptr<Context> make_context(Device& device, unsigned flags, bool primary,
                                        std::uint64_t handle);
  // A green context of a device, whose primary context is `context`.
  std::shared_ptr<Partition> make_green(const std::shared_ptr<Context>& context,
                                        std::shared_ptr<const SmSet> sms);
  // Ends a green context that is in no table of its own any more.
  void end_green(const std::shared_ptr<Partition>& green);
  // Ends a context that is in no table any more, and all that belongs to it.
  void end_context(Context& context);

  // Device memory for `bytes`, taking back what pools hold in reserve if need be.
  std::optional<std::uint64_t> allocate(Device& device, std::uint64_t bytes);
  // Charges the device likewise.
  bool charge(Device& device, std::uint64_t bytes);
  // Gives back memory of cuMemAllocManaged that the regions no longer know.
  void end_managed(const Region& region);
  // Adds a region of the device's own memory, for it to read and write.
  void add_region(RegionKind kind, Context& context, std::uint64_t base, std::uint64_t size);

  // The function of a library's kernel in a context, which makes the library's module there.
  CUresult kernel_function(Context& context, Kernel& kernel, std::uint64_t* function);
  CUresult library_module(Context& context, Library& library, std::shared_ptr<Module>* module);
  std::uint64_t function_of(const std::shared_ptr<Module>& module, std::uint32_t kernel,
                            const FunctionSettings* settings);
  // What the references of a module are bound to now.
  ImageBindings bindings_of(const Module& module) const;
  // Forgets a module and its functions.
  void unload(Module& module);

  // A number for a launch: %gridid.
  std::uint64_t next_grid() { return ++next_grid_; }

  // What a synchronising call does after its wait.
  void synchronised();

 private:
  void trim_pools(Device& device);

  const Settings settings_;
  std::vector<std::unique_ptr<Device>> devices_;
  Workers workers_;
  std::unique_ptr<Regions> regions_;
  Output output_;
  cuda::ContextStorage storage_;
  cuda::CompileCache compile_cache_;
  cuda::CoreDumpSettings core_dumps_;
  cuda::DriverLog driver_log_;
  cuda::AsyncCallbacks async_callbacks_;

  HandleTable<Context> contexts_;
  HandleTable<Partition> green_contexts_;
  HandleTable<ResourceDescription> resource_descriptions_;
  HandleTable<Stream> streams_;
  HandleTable<Event> events_;
  HandleTable<Module> modules_;
  HandleTable<Function> functions_;
  HandleTable<Library> libraries_;
  HandleTable<Kernel> kernels_;
  HandleTable<Linker> linkers_;
  const CountedBytes::Total link_text_bytes_;
  HandleTable<Pool> pools_;
  HandleTable<Allocation> allocations_;
  GraphStore graphs_;
  std::vector<std::unique_ptr<GraphMemory>> graph_memory_;  // By device.
  HandleTable<Array> arrays_;
  HandleTable<MipmappedArray> mipmapped_arrays_;
  ImageTable<TextureObject> textures_;
  ImageTable<SurfaceObject> surfaces_;
  HandleTable<TextureReference> texture_references_;
  HandleTable<SurfaceReference> surface_references_;

  Mutex vmm_mutex_;
  std::map<std::uint64_t, std::uint64_t> reservations_ GUARDED_BY(vmm_mutex_);  // Size by base.
  std::atomic<std::uint64_t> next_context_{0};
  std::atomic<std::uint64_t> next_grid_{0};
};

}  // namespace flyt::softgpu
