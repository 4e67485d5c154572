// Windows: the device addresses that a session reserves before its first command.
#pragma once

#include <vector>

#include "driver/table.h"
#include "server/memory/arena.h"
#include "wire/hello.h"

namespace flyt::server {

// Takes, of each purpose (arena and vmm), the first window that the client offers and the driver
// can reserve, or the front part of it; a purpose may be missing from the result, and then the
// driver chooses addresses (arena), or the program cannot map memory itself (vmm). The driver must
// be initialised; no context is needed. What is reserved stays so until the process ends.
std::vector<wire::Window> take_windows(const std::vector<wire::Window>& offered,
                                       const driver::Table& driver);

// The window of a purpose; 0 bytes if it is not among `windows`.
AddressWindow window_for(const std::vector<wire::Window>& windows, wire::WindowPurpose purpose);

}  // namespace flyt::server
