// TestDevice: a PTX text, loaded, with memory of its own; kernels by name, arguments by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "softgpu/interpreter/grid.h"

namespace flyt::ptx {

// Not thread-safe, but for what Environment asks.
class TestDevice final : public Environment {
 public:
  // Everything that a load can refuse is in error() then.
  explicit TestDevice(std::string_view text) {
    auto module = parse(text, &log_);
    if (!module) {
      error_ = module.error().message;
      return;
    }
    load(*module);
  }
  explicit TestDevice(std::shared_ptr<const Module> module) { load(std::move(module)); }

  const std::string& error() const { return error_; }
  const std::string& log() const { return log_.errors(); }
  const Module& module() const { return module_of(image_->program()); }
  const Image& image() const { return *image_; }
  const KernelInfo& info(std::string_view kernel) const {
    return kernel_info(image_->program(), index_of(kernel));
  }

  std::uint64_t allocate(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto storage = std::make_unique<std::vector<std::uint64_t>>((bytes + 127) / 8 + 16);
    const std::uint64_t address = (address_of(storage->data()) + 63) / 64 * 64;
    memory_.add(address, bytes);
    sizes_[address] = bytes;
    storage_.push_back(std::move(storage));
    return address;
  }
  void release(std::uint64_t address) override {
    const std::lock_guard lock(mutex_);
    memory_.remove(address, sizes_[address]);
    ++released_;
  }
  void print(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    output_ += text;
  }
  void assertion(std::string_view text) override { print(text); }

  template <class T>
  std::uint64_t put(std::span<const T> values) {
    const std::uint64_t address = allocate(std::max<std::size_t>(values.size_bytes(), 1));
    std::memcpy(pointer_at(address), values.data(), values.size_bytes());
    return address;
  }
  template <class T>
  std::uint64_t put(const std::vector<T>& values) {
    return put(std::span<const T>(values));
  }
  template <class T>
  std::vector<T> get(std::uint64_t address, std::size_t count) const {
    std::vector<T> values(count);
    std::memcpy(values.data(), pointer_at(address), count * sizeof(T));
    return values;
  }
  std::uint64_t variable(std::string_view name) const {
    return image_->addresses()[*module().find_variable(name)];
  }

  // The launch that the next run() makes, but for the parameters.
  Launch launch;

  template <class... A>
  std::optional<Fault> run(std::string_view kernel, const A&... arguments) {
    auto grid = start(kernel, arguments...);
    grid->work();
    return grid->fault();
  }

  template <class... A>
  std::unique_ptr<Grid> start(std::string_view kernel, const A&... arguments) {
    const std::uint32_t index = index_of(kernel);
    const Function& function = module().functions()[module().kernels()[index]];
    Launch made = launch;
    made.parameters.assign(function.parameter_bytes, std::byte{0});
    std::size_t next = 0;
    (place(function, made, next, arguments), ...);
    auto grid = Grid::make(image_, index, std::move(made), memory_, *this);
    FLYT_ASSERT(grid.ok());
    return std::move(*grid);
  }

  MemoryMap& memory() { return memory_; }
  const std::string& output() const { return output_; }
  int released() const { return released_; }

 private:
  void load(std::shared_ptr<const Module> module) {
    auto program = translate(std::move(module), &log_);
    if (!program) {
      error_ = program.error().message;
      return;
    }
    const auto& variables = module_of(**program).variables();
    std::vector<std::uint64_t> addresses;
    for (const Variable& variable : variables) {
      addresses.push_back(
          Image::takes_memory(variable) ? allocate(std::max<std::uint64_t>(variable.size, 1)) : 0);
    }
    image_ = Image::load(*program, addresses);
    for (std::uint32_t i = 0; i < variables.size(); ++i) {
      if (!Image::takes_memory(variables[i])) continue;
      const auto bytes = image_->initial_bytes(i);
      if (!bytes.empty()) std::memcpy(pointer_at(addresses[i]), bytes.data(), bytes.size());
    }
  }

  std::uint32_t index_of(std::string_view kernel) const {
    const auto& kernels = module().kernels();
    for (std::uint32_t i = 0; i < kernels.size(); ++i) {
      if (module().functions()[kernels[i]].name == kernel) return i;
    }
    FLYT_ASSERT(false && "no such kernel");
    return 0;
  }

  template <class A>
  static void place(const Function& function, Launch& into, std::size_t& next, const A& argument) {
    const Parameter& parameter = function.parameters[next++];
    FLYT_ASSERT(parameter.size == sizeof(A));
    std::memcpy(into.parameters.data() + parameter.offset, &argument, sizeof(A));
  }

  JitLog log_;
  std::string error_;
  std::shared_ptr<const Image> image_;
  MemoryMap memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> storage_;
  std::map<std::uint64_t, std::uint64_t> sizes_;
  std::string output_;
  int released_ = 0;
};

}  // namespace flyt::ptx
