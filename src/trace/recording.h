// Recording: the file that a traced process fills while it runs. It is mapped, so what was written
// stays whatever becomes of the process.
//
// Layout: Header, Name[calls], Name[commands], CallCounters[calls], CommandCounters[commands],
// Event[events_max]. A process writes only its own file; all numbers are of the machine that wrote
// it. docs/flyt-trace.md tells what they mean.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt::trace {

inline constexpr std::array<char, 8> kMagic{'F', 'L', 'Y', 'T', 'T', 'R', 'C', '2'};
inline constexpr std::uint32_t kCallsMax = 4096;
inline constexpr std::uint32_t kCommandsMax = 4096;
inline constexpr std::uint64_t kEventsMax = 16'000'000;

// What one call of the program came to. Each call is of one kind.
enum class Kind : std::uint8_t {
  kLocal,    // The client answered.
  kPosted,   // Commands were sent, nobody waited.
  kWaited,   // At least one answer of the server was waited for.
  kRefused,  // CUDA_ERROR_NOT_SUPPORTED, and nothing was sent.
};

struct Header {
  std::array<char, 8> magic{};
  std::uint32_t calls = 0;  // The last one stands for what was sent outside of any call.
  std::uint32_t commands = 0;
  std::uint64_t events_max = 0;
  std::uint32_t process = 0;
  std::uint32_t zero = 0;
  std::uint64_t started_ns = 0;    // Of the monotonic clock, as all times here.
  std::uint64_t ended_ns = 0;      // When the last call ended.
  std::uint64_t events_begun = 0;  // Those beyond events_max were not kept.
  std::array<char, 72> program{};  // Ends with a zero byte.
};
static_assert(sizeof(Header) == 128);

inline constexpr std::uint8_t kSyncPoint = 1;  // Waiting is what a program calls it for.

struct Name {
  std::array<char, 63> text{};  // Ends with a zero byte.
  std::uint8_t flags = 0;
};
static_assert(sizeof(Name) == 64);

struct CallCounters {
  std::uint64_t begun = 0;               // Calls; those that have not ended are of no kind yet.
  std::array<std::uint64_t, 4> kinds{};  // Calls, by Kind.
  std::uint64_t failed = 0;              // Calls that returned an error.
  std::uint64_t waits = 0;               // Answers waited for.
  std::uint64_t wait_ns = 0;
  std::uint64_t wait_ns_max = 0;  // Of one call.
  std::uint64_t held_ns = 0;      // Waiting to send, because the server was behind.
  std::uint64_t call_ns = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};
static_assert(sizeof(CallCounters) == 104);

struct CommandCounters {
  std::uint64_t sent = 0;
  std::uint64_t waits = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t wait_ns_max = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};
static_assert(sizeof(CommandCounters) == 48);

// One call, in the order of their ends.
struct Event {
  std::uint64_t start_ns = 0;
  std::uint64_t call_ns = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t sequence = 0;  // Of the last command that it sent; 0: none.
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint32_t thread = 0;
  std::uint16_t call = 0;
  Kind kind = Kind::kLocal;
  std::uint8_t written = 0;  // 1: the event is whole. Stored last.
  std::uint32_t waits = 0;
  std::int32_t result = 0;
};
static_assert(sizeof(Event) == 64);

// Bytes of a file with so many of each; the numbers are within their limits.
std::uint64_t bytes_of_recording(std::uint64_t calls, std::uint64_t commands, std::uint64_t events);

void set_text(std::span<char> field, std::string_view text);

// A recording being made. Writing is safe from any thread and in a signal handler, takes no lock
// and makes no system call. Never unmapped but by abandon(): threads may write until the end.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  struct Shape {
    std::uint32_t calls = 0;
    std::uint32_t commands = 0;
    std::uint64_t events_max = 0;
  };
  // Makes PATH.PROCESS, or PATH.PROCESS-2 and so on where that exists. All of its space is taken at
  // once, so that a full disk is met here and not later by a signal.
  Status open(const std::string& path, const Shape& shape);
  // In the child after a fork: the file is the parent's.
  void abandon();

  const std::string& path() const { return path_; }
  Header& header() { return *header_; }
  Name& call_name(std::size_t call) { return call_names_[call]; }
  Name& command_name(std::size_t op) { return command_names_[op]; }
  CallCounters& call(std::size_t call) { return calls_[call]; }
  CommandCounters& command(std::size_t op) { return commands_[op]; }
  std::size_t command_count() const { return shape_.commands; }
  // Keeps an event unless the file is full of them.
  void add(const Event& event);

 private:
  void lay_out(void* base);

  Shape shape_;
  std::string path_;
  void* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  Header* header_ = nullptr;
  std::span<Name> call_names_;
  std::span<Name> command_names_;
  std::span<CallCounters> calls_;
  std::span<CommandCounters> commands_;
  std::span<Event> events_;
};

inline void add_to(std::uint64_t& counter, std::uint64_t amount) {
  std::atomic_ref(counter).fetch_add(amount, std::memory_order_relaxed);
}
inline void raise_to(std::uint64_t& counter, std::uint64_t value) {
  std::atomic_ref word(counter);
  std::uint64_t before = word.load(std::memory_order_relaxed);
  while (before < value && !word.compare_exchange_weak(before, value)) {
  }
}

}  // namespace flyt::trace
