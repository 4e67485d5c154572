// Settings: TOML files of our programs: sections of keys, each with what it may be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/settings/tls_files.h"

namespace flyt::control {

// What a key has in the file; none of another type.
class SettingValue {
 public:
  virtual ~SettingValue() = default;
  virtual std::optional<std::string> text() const = 0;
  virtual std::optional<std::int64_t> number() const = 0;
  virtual std::optional<bool> flag() const = 0;
  virtual std::optional<std::vector<std::string>> texts() const = 0;
};

// Takes a value, or says what was expected.
using Setter = std::function<Status(const SettingValue&)>;
using SettingKeys = std::map<std::string, Setter, std::less<>>;
using SettingSections = std::map<std::string, SettingKeys, std::less<>>;

Error expected(std::string what);

Setter text_setting(std::string& out);
Setter one_of_setting(std::string& out, std::vector<std::string> choices);
// An absolute path.
Setter path_setting(std::string& out);
Setter flag_setting(bool& out);
Setter texts_setting(std::vector<std::string>& out);
// "HOST:PORT"
Setter address_setting(std::string& out);
// Bytes, or a text such as "600M".
Setter size_setting(std::uint64_t& out, std::uint64_t least, std::uint64_t most);
// Seconds, or a text such as "15m".
Setter seconds_setting(std::uint32_t& out, std::uint32_t least, std::uint32_t most);

template <class T>
Setter number_setting(T& out, std::int64_t least, std::int64_t most) {
  return [&out, least, most](const SettingValue& value) -> Status {
    const auto number = value.number();
    if (!number || *number < least || *number > most) {
      return expected("a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    out = static_cast<T>(*number);
    return {};
  };
}

// An error says FILE:LINE, the key and what it should be. What is unknown is an error, and named.
Status parse_settings(std::string_view text, const std::string& file,
                      const SettingSections& sections);
Status read_settings(const std::string& path, const SettingSections& sections);

// HOST:PORT or [HOST]:PORT, with a port from 1 on.
struct Address {
  std::string host;
  std::uint16_t port = 0;
};
Result<Address> parse_address(std::string_view text);
bool is_loopback(std::string_view host);

// What all sections api and metrics must keep to: TCP is served with certificates, pages to this
// machine only.
Status check_doors(const std::string& api_tcp, const TlsFiles& files, const std::string& metrics);

// As the system calls this machine.
std::string machine_name();

// A whole file.
Result<std::string> read_file(const std::string& path);

// Files that are to be there, each by the key of the setting that names it. An empty name: none.
using NamedFiles = std::vector<std::pair<std::string, std::string>>;
// kInvalid: names each that cannot be read, and why.
Status check_readable(const NamedFiles& files);

// What `parse`, which is given a file's text and name, makes of one.
template <class Config>
Result<Config> read_parsed(const std::string& path,
                           Result<Config> (*parse)(std::string_view, const std::string&)) {
  const auto text = read_file(path);
  if (!text) return text.error();
  return parse(*text, path);
}

}  // namespace flyt::control
