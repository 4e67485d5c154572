// The configurations of the Flyt that this one descends from, made into ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace flyt::cli {

// Where and how ours will run; theirs do not tell.
struct ImportPlace {
  std::uint16_t port = 7700;         // Of the cluster manager, for all.
  std::string host;                  // As the cluster manager reaches a node.
  std::string folder = "/etc/flyt";  // Of certificates.
};

// A setting that has no place in ours.
struct NotCarried {
  std::size_t line = 0;  // 0: of none.
  std::string key;       // "ipc.mqueue-path"
  std::string why;
};

struct Imported {
  std::string program;  // "cluster", "node" or "client": whose file it is.
  std::string toml;
  std::vector<NotCarried> left;
};

// kInvalid: FILE:LINE, what it is and what was expected. Passwords are in neither of the results.
Result<Imported> import_ancestor(std::string_view text, const std::string& file,
                                 const ImportPlace& place);

}  // namespace flyt::cli
