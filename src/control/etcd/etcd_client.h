// EtcdClient: etcd over the network.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/etcd/etcd.h"
#include "control/settings/tls_files.h"

namespace flyt::control {

// "etcd:HOST:PORT[,HOST:PORT...]": its members. kInvalid: it is something else.
Result<std::vector<std::string>> parse_etcd_url(std::string_view url);

// Asks one member, and the next one where that does not answer. Without `files` in the clear: for
// loopback addresses, or networks that nobody else is in. An error: a file cannot be read.
Result<std::unique_ptr<Etcd>> connect_to_etcd(const std::vector<std::string>& members,
                                              const TlsFiles& files);

}  // namespace flyt::control
