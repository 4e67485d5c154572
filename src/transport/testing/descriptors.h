// Descriptors sent with bytes over a Unix socket as the system has it, whatever the peer expects.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace flyt::transport {

// What sendmsg() returns.
inline ssize_t send_with_descriptors(int socket, Bytes bytes, std::span<const int> files) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<cmsghdr> control(CMSG_SPACE(files.size_bytes()) / sizeof(cmsghdr) + 1);
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace flyt::transport
