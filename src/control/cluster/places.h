// Places: where nodes are reached, so that none takes the place of another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/cluster.pb.h"

namespace flyt::cluster {

// Hosts are compared as they are written, but for case and a last dot: whether two names are one
// machine is what certificates tell.
class Places {
 public:
  using Which = std::function<bool(const std::string& node)>;

  void set(const std::string& node, const std::string& address);
  void remove(const std::string& node);

  // Of those that `which` holds for: the node at this very address.
  std::optional<std::string> node_at(const std::string& address, const Which& which) const;
  // And one on this host.
  std::optional<std::string> node_on(const std::string& host, const Which& which) const;

 private:
  struct Place {
    std::string host;  // Of a Unix socket the whole address.
    std::uint16_t port = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  static Place place_of(const std::string& address);

  std::map<std::string, Place> of_node_;
  std::map<Place, std::vector<std::string>> nodes_;  // In the order of hosts.
};

// The hosts at which a node says that VMs' programs reach its leases, each once.
std::vector<std::string> lease_hosts(const v1::NodeReport& report);
// The host of HOST:PORT; empty: it is none.
std::string host_of(const std::string& address);

}  // namespace flyt::cluster
