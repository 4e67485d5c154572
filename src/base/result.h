// Result: a value or the reason why there is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/assert.h"

namespace flyt {

// What kind of failure it was; the message tells the rest.
enum class ErrorCode : std::uint8_t {
  kInvalid,      // The caller's or a peer's data breaks a rule.
  kLimit,        // A named limit would be exceeded.
  kNotFound,     // Nothing of that name, handle or path.
  kUnsupported,  // Known, but not done by this build or this peer.
  kLost,         // The peer is gone; it stays gone.
  kTimeout,      // A deadline passed.
  kDenied,       // Not allowed for this peer.
  kSystem,       // A system call failed; the message holds its errno text.
};

std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

// An Error with the text of `system_error` (an errno value) behind `what`.
Error system_error(std::string_view what, int system_error);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only where ok(); anything else is a bug of the caller.
  T& value() & { return *checked(); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return *checked(); }
  const T& operator*() const& { return *checked(); }
  T&& operator*() && { return std::move(*checked()); }
  T* operator->() { return checked(); }
  const T* operator->() const { return checked(); }

  // Only where !ok().
  const Error& error() const& {
    FLYT_ASSERT(!ok());
    return *std::get_if<1>(&state_);
  }
  Error error() && {
    FLYT_ASSERT(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  T* checked() {
    FLYT_ASSERT(ok());
    return std::get_if<0>(&state_);
  }
  const T* checked() const {
    FLYT_ASSERT(ok());
    return std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    FLYT_ASSERT(!ok());
    return *error_;
  }
  Error error() && {
    FLYT_ASSERT(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace flyt
