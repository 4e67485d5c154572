#include "control/cluster/wrong_tries.h"

#include <arpa/inet.h>  // lint: allow(sockets): an address is read

#include <algorithm>
#include <array>

namespace flyt::cluster {
namespace {

// Where too many addresses are known the others are one.
const std::string kOthers = "others";

constexpr std::string_view kV6 = "ipv6:";
constexpr std::size_t kNetworkBytes = 8;

// "[::1]", or with its brackets as URIs have them.
std::string without_brackets(std::string text) {
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"[", "]"}, {"%5B", "%5D"}}) {
    if (!text.starts_with(open) || !text.ends_with(close)) continue;
    return text.substr(open.size(), text.size() - open.size() - close.size());
  }
  return text;
}

}  // namespace

std::string origin_of(const std::string& peer) {
  const std::string address = peer.substr(0, peer.rfind(':'));
  if (!address.starts_with(kV6)) return address;
  std::array<unsigned char, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  // A zone is behind a '%'.
  const std::string plain = without_brackets(address.substr(kV6.size()));
  if (::inet_pton(AF_INET6, plain.substr(0, plain.find('%')).c_str(), bytes.data()) != 1) {
    return address;
  }
  // An address of IPv4 in one of IPv6 is a machine's.
  const bool mapped = std::all_of(bytes.begin(), bytes.begin() + 10, [](auto b) { return b == 0; });
  if (mapped) return address;
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), 0);
  if (::inet_ntop(AF_INET6, bytes.data(), text.data(), text.size()) == nullptr) return address;
  return std::string(kV6) + text.data() + "/64";
}

bool WrongTries::may_try(const std::string& address, Instant now) {
  auto known = whole_at_.find(address);
  if (known == whole_at_.end() && whole_at_.size() > kAddressesMost)
    known = whole_at_.find(kOthers);
  return known == whole_at_.end() || known->second - now <= kTryBack * (kTriesMost - 1);
}

void WrongTries::wrong(const std::string& address, Instant now) {
  std::erase_if(whole_at_, [now](const auto& one) { return one.second <= now; });
  const bool full = whole_at_.size() >= kAddressesMost && !whole_at_.contains(address);
  Instant& at = whole_at_[full ? kOthers : address];
  at = std::max(at, now) + kTryBack;
}

}  // namespace flyt::cluster
