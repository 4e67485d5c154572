// Replay: runs a fuzz entry point over its seeds and seeded mutations of them, without libFuzzer.
//
//   NAME [--seconds=N] [--runs=N] [--seed=N] [FILE|FOLDER ...]
//
// Every given file runs as it is; then random mutations of them run until the time or the number
// of runs is used up. An input that kills the process is written to crash-NAME-SEED-RUN first.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kInputBytesMax = 1 << 16;
constexpr std::array<std::uint64_t, 12> kInterestingValues = {
    0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1ULL << 63, ~0ULL};

struct Options {
  double seconds = 2.0;
  std::uint64_t runs = 20'000;
  std::uint64_t seed = 1;
  std::vector<std::filesystem::path> paths;
};

// What the crash handler needs: a handler has no argument of ours.
struct Current {
  std::string crash_path;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

Current& current() {
  static Current value;
  return value;
}

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(2, text.data(), text.size());
}

// Async-signal-safe: saves the input that was running.
void save_current() {
  const Current& input = current();
  if (input.data == nullptr) return;
  const int fd = ::open(input.crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, input.data, input.size);
  ::close(fd);
  say("\nthe input is in ");
  say(input.crash_path);
  say("\n");
}

void on_signal(int signal) {
  save_current();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run_one(const Input& input, std::string crash_path) {
  current().crash_path = std::move(crash_path);
  // A copy of the exact size, so that the sanitizer sees a read past the end.
  const Input exact(input.begin(), input.end());
  current().data = exact.data();
  current().size = exact.size();
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current().data = nullptr;
}

void overwrite_integer(Input& input, flyt::Random& random) {
  const std::size_t width = std::size_t{1} << random.below(4);
  if (input.size() < width) return;
  const std::size_t at = random.below(input.size() - width + 1);
  std::uint64_t value = kInterestingValues[random.below(kInterestingValues.size())];
  if (random.one_in(4)) value = input.size() - random.below(3);
  for (std::size_t i = 0; i < width; ++i) {
    input[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
}

void splice(Input& input, const Input& other, flyt::Random& random) {
  if (other.empty()) return;
  const std::size_t from = random.below(other.size());
  const std::size_t count = 1 + random.below(other.size() - from);
  const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
  const auto at = input.begin() + static_cast<std::ptrdiff_t>(random.below(input.size() + 1));
  input.insert(at, first, first + static_cast<std::ptrdiff_t>(count));
}

void mutate_once(Input& input, const std::vector<Input>& corpus, flyt::Random& random) {
  const std::size_t at = input.empty() ? 0 : random.below(input.size());
  const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(input.empty() ? 2 : 7)) {
    case 0:
      input.insert(here, 1 + random.below(16), static_cast<std::uint8_t>(random.next()));
      return;
    case 1:
      return splice(input, corpus[random.below(corpus.size())], random);
    case 2:
      *here ^= static_cast<std::uint8_t>(1U << random.below(8));
      return;
    case 3:
      *here = static_cast<std::uint8_t>(random.next());
      return;
    case 4:
      input.resize(at);
      return;
    case 5: {
      const std::size_t count = std::min<std::size_t>(1 + random.below(16), input.size() - at);
      input.erase(here, here + static_cast<std::ptrdiff_t>(count));
      return;
    }
    default:
      return overwrite_integer(input, random);
  }
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::filesystem::path> files_under(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (std::filesystem::is_regular_file(path)) files.push_back(path);
    if (!std::filesystem::is_directory(path)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Options options_of(int argc, char** argv) {
  Options options;
  if (const char* seed = std::getenv("FLYT_FUZZ_SEED")) {
    options.seed = std::strtoull(seed, nullptr, 0);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](std::string_view name) -> const char* {
      return argument.starts_with(name) ? argument.c_str() + name.size() : nullptr;
    };
    if (const char* seconds = value("--seconds=")) {
      options.seconds = std::strtod(seconds, nullptr);
    } else if (const char* runs = value("--runs=")) {
      options.runs = std::strtoull(runs, nullptr, 0);
    } else if (const char* seed = value("--seed=")) {
      options.seed = std::strtoull(seed, nullptr, 0);
    } else {
      options.paths.emplace_back(argument);
    }
  }
  return options;
}

std::uint64_t run_mutations(const Options& options, const std::vector<Input>& corpus,
                            const std::string& crash_prefix, SteadyClock::time_point deadline) {
  flyt::Random random(options.seed);
  std::uint64_t done = 0;
  for (; done < options.runs && SteadyClock::now() < deadline; ++done) {
    Input input = corpus[random.below(corpus.size())];
    for (std::uint64_t steps = 1 + random.below(5); steps > 0; --steps) {
      mutate_once(input, corpus, random);
    }
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    run_one(input, crash_prefix + std::to_string(done));
  }
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_current);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    // A sanitizer's own handler tells more; it ends in the death callback.
    if (__sanitizer_set_death_callback == nullptr || signal == SIGABRT) {
      std::signal(signal, on_signal);
    }
  }
  const std::string name = std::filesystem::path(argv[0]).filename();
  const std::string crash_prefix = "crash-" + name + "-" + std::to_string(options.seed) + "-";
  const auto deadline = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                                 std::chrono::duration<double>(options.seconds));

  std::vector<Input> corpus;
  for (const auto& path : files_under(options.paths)) {
    Input input = read_file(path);
    run_one(input, crash_prefix + path.filename().string());
    if (input.size() <= kInputBytesMax) corpus.push_back(std::move(input));
  }
  const std::size_t seeds = corpus.size();
  corpus.emplace_back();
  run_one(corpus.back(), crash_prefix + "empty");
  const std::uint64_t mutations = run_mutations(options, corpus, crash_prefix, deadline);
  say(name + ": " + std::to_string(seeds) + " seeds, " + std::to_string(mutations) +
      " mutations, seed " + std::to_string(options.seed) + "\n");
  return 0;
}
