#include "control/client/server_info.h"

#include <unistd.h>

#include "base/text.h"
#include "rpc/credential.h"
#include "rpc/no_pushes.h"
#include "transport/transport.h"

namespace flyt::control {
namespace {

constexpr std::size_t kTextBytesMax = 1024;

// Nobody listens there, or cannot be reached.
Error nobody_at(std::string_view url, const Error& error) {
  std::string_view why = error.message;
  const std::string front = std::string(url) + ": ";
  if (why.starts_with(front)) why.remove_prefix(front.size());
  return {error.code,
          "no GPU server at " + front + std::string(why) + "; does flyt-server listen there?"};
}

std::string version_text(std::uint32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) >= 0x20) out.push_back(c);
  }
  return out + "\"";
}

}  // namespace

Result<ServerInfo> greet(std::string_view text) {
  const auto url = transport::parse_url(text);
  if (!url) return url.error();
  const Instant deadline = system_clock().now() + kGreetTime;
  auto connection = transport::connect(*url, deadline);
  if (!connection) return nobody_at(text, connection.error());
  wire::ClientHello hello;
  hello.name = "flyt";
  hello.process_id = static_cast<std::uint32_t>(::getpid());
  hello.user_id = static_cast<std::uint32_t>(::getuid());
  // Who only asks takes no session of a token, and needs no driver.
  hello.role = wire::ConnectionRole::kMonitor;
  auto credential = rpc::own_credential();
  if (!credential) return std::move(credential).error();
  hello.credential = std::move(credential).value();
  rpc::NoPushes pushes;
  auto channel = rpc::Channel::open(std::move(connection).value(), hello, deadline, pushes);
  if (!channel) {
    const Error& why = channel.error();
    // What is wrong with a token only a new one mends.
    const bool token =
        why.code == ErrorCode::kDenied && why.message.find("token") != std::string::npos;
    return Error{why.code, "the GPU server at " + std::string(text) + ": " + why.message +
                               (token ? "; `flytctl token LEASE` issues one, which FLYT_TOKEN or"
                                        " FLYT_TOKEN_FILE has to have"
                                      : "")};
  }
  const wire::Welcome& welcome = (*channel)->welcome();
  ServerInfo info{.url = std::string(text),
                  .server = welcome.name,
                  .driver = welcome.driver,
                  .cuda_version = welcome.driver_version,
                  .protocol_version = welcome.version};
  static_cast<void>((*channel)->close(deadline).ok());
  return info;
}

std::string describe(const ServerInfo& info, bool json) {
  const std::string server = plain_text(info.server, kTextBytesMax);
  const std::string driver = plain_text(info.driver, kTextBytesMax);
  const std::string version = version_text(info.cuda_version);
  const std::string protocol = std::to_string(info.protocol_version);
  if (json) {
    return "{\"url\": " + quoted(info.url) + ", \"server\": " + quoted(server) +
           ", \"driver\": " + quoted(driver) + ", \"cuda\": " + quoted(version) +
           ", \"protocol\": " + protocol + "}\n";
  }
  return "url       " + info.url + "\nserver    " + server + "\ndriver    " + driver +
         "\ncuda      " + version + "\nprotocol  " + protocol + "\n";
}

}  // namespace flyt::control
