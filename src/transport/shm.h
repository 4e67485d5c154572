// Shared memory: a connection through two rings that client and server have both mapped.
//
// It begins as a Unix socket, over which the hellos go. If both sides want it, the server makes the
// memory and hands it over the socket, which from then on only tells that the peer lives. Nobody
// spins here: a side that has nothing to do sleeps on a bell (a pipe), and is rung only if it said
// so. Each side has the bells open for itself, so that the peer cannot make reading or ringing one
// wait.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace flyt::transport {

// The memory, shared file and bells of one connection, before they are handed over.
class SharedRings {
 public:
  // `file`: the shared file of a connection before, which goes on in this one; none: a new one.
  static Result<SharedRings> make(Fd file = {});

  SharedRings(SharedRings&&) = default;
  SharedRings& operator=(SharedRings&&) = default;

 private:
  friend Result<std::unique_ptr<Connection>> offer_rings(std::unique_ptr<Connection> socket,
                                                         SharedRings rings);
  friend Result<std::unique_ptr<Connection>> take_rings(std::unique_ptr<Connection> socket,
                                                        Instant deadline);
  friend class SharedConnection;
  SharedRings() = default;

  enum Bell : std::uint8_t { kServerReads, kServerWrites, kClientReads, kClientWrites, kBells };
  Fd memory_;
  Fd file_;
  Fd bells_[kBells];
};

// Whether this process can open bells for itself: whoever cannot must not ask for shared memory.
bool may_have_bells();

// Could a connection over this socket go on in shared memory?
bool may_share_memory(const Connection& connection);

// The server's half: sends the rings to the peer, and goes on with them.
Result<std::unique_ptr<Connection>> offer_rings(std::unique_ptr<Connection> socket,
                                                SharedRings rings);

// The client's half: takes what the server sends. Refuses memory that is not as agreed.
Result<std::unique_ptr<Connection>> take_rings(std::unique_ptr<Connection> socket,
                                               Instant deadline);

}  // namespace flyt::transport
