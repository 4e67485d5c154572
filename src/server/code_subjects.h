// CodeSubjects: uploads on their way, and what a session keeps about modules and links.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "server/handles.h"
#include "server/jit_arguments.h"

namespace flyt::server {

class Session;

inline constexpr std::uint64_t kUploadBytesMax = 1 * kGiB;
inline constexpr std::uint64_t kUploadsBytesMax = 2 * kGiB;  // Of all uploads together.

// Where a module, function, library or kernel comes from, so that it is forgotten with it.
struct CodeOrigin : Attachment {
  std::uint32_t context = 0;  // Handle index; 0: of no context.
  std::uint64_t module = 0;   // Handle of the module that a function is of.
  std::uint64_t library =
      0;  // Handle of the library that a kernel, its functions and modules are of.
  // Addresses of variables that the client was told.
  Mutex mutex;
  std::vector<std::uint64_t> globals GUARDED_BY(mutex);
};

// A linker and the buffers that the driver writes its logs into, until it is destroyed.
struct Link : Attachment {
  explicit Link(const driver::Table& table) : driver(table) {}
  ~Link() override;

  const driver::Table& driver;
  CUlinkState state = nullptr;
  std::unique_ptr<JitArguments> arguments;
  Bytes cubin;  // The finished one, the driver's.
  // The driver may keep looking at what was added.
  std::vector<std::vector<std::byte>> inputs;
  Mutex mutex;  // Held while the driver works on it.
};

// Safe from any thread.
class CodeSubjects {
 public:
  explicit CodeSubjects(Session& session) : session_(session) {}

  // Takes the next piece; false if it breaks a rule (order, sizes, totals).
  [[nodiscard]] bool add_piece(std::uint64_t upload, std::uint64_t total, std::uint64_t offset,
                               Bytes data) EXCLUDES(mutex_);
  // A complete upload, with a zero byte behind it (PTX is text), which is then forgotten.
  std::optional<std::vector<std::byte>> take_upload(std::uint64_t upload) EXCLUDES(mutex_);

  // Forgets what dies with a context, a module or a library.
  void on_context_destroy(std::uint32_t context);
  void on_module_unload(std::uint64_t module);
  void on_library_unload(std::uint64_t library);
  // Makes a variable's memory known to the checks of addresses.
  void note_global(CodeOrigin& owner, std::uint64_t address, std::uint64_t size);
  void forget_globals(CodeOrigin& owner);

  // Code that may print has been loaded.
  void note_code(Bytes image);
  bool may_print() const { return may_print_.load(std::memory_order_relaxed); }

 private:
  template <class Dies>
  void forget_if(Dies&& dies);
  struct Upload {
    std::vector<std::byte> bytes;
    std::uint64_t filled = 0;
  };

  Session& session_;
  Mutex mutex_;
  std::map<std::uint64_t, Upload> uploads_ GUARDED_BY(mutex_);
  std::uint64_t uploads_bytes_ GUARDED_BY(mutex_) = 0;
  std::atomic<bool> may_print_{false};
};

}  // namespace flyt::server
