#include "control/cluster/places.h"

#include <algorithm>
#include <string_view>

#include "control/settings/settings.h"

namespace flyt::cluster {
namespace {

constexpr std::string_view kTcp = "tcp://";

std::string plain(std::string host) {
  for (char& c : host) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (host.ends_with('.')) host.pop_back();
  return host;
}

}  // namespace

Places::Place Places::place_of(const std::string& address) {
  const auto parsed = control::parse_address(address);
  if (!parsed) return {address, 0};
  return {plain(parsed->host), parsed->port};
}

void Places::set(const std::string& node, const std::string& address) {
  remove(node);
  const Place place = place_of(address);
  of_node_.emplace(node, place);
  nodes_[place].push_back(node);
}

void Places::remove(const std::string& node) {
  const auto known = of_node_.find(node);
  if (known == of_node_.end()) return;
  const auto there = nodes_.find(known->second);
  std::erase(there->second, node);
  if (there->second.empty()) nodes_.erase(there);
  of_node_.erase(known);
}

std::optional<std::string> Places::node_at(const std::string& address, const Which& which) const {
  const auto there = nodes_.find(place_of(address));
  if (there == nodes_.end()) return std::nullopt;
  const auto found = std::find_if(there->second.begin(), there->second.end(), which);
  return found == there->second.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::string> Places::node_on(const std::string& host, const Which& which) const {
  const std::string wanted = plain(host);
  for (auto at = nodes_.lower_bound({wanted, 0}); at != nodes_.end() && at->first.host == wanted;
       ++at) {
    const auto found = std::find_if(at->second.begin(), at->second.end(), which);
    if (found != at->second.end()) return *found;
  }
  return std::nullopt;
}

std::vector<std::string> lease_hosts(const v1::NodeReport& report) {
  std::vector<std::string> hosts;
  const auto add = [&hosts](const std::string& host) {
    if (host.empty() || std::find(hosts.begin(), hosts.end(), host) != hosts.end()) return;
    hosts.push_back(host);
  };
  add(plain(report.lease_host()));
  for (const node::v1::Lease& lease : report.leases()) {
    for (const std::string& url : lease.urls()) {
      if (url.starts_with(kTcp)) add(host_of(url.substr(kTcp.size())));
    }
  }
  return hosts;
}

std::string host_of(const std::string& address) {
  const auto parsed = control::parse_address(address);
  return parsed ? plain(parsed->host) : std::string();
}

}  // namespace flyt::cluster
