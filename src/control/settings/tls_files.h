// TlsFiles: who somebody is, as files say it.
#pragma once

#include <string>

namespace flyt::control {

// PEM files: a certificate, its key, and who signs the other side's.
struct TlsFiles {
  std::string cert;
  std::string key;
  std::string ca;

  bool complete() const { return !cert.empty() && !key.empty() && !ca.empty(); }
};

}  // namespace flyt::control
