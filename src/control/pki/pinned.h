// Pinned: finds an authority of which only the fingerprint is known.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace flyt::pki {

// Of what a server shows in its handshake the certificate with this fingerprint, in PEM. The server
// itself is not believed, and is told nothing: what it is sent has to go over another connection,
// on which the authority that was found is looked for. kDenied: it shows none.
Result<std::string> find_authority(const std::string& host, std::uint16_t port,
                                   const std::string& fingerprint, Instant deadline);

}  // namespace flyt::pki
