// Module, Function, Library, Kernel, Linker: loaded code under the handles that CUDA gives it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/link_texts.h"
#include "softgpu/memory/managed_memory.h"
#include "softgpu/memory/regions.h"
#include "softgpu/program.h"

namespace flyt::softgpu {

class Context;
class Device;

// What cuFuncSetAttribute and its kin set. By value.
struct FunctionSettings {
  int max_dynamic_shared = 0;
  int carveout = -1;
  int nonportable_cluster = 0;
  int scheduling = 0;
  std::array<int, 3> cluster = {0, 0, 0};
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
};

// The state of cuParamSet* and cuFuncSet*Shape: launches of before CUDA 4.
struct OldLaunch {
  std::array<unsigned, 3> block = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> values;    // Of parameters, those between them zero.
  std::size_t parameter_bytes = 0;  // So many of them count, as cuParamSetSize was told.
};

class Module;

// A kernel in one context. Safe from any thread.
class Function {
 public:
  Function(std::shared_ptr<Module> module, std::uint32_t kernel, const FunctionSettings& settings)
      : module_(std::move(module)), kernel_(kernel), settings_(settings) {}

  const std::shared_ptr<Module>& module() const { return module_; }
  std::uint32_t kernel() const { return kernel_; }
  const ptx::Function& code() const;
  const ptx::KernelInfo& info() const;

  FunctionSettings settings() const {
    const Lock lock(mutex_);
    return settings_;
  }
  void set_settings(const FunctionSettings& settings) {
    const Lock lock(mutex_);
    settings_ = settings;
  }
  OldLaunch old_launch() const {
    const Lock lock(mutex_);
    return old_launch_;
  }
  void set_old_launch(OldLaunch old_launch) {
    const Lock lock(mutex_);
    old_launch_ = std::move(old_launch);
  }

 private:
  const std::shared_ptr<Module> module_;
  const std::uint32_t kernel_;
  mutable Mutex mutex_;
  FunctionSettings settings_ GUARDED_BY(mutex_);
  OldLaunch old_launch_ GUARDED_BY(mutex_);
};

// Code in one context, with memory for its variables, which goes with it. Safe from any thread.
class Module {
 public:
  // Null where the device has no memory left for the variables.
  // `managed`: a library's managed variables, which are the same in all its modules; the first
  // module makes them. Null: the module has its own.
  using ManagedVariables = std::vector<std::shared_ptr<ManagedVariable>>;
  static std::shared_ptr<Module> load(Program program, Context& context, Regions& regions,
                                      ManagedVariables* managed);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Program& program() const { return program_; }
  const std::shared_ptr<const ptx::Image>& image() const { return image_; }
  std::uint64_t context() const { return context_; }
  Device& device() const { return device_; }
  std::uint64_t handle() const { return handle_; }
  void set_handle(std::uint64_t handle) { handle_ = handle; }
  // Modules of libraries go with their library only.
  bool of_library() const { return of_library_; }
  void set_of_library() { of_library_ = true; }

  struct Variable {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    bool managed = false;
  };
  std::optional<Variable> variable(std::string_view name) const;

  // The handle of a kernel's function, made by `make` at first use.
  template <class Make>
  std::uint64_t function(std::uint32_t kernel, Make make) {
    const Lock lock(mutex_);
    std::uint64_t& handle = functions_[kernel];
    if (handle == 0) handle = make();
    return handle;
  }
  // The same; 0: nobody has asked for it.
  std::uint64_t known_function(std::uint32_t kernel) const;
  std::vector<std::uint64_t> functions() const;
  // The handle of a texture or surface reference, made by `make(address)` at first use.
  template <class Make>
  std::uint64_t reference(std::uint32_t variable, Make make) {
    const Lock lock(mutex_);
    std::uint64_t& handle = references_[variable];
    if (handle == 0) handle = make(addresses_[variable]);
    return handle;
  }
  std::vector<std::uint64_t> references() const;

 private:
  Module(Program program, Context& context, Regions& regions);
  // Gives a variable memory; false where there is none.
  bool place(std::size_t index, ManagedVariables* shared);

  Program program_;
  Device& device_;
  Regions& regions_;
  const std::uint64_t context_;
  std::uint64_t handle_ = 0;
  bool of_library_ = false;
  std::vector<std::uint64_t> addresses_;  // By variable; 0: none.
  ManagedVariables managed_;              // By variable; null: it is not.
  std::shared_ptr<const ptx::Image> image_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::uint64_t> functions_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::uint64_t> references_ GUARDED_BY(mutex_);  // By variable.
};

// Code that no context owns; becomes a module in every context that uses it.
class Library {
 public:
  // `error`: why there is no program; told at the first use, as NVIDIA's driver does.
  Library(Program program, CUresult error) : program_(std::move(program)), error_(error) {}
  const Program& program() const { return program_; }
  CUresult error() const { return error_; }
  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  // Module handles by context handle.
  std::map<std::uint64_t, std::uint64_t>& modules() REQUIRES(mutex_) { return modules_; }
  // Kernel handles by kernel number.
  std::map<std::uint32_t, std::uint64_t>& kernels() REQUIRES(mutex_) { return kernels_; }
  Module::ManagedVariables& managed() REQUIRES(mutex_) { return managed_; }

 private:
  const Program program_;
  const CUresult error_;
  Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> modules_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::uint64_t> kernels_ GUARDED_BY(mutex_);
  Module::ManagedVariables managed_ GUARDED_BY(mutex_);
};

// A kernel of a Library. Safe from any thread.
class Kernel {
 public:
  Kernel(std::shared_ptr<Library> library, std::uint64_t library_handle, std::uint32_t kernel)
      : library_(std::move(library)), library_handle_(library_handle), kernel_(kernel) {}
  const std::shared_ptr<Library>& library() const { return library_; }
  std::uint64_t library_handle() const { return library_handle_; }
  std::uint32_t kernel() const { return kernel_; }
  const ptx::Function& code() const { return library_->program().function(kernel_); }
  const ptx::KernelInfo& info() const {
    return ptx::kernel_info(*library_->program().code, kernel_);
  }

  // What was set for one device.
  std::optional<FunctionSettings> settings(int device) const EXCLUDES(mutex_);
  void set_settings(int device, const FunctionSettings& settings) EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Library> library_;
  const std::uint64_t library_handle_;
  const std::uint32_t kernel_;
  mutable Mutex mutex_;
  std::map<int, FunctionSettings> settings_ GUARDED_BY(mutex_);
};

// A text of a link, and what it says.
struct LinkPart {
  std::shared_ptr<const ptx::Module> module;
  LinkText text;
};

// A cuLinkCreate. Belongs to the caller that synchronises; the lock only keeps bad ones harmless.
struct Linker {
  std::uint64_t context = 0;  // Handle.
  Mutex mutex;
  JitOptions options GUARDED_BY(mutex);
  ptx::JitLog log GUARDED_BY(mutex);
  std::vector<LinkPart> parts GUARDED_BY(mutex);
  std::vector<LinkPart> offers GUARDED_BY(mutex);  // Of libraries: taken if they are asked for.
  std::vector<std::byte> image GUARDED_BY(mutex);  // What cuLinkComplete hands out.
  bool complete GUARDED_BY(mutex) = false;
};

// The settings of a function nobody has changed.
FunctionSettings default_settings(const ptx::Function& code, const ptx::KernelInfo& info,
                                  const Device& device);

// What both cuFuncGetAttribute and cuKernelGetAttribute tell, and set.
CUresult get_attribute(const ptx::Module& module, const ptx::Function& code,
                       const ptx::KernelInfo& info, const FunctionSettings& settings,
                       const Device& device, CUfunction_attribute attribute, int* value);
CUresult set_attribute(const ptx::Function& code, const ptx::KernelInfo& info, const Device& device,
                       CUfunction_attribute attribute, int value, FunctionSettings& settings);

}  // namespace flyt::softgpu
