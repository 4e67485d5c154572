// Install: puts the client library where every program of a machine finds it, and takes it out
// again without a trace.
#pragma once

#include <string>

#include "base/result.h"

namespace flyt::cli {

struct InstallOptions {
  std::string root;      // Another system's root folder; empty: this one's.
  std::string library;   // The folder of the client libraries, as programs there see it.
  std::string ldconfig;  // The program; empty: where systems have it.
};

// An entry of ld.so.conf.d that comes before all others, and the loader's cache made anew. What was
// there is kept in a journal before anything is touched. The text tells what was done. kDenied: it
// is installed already.
Result<std::string> install_client(const InstallOptions& options);

// Puts everything back byte for byte, also after an installation that was cut off. A file that
// somebody changed since is left alone, and named in an error; the cache is then made anew.
Result<std::string> restore_client(const InstallOptions& options);

}  // namespace flyt::cli
