#include "control/daemon/page_line.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "control/daemon/page_tls.h"

namespace flyt::control {
namespace {

using transport::Patience;

// What TLS takes or gives at a time.
constexpr std::size_t kPieceBytes = 16 * kKiB;
// For the last word, which is a courtesy.
constexpr Duration kLastWord = std::chrono::milliseconds(100);

Error late() { return {ErrorCode::kTimeout, "the peer takes too long"}; }

}  // namespace

void PageLine::TlsFree::operator()(ssl_st* tls) const { SSL_free(tls); }

PageLine::PageLine(std::unique_ptr<transport::Connection> connection, ssl_ctx_st* tls)
    : connection_(std::move(connection)) {
  if (tls == nullptr) return;
  tls_.reset(SSL_new(tls));
  FLYT_ASSERT(tls_ != nullptr);
  // It has them from now on.
  SSL_set_bio(tls_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_accept_state(tls_.get());
}

PageLine::~PageLine() {
  if (tls_ != nullptr && SSL_is_init_finished(tls_.get()) == 1) {
    ERR_clear_error();
    static_cast<void>(SSL_shutdown(tls_.get()));
    static_cast<void>(send_pending(kLastWord));
  }
  connection_->shut_down();
}

Status PageLine::greet(Instant deadline) {
  while (tls_ != nullptr) {
    ERR_clear_error();
    const int outcome = SSL_do_handshake(tls_.get());
    if (outcome == 1) return send_pending(deadline - system_clock().now());
    if (Status status = go_on(outcome, deadline); !status) return status;
  }
  return {};
}

Result<std::size_t> PageLine::read(MutableBytes into, Instant deadline) {
  if (tls_ == nullptr) return receive(into, deadline);
  while (true) {
    std::size_t got = 0;
    ERR_clear_error();
    const int outcome = SSL_read_ex(tls_.get(), into.data(), into.size(), &got);
    if (outcome == 1) return got;
    if (Status status = go_on(outcome, deadline); !status) return std::move(status).error();
  }
}

Status PageLine::write(Bytes bytes, Duration patience) {
  if (tls_ == nullptr) return send(bytes, patience);
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(bytes.size(), kPieceBytes));
    std::size_t written = 0;
    ERR_clear_error();
    const int outcome = SSL_write_ex(tls_.get(), part.data(), part.size(), &written);
    if (outcome == 1) {
      bytes = bytes.subspan(written);
      if (Status status = send_pending(patience); !status) return status;
    } else if (Status status = go_on(outcome, system_clock().now() + patience); !status) {
      return status;
    }
  }
  return {};
}

bool PageLine::open() const {
  return connection_->wait(transport::kHangup, system_clock().now(), nullptr) ==
         transport::kNothing;
}

std::string PageLine::certificate() const {
  return tls_ == nullptr ? std::string() : certificate_of(*tls_);
}

void PageLine::shut_down() { connection_->shut_down(); }

Status PageLine::go_on(int outcome, Instant deadline) {
  const int why = SSL_get_error(tls_.get(), outcome);
  // A refusal is told, too.
  Status said = send_pending(deadline - system_clock().now());
  if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
    return Error{ErrorCode::kLost, "the peer has no certificate that counts, or is gone"};
  }
  return said && why == SSL_ERROR_WANT_READ ? hear(deadline) : said;
}

Status PageLine::send_pending(Duration patience) {
  std::array<std::byte, kPieceBytes> space;
  while (true) {
    const int got =
        BIO_read(SSL_get_wbio(tls_.get()), space.data(), static_cast<int>(space.size()));
    if (got <= 0) return {};
    const Bytes part = Bytes(space).first(static_cast<std::size_t>(got));
    if (Status status = send(part, patience); !status) return status;
  }
}

Status PageLine::hear(Instant deadline) {
  std::array<std::byte, kPieceBytes> space;
  const auto got = receive(space, deadline);
  if (!got) return got.error();
  const int taken = BIO_write(SSL_get_rbio(tls_.get()), space.data(), static_cast<int>(*got));
  if (taken == static_cast<int>(*got)) return {};
  return Error{ErrorCode::kSystem, "no memory for a page"};
}

Status PageLine::send(Bytes bytes, Duration patience) {
  while (!bytes.empty()) {
    const auto sent = connection_->write({&bytes, 1}, Patience::kNow);
    if (!sent) return sent.error();
    bytes = bytes.subspan(*sent);
    if (*sent != 0) continue;
    const Instant deadline = system_clock().now() + patience;
    if (connection_->wait(transport::kWritable, deadline, nullptr) == transport::kNothing) {
      return late();
    }
  }
  return {};
}

Result<std::size_t> PageLine::receive(MutableBytes into, Instant deadline) {
  while (true) {
    const auto got = connection_->read({&into, 1}, Patience::kNow);
    if (!got || *got != 0) return got;
    if (system_clock().now() >= deadline ||
        connection_->wait(transport::kReadable, deadline, nullptr) == transport::kNothing) {
      return late();
    }
  }
}

}  // namespace flyt::control
