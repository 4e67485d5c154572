// Lease: what a server gives to all of its sessions together, as its options say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flyt::server {

inline constexpr std::size_t kLeaseIdBytesMax = 64;

struct LeaseOptions {
  std::string id;                  // For people, logs and tokens; empty: none.
  std::string gpu;                 // Number or UUID of the only GPU that is shown; empty: all.
  std::uint64_t memory_bytes = 0;  // Quota of all sessions together; 0: none.
  std::uint32_t sms = 0;           // 0: all.
  std::vector<std::uint32_t> sm_groups;  // Those that give them; empty: the first ones.
  std::string token_key;   // The file with the key of the clients' tokens; empty: none.
  std::string token_book;  // The file of those in use; empty: they are forgotten with the server.
};

// Letters, digits, '.', '_' and '-': fit for logs and names of files.
bool valid_lease_id(const std::string& id);

}  // namespace flyt::server
