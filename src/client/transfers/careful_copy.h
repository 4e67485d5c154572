// CarefulCopy: copies from and to memory of the program that it may have given back meanwhile.
#pragma once

#include "base/bytes.h"
#include "base/fd.h"

namespace flyt::client {

// The system reads and writes in our place, and tells where there is no memory instead of ending
// the process. Belongs to one owner, whose lock guards it.
class CarefulCopy {
 public:
  CarefulCopy();

  // Fills `to` from `from`; bytes that cannot be read stay as they are.
  void read(MutableBytes to, const std::byte* from) const;
  // Writes to `to` what in `from` differs from `before`; nothing where it cannot be written.
  void write(std::byte* to, Bytes from, Bytes before) const;

 private:
  bool move(std::byte* to, const std::byte* from, std::size_t bytes) const;

  Fd file_;  // What is copied passes through it.
};

}  // namespace flyt::client
