// ForwardingConnection: does what another connection does, but for what a test overrides.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/transport.h"

namespace flyt::rpc::testing {

class ForwardingConnection : public transport::Connection {
 public:
  explicit ForwardingConnection(std::unique_ptr<transport::Connection> inner)
      : inner_(std::move(inner)) {}

  Result<std::size_t> read(std::span<const MutableBytes> into,
                           transport::Patience patience) override {
    return inner_->read(into, patience);
  }
  Result<std::size_t> write(std::span<const Bytes> from, transport::Patience patience) override {
    return inner_->write(from, patience);
  }
  transport::ReadySet wait(transport::ReadySet wanted, Instant deadline,
                           const transport::Wakeup* wakeup) override {
    return inner_->wait(wanted, deadline, wakeup);
  }
  void shut_down() override { inner_->shut_down(); }
  void abandon() override { inner_->abandon(); }
  bool eager() const override { return inner_->eager(); }
  int shared_file() const override { return inner_->shared_file(); }
  void set_notice(bool on) override { inner_->set_notice(on); }
  bool notice() const override { return inner_->notice(); }
  void show_waiting() override { inner_->show_waiting(); }
  std::uint32_t waiting_shown() const override { return inner_->waiting_shown(); }
  void release_memory() override { inner_->release_memory(); }
  int fd() const override { return inner_->fd(); }
  std::string peer() const override { return inner_->peer(); }

 private:
  const std::unique_ptr<transport::Connection> inner_;
};

}  // namespace flyt::rpc::testing
