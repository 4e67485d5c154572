// PageTls: pages behind certificates on both sides.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "control/settings/tls_files.h"

struct ssl_ctx_st;
struct ssl_st;

namespace flyt::control {

struct PageTls {
  TlsFiles files;
  // Whether the holder of a certificate, which the authority has signed, may ask anything at all.
  // It is asked before the first byte of a request is read. An argument is a certificate as PEM.
  std::function<Status(const std::string& certificate)> admit;
};

// Peers without a certificate that is signed, in its time and admitted do not get through. `tls`
// outlives the context. kInvalid: a file is not what it should be.
Status set_up_tls(ssl_ctx_st& context, const PageTls& tls);

// The peer's certificate, as PEM; empty if there is none.
std::string certificate_of(const ssl_st& connection);

}  // namespace flyt::control
