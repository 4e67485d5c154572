#include "control/grpc/leak_check.h"

#ifdef __SANITIZE_ADDRESS__
#include <grpc/grpc.h>
#include <openssl/crypto.h>

#include <cstdlib>

#include "base/clock.h"
#endif

namespace flyt::control {

#ifdef __SANITIZE_ADDRESS__
namespace {

constexpr Duration kStep = std::chrono::milliseconds(10);
constexpr int kStepsMax = 500;

// They end with the last thing of gRPC's, which one of them may hold.
void await_threads() {
  for (int i = 0; i < kStepsMax && grpc_is_initialized() != 0; ++i) system_clock().sleep_for(kStep);
}

bool register_wait() {
  // What is registered later runs earlier; where no option is new it registers nothing.
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  return std::atexit(&await_threads) == 0;
}

}  // namespace

void end_threads_before_leaks_are_looked_for() {
  [[maybe_unused]] static const bool registered = register_wait();
}
#else
void end_threads_before_leaks_are_looked_for() {}
#endif

}  // namespace flyt::control
