// PageLine: a browser's connection, in the clear or behind certificates, on which nothing waits for
// ever.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "transport/transport.h"

struct ssl_ctx_st;
struct ssl_st;

namespace flyt::control {

// Of one thread, but for shut_down().
class PageLine {
 public:
  // `tls`: null in the clear; else it outlives this.
  PageLine(std::unique_ptr<transport::Connection> connection, ssl_ctx_st* tls);
  ~PageLine();
  PageLine(const PageLine&) = delete;
  PageLine& operator=(const PageLine&) = delete;

  // Before all else: shows certificates, if there is need to. kTimeout at the deadline, as with the
  // next two; kLost where the peer is gone or has none that is admitted.
  Status greet(Instant deadline);
  // Some bytes, at least one.
  Result<std::size_t> read(MutableBytes into, Instant deadline);
  // All of them, unless for `patience` the peer takes none.
  Status write(Bytes bytes, Duration patience);
  // The peer has not hung up.
  bool open() const;
  // As PEM; empty in the clear.
  std::string certificate() const;
  // Nothing waits any more. Any thread.
  void shut_down();

 private:
  struct TlsFree {
    void operator()(ssl_st* tls) const;
  };

  // What TLS wants to say, and hears.
  Status send_pending(Duration patience);
  Status hear(Instant deadline);
  // After an operation of TLS that has not succeeded: waits for what it lacks.
  Status go_on(int outcome, Instant deadline);
  Status send(Bytes bytes, Duration patience);
  Result<std::size_t> receive(MutableBytes into, Instant deadline);

  const std::unique_ptr<transport::Connection> connection_;
  std::unique_ptr<ssl_st, TlsFree> tls_;
};

}  // namespace flyt::control
