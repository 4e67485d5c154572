// WrongTries: who has tried too many wrong secrets lately.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"

namespace flyt::cluster {

// Where a caller is, of what gRPC calls a peer: "ipv4:10.0.0.7:4711" without the port, which is
// another one each time; and of an address of IPv6 its network, of which one machine has all.
std::string origin_of(const std::string& peer);

// Some tries for each address, and more come back with time. Not thread-safe.
class WrongTries {
 public:
  static constexpr unsigned kTriesMost = 10;
  static constexpr Duration kTryBack = std::chrono::seconds(6);
  static constexpr std::size_t kAddressesMost = 1024;

  // False: it is not even looked at what it says.
  bool may_try(const std::string& address, Instant now);
  void wrong(const std::string& address, Instant now);

 private:
  // When the address has all its tries again. What is over is as good as not there.
  std::map<std::string, Instant> whole_at_;
};

}  // namespace flyt::cluster
