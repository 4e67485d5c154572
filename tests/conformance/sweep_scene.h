// Scene: objects of every kind of handle and address that a call may take, made when they are asked
// for and gone with the scene, but for those that the call itself has destroyed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/driver.h"
#include "tests/conformance/sweep_calls.h"

namespace flyt::conformance {

// Bytes behind every pointer that a call gets, zeroed; more than any call writes there.
inline constexpr std::size_t kSweepBuffer = 8192;
// Bytes of the device memory that a call gets: fewer, so that too large a copy ends before the
// buffer does.
inline constexpr std::size_t kSweepMemory = 4096;

// Handles and pointers as numbers, and back.
template <class T>
std::uint64_t number_of(T handle) {
  return std::bit_cast<std::uint64_t>(handle);
}
template <class T>
T from_number(std::uint64_t number) {
  return std::bit_cast<T>(number);
}

// Whether one of the ':'-separated patterns matches.
bool like(std::string_view text, const char* patterns);

class Scene {
 public:
  // `call`: for which everything is. With `context` current, if it is not null.
  Scene(const SweptCall& call, CUcontext context) : call_(call), context_(context) {}
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // Null where there is none of such a type, or where it could not be made.
  std::uint64_t object(std::string_view type, std::string_view parameter);
  CUdeviceptr address(std::string_view parameter);
  // What a parameter of type void* stands for; null: nothing in particular.
  void* host(std::string_view parameter);
  std::string text(std::string_view parameter);
  // Fills what a pointer to `type` points to, if there is something sensible to say.
  void describe(std::string_view type, std::string_view parameter, std::byte* into);

  CUcontext context() const { return context_; }
  // A zeroed buffer that lives as long as the scene.
  std::byte* buffer();

  // What could not be made, and why.
  const std::vector<std::pair<std::string, CUresult>>& failed() const { return failed_; }

  // Ends what a call may have begun to capture, so that the context can be waited for.
  void end_captures(const std::vector<Argument>& arguments);

  // The call has succeeded with these arguments: what it destroyed is not destroyed again, and what
  // it made is.
  void settle(const std::vector<Argument>& arguments);

 private:
  using Destroy = std::function<void()>;

  // What `make` gives, once for each key.
  std::uint64_t once(const std::string& key, const std::function<std::uint64_t()>& make);
  void own(std::uint64_t object, Destroy destroy);
  void made(const Parameter& parameter, std::uint64_t object);
  void tell(const char* what, CUresult result);

  CUstream stream();
  CUevent event(std::string_view parameter);
  CUmodule module(bool textures);
  CUfunction function();
  CUlibrary library();
  CUkernel kernel();
  CUlinkState link();
  CUarray array(std::string_view parameter);
  CUmipmappedArray levels();
  CUtexref texture_reference();
  CUsurfref surface_reference();
  std::uint64_t texture();
  std::uint64_t surface();
  CUcontext context_for_call();
  CUgreenCtx green();
  CUdevResourceDesc green_description();
  CUmemoryPool pool();
  CUuserObject user_object();
  CUasyncCallbackHandle notification();
  CUlogsCallbackHandle log_callback();
  CUmemGenericAllocationHandle allocation();
  CUdeviceptr reserved();
  CUdeviceptr mapped();
  CUdeviceptr pooled();
  CUdeviceptr managed();
  CUdeviceptr memory(const char* key);
  void* pinned();
  void* registered();
  int exported();

  CUgraph graph(std::string_view parameter);
  CUgraphNode node(std::string_view parameter);
  CUgraphNode add_node(CUgraph graph);
  CUgraphNode add_memory_node(CUgraph graph, bool freed);
  CUgraphExec exec();

  void describe_copy(std::string_view type, std::byte* into);
  void describe_node(std::string_view type, std::byte* into);
  void describe_array(std::string_view type, std::byte* into);
  void describe_memory(std::string_view type, std::byte* into);
  void describe_tensor(std::byte* into);

  const SweptCall& call_;
  const CUcontext context_;
  std::map<std::string, std::uint64_t> made_;
  std::vector<std::pair<std::uint64_t, Destroy>> owned_;
  std::vector<std::unique_ptr<std::array<std::byte, kSweepBuffer + 4096>>> buffers_;
  std::vector<CUdevResource> groups_;
  CUdeviceptr node_memory_ = 0;
  std::vector<std::pair<std::string, CUresult>> failed_;
};

}  // namespace flyt::conformance
