// CodeSubjects: uploads on their way, and what a session keeps about modules and links.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/counted_bytes.h"
#include "cuda/code_facts.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "server/code/foresight.h"
#include "server/code/jit_arguments.h"
#include "server/handles.h"
#include "server/lease/usage_board.h"
#include "server/recovery/marks.h"
#include "server/recovery/variables.h"
#include "server/transfers/uploads.h"

namespace flyt::server {

class Session;

// Where a module, function, library or kernel comes from, so that it is forgotten with it.
struct CodeOrigin : Attachment {
  std::uint32_t context = 0;  // Handle index; 0: of no context.
  std::uint64_t module = 0;   // Handle of the module that a function is of.
  std::uint64_t library =
      0;  // Handle of the library that a kernel, its functions and modules are of.
  // Variables whose addresses the client was told. Those of a library are of one context each.
  struct Global {
    std::uint64_t address = 0;
    std::uint32_t context = 0;
    bool operator==(const Global&) const = default;
  };
  Mutex mutex;
  std::vector<Global> globals GUARDED_BY(mutex);
  UsedMemory charge;             // Of a module or a library, as is the next.
  CountedBytes loaded;           // As of CodeSubjects::loaded_bytes().
  bool has_variables = false;    // Of a library.
  std::vector<std::byte> image;  // Of a library: the driver reads it as long as it is loaded.
};

// A linker and the buffers that the driver writes its logs into, until it is destroyed.
struct Link : Attachment {
  // Of all links of a session together, and of what their options take.
  static constexpr std::uint64_t kInputBytesMax = 2 * kGiB;

  explicit Link(const driver::Table& table) : driver(table) {}
  ~Link() override;

  const driver::Table& driver;
  CUlinkState state = nullptr;
  std::unique_ptr<JitArguments> arguments;
  Bytes cubin;  // The finished one, the driver's.
  // The driver may keep looking at what was added, and write into logs.
  struct Input {
    std::vector<std::byte> data;
    JitArguments arguments;
    CountedBytes counted;
  };
  std::vector<std::unique_ptr<Input>> inputs;
  CountedBytes counted;  // As of CodeSubjects::link_bytes(), without the inputs.
  Mutex mutex;           // Held while the driver works on it.
  // Once something failed: what a driver makes of the link then nobody can make again.
  Spoiler spoiler;
};

// Safe from any thread.
class CodeSubjects {
 public:
  explicit CodeSubjects(Session& session);

  Uploads& uploads() { return uploads_; }
  Variables& variables() { return variables_; }
  Foresight& foresight() { return foresight_; }  // The compiler's thread alone.

  // Forgets what dies with a context, a module or a library.
  void on_context_destroy(std::uint32_t context);
  void on_module_unload(std::uint64_t module);
  void on_library_unload(std::uint64_t library);
  // Makes a variable's memory known to the checks of addresses.
  void note_global(CodeOrigin& owner, std::uint32_t context, std::uint64_t address,
                   std::uint64_t size);
  void forget_globals(CodeOrigin& owner);

  // Bytes of the code that is loaded: the driver reads it, or has made something of it.
  static constexpr std::uint64_t kLoadedBytesMax = 16 * kGiB;
  const CountedBytes::Total& loaded_bytes() const { return loaded_bytes_; }

  // Bytes that links keep, see Link.
  const CountedBytes::Total& link_bytes() const { return link_bytes_; }

  // Code is about to be loaded. Once some may print, output comes with replies.
  void note_code(const cuda::CodeFacts& facts);
  bool may_print() const { return may_print_.load(std::memory_order_relaxed); }

 private:
  template <class Dies>
  void forget_if(Dies&& dies);

  Variables variables_;
  Foresight foresight_;
  Session& session_;
  Uploads uploads_;
  const CountedBytes::Total link_bytes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  const CountedBytes::Total loaded_bytes_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::atomic<bool> may_print_{false};
};

}  // namespace flyt::server
