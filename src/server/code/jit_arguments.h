// JitArguments: a client's compiler options as the arrays that the driver takes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda/types.h"
#include "wire/fields.h"

namespace flyt::server {

// Holds the log buffers, so it must live as long as the driver may write into them. Belongs to one
// thread at a time.
class JitArguments {
 public:
  // False if the lists do not match or an option is one that carries a pointer: only a client that
  // breaks the rules sends such a thing.
  [[nodiscard]] bool take(const wire::List<std::int32_t>& options,
                          const wire::List<std::uint64_t>& values);

  unsigned int count() const { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() { return options_.empty() ? nullptr : options_.data(); }
  void** values() { return values_.empty() ? nullptr : values_.data(); }

  std::string_view info_log() const { return text(info_); }
  std::string_view error_log() const { return text(error_); }
  // What the compiler told of a load or link.
  template <class Reply>
  void fill_told(Reply& reply) const {
    reply.wall_time = wall_time();
    reply.info_log = info_log();
    reply.error_log = error_log();
  }
  std::size_t log_bytes() const { return info_.size() + error_.size(); }
  float wall_time() const;
  std::uint32_t threads_per_block() const;

 private:
  static std::string_view text(const std::vector<char>& log);
  void add(CUjit_option option, void* value);
  void add_log(CUjit_option buffer, CUjit_option size, std::uint64_t bytes, std::vector<char>& log);

  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<char> info_;
  std::vector<char> error_;
};

}  // namespace flyt::server
