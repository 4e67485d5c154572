// Handoff: the small channels between the server's parent and its children.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::server {

// Two ends: of a pipe, or of a pair of Unix sockets.
struct Ends {
  Fd reading;
  Fd writing;
};
Result<Ends> make_pipe();
Result<Ends> make_socket_pair();
// Whoever writes to it does not wait.
void make_impatient(const Fd& end);

// Nobody can send to it any more; what was sent before can be received.
void close_to_sender(const Fd& end);

// A secret that nobody guesses, and whether two are the same, in a time that tells nothing.
wire::SessionToken make_token();
bool same_token(const wire::SessionToken& one, const wire::SessionToken& other);

// What a warm process is told about its client, in the words that send_fd() carries.
struct ClientNote {
  bool may_share = false;  // The session may go on in shared memory.
  wire::SessionToken token{};
};
std::string encode(const ClientNote& note);
ClientNote decode_client_note(std::string_view text);

// As far as it goes: who reads the other end notices what is missing.
void write_all(int fd, std::string_view text);
// Until the other end is closed.
std::string read_all(int fd);

// Whether a session may have lanes: within a machine they would not be quicker.
bool may_have_lanes(const transport::Connection& connection);

// Tells a client why it gets no session.
inline constexpr std::string_view kAtTheEnd = "the server takes nobody any more: it ends";
inline constexpr std::string_view kNoHello = "no complete hello came in time";
void refuse_late(transport::Connection& connection);
void refuse_bad_hello(transport::Connection& connection, const Error& why);
void refuse_unknown_session(transport::Connection& connection);
void refuse_to_go_on(transport::Connection& connection, std::string_view why);
void refuse_full(transport::Connection& connection);
void refuse_at_the_end(transport::Connection& connection);
void refuse_denied(transport::Connection& connection, std::string_view why);
void refuse_gpu_full(transport::Connection& connection, std::string_view why);
void refuse_without_driver(transport::Connection& connection, std::string_view why);

// The hello of a connection whose hello has come, without taking it; an error if it is none, or one
// that there can be no session with.
Result<wire::ClientHello> peek_hello(const transport::Connection& connection);

// Closes a child's copy of a listening socket without ending the listening.
void close_in_child(transport::Listener& listener);

}  // namespace flyt::server
