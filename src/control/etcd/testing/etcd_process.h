// EtcdProcess: a real etcd of one member, on loopback, with a folder of its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "control/settings/tls_files.h"

namespace flyt::control::testing {

class EtcdProcess {
 public:
  // Whether this machine has one.
  static bool installed();
  // With `tls`, clients need certificates. Null: it did not start.
  static std::unique_ptr<EtcdProcess> start(const TlsFiles& tls = {});
  ~EtcdProcess();
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  const std::string& address() const { return address_; }
  // SIGKILL; then again with the same folder and address.
  void kill();
  bool restart();
  // SIGSTOP and SIGCONT.
  void hold(bool still) const;

 private:
  EtcdProcess(std::string folder, TlsFiles tls)
      : folder_(std::move(folder)), tls_(std::move(tls)) {}
  bool launch();
  bool listens() const;

  const std::string folder_;
  const TlsFiles tls_;
  std::string address_;
  std::string peer_;
  pid_t pid_ = -1;
};

}  // namespace flyt::control::testing
