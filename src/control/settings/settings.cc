#include "control/settings/settings.h"

#include <unistd.h>

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "control/settings/each_setting.h"

namespace flyt::control {
namespace {

class TomlValue final : public SettingValue {
 public:
  explicit TomlValue(const toml::node& node) : node_(node) {}
  std::optional<std::string> text() const override { return node_.value_exact<std::string>(); }
  std::optional<std::int64_t> number() const override { return node_.value_exact<std::int64_t>(); }
  std::optional<bool> flag() const override { return node_.value_exact<bool>(); }
  std::optional<std::vector<std::string>> texts() const override {
    const toml::array* array = node_.as_array();
    if (array == nullptr) return std::nullopt;
    std::vector<std::string> all;
    for (const toml::node& element : *array) {
      auto one = element.value_exact<std::string>();
      if (!one) return std::nullopt;
      all.push_back(std::move(*one));
    }
    return all;
  }

 private:
  const toml::node& node_;
};

Error at(const std::string& file, const toml::source_region& where, const std::string& what) {
  return {ErrorCode::kInvalid, file + ":" + std::to_string(where.begin.line) + ": " + what};
}

template <class Map>
std::string names_of(const Map& map) {
  std::string names;
  for (const auto& entry : map) names += (names.empty() ? "" : ", ") + entry.first;
  return names;
}

Status take_table(const toml::table& table, const std::string& section, const SettingKeys& keys,
                  const std::string& file) {
  for (const auto& [name, value] : table) {
    const auto known = keys.find(name.str());
    const std::string key = section + "." + std::string(name.str());
    if (known == keys.end()) {
      return at(file, name.source(), "unknown key " + key + "; there are " + names_of(keys));
    }
    if (Status status = known->second(TomlValue(value)); !status) {
      return at(file, value.source(), key + ": " + status.error().message);
    }
  }
  return {};
}

}  // namespace

Error expected(std::string what) { return {ErrorCode::kInvalid, "expected " + std::move(what)}; }

Setter text_setting(std::string& out) {
  return [&out](const SettingValue& value) -> Status {
    const auto text = value.text();
    if (!text || text->empty()) return expected("a text, not empty");
    out = *text;
    return {};
  };
}

Setter one_of_setting(std::string& out, std::vector<std::string> choices) {
  return [&out, choices](const SettingValue& value) -> Status {
    const auto text = value.text();
    std::string list;
    for (const std::string& choice : choices) {
      if (text == choice) {
        out = choice;
        return {};
      }
      list += (list.empty() ? "\"" : ", \"") + choice + "\"";
    }
    return expected("one of " + list);
  };
}

Setter path_setting(std::string& out) {
  return [&out](const SettingValue& value) -> Status {
    const auto text = value.text();
    if (!text || !text->starts_with('/')) return expected("an absolute path");
    out = *text;
    return {};
  };
}

Setter flag_setting(bool& out) {
  return [&out](const SettingValue& value) -> Status {
    const auto flag = value.flag();
    if (!flag) return expected("true or false");
    out = *flag;
    return {};
  };
}

Setter texts_setting(std::vector<std::string>& out) {
  return [&out](const SettingValue& value) -> Status {
    auto texts = value.texts();
    if (!texts) return expected("a list of texts, such as [\"a\", \"b\"]");
    out = std::move(*texts);
    return {};
  };
}

Setter address_setting(std::string& out) {
  return [&out](const SettingValue& value) -> Status {
    const auto text = value.text();
    if (!text || !parse_address(*text)) return expected("\"HOST:PORT\"");
    out = *text;
    return {};
  };
}

Setter size_setting(std::uint64_t& out, std::uint64_t least, std::uint64_t most) {
  return [&out, least, most](const SettingValue& value) -> Status {
    Result<std::uint64_t> size = Error{};
    if (const auto bytes = value.number(); bytes && *bytes >= 0) {
      size = static_cast<std::uint64_t>(*bytes);
    } else if (const auto written = value.text()) {
      size = parse_size(*written);
    }
    if (!size || *size < least || *size > most) {
      return expected("a size from " + size_text(least) + " to " + size_text(most) +
                      ", such as \"600M\"");
    }
    out = *size;
    return {};
  };
}

Setter seconds_setting(std::uint32_t& out, std::uint32_t least, std::uint32_t most) {
  return [&out, least, most](const SettingValue& value) -> Status {
    Result<std::uint64_t> seconds = Error{};
    if (const auto number = value.number(); number && *number >= 0) {
      seconds = static_cast<std::uint64_t>(*number);
    } else if (const auto written = value.text()) {
      seconds = parse_seconds(*written);
    }
    if (!seconds || *seconds < least || *seconds > most) {
      return expected("a time from " + std::to_string(least) + " to " + std::to_string(most) +
                      " seconds, such as 90 or \"15m\"");
    }
    out = static_cast<std::uint32_t>(*seconds);
    return {};
  };
}

Status parse_settings(std::string_view text, const std::string& file,
                      const SettingSections& sections) {
  try {
    const toml::table root = toml::parse(text, file);
    for (const auto& [name, value] : root) {
      const auto section = sections.find(name.str());
      if (section == sections.end()) {
        return at(file, name.source(),
                  "unknown section or key " + std::string(name.str()) + "; there are " +
                      names_of(sections));
      }
      const toml::table* table = value.as_table();
      if (table == nullptr) {
        return at(file, value.source(), section->first + " is a section: [" + section->first + "]");
      }
      if (Status status = take_table(*table, section->first, section->second, file); !status) {
        return status;
      }
    }
  } catch (const toml::parse_error& error) {
    return at(file, error.source(), std::string(error.description()));
  }
  return {};
}

Status read_settings(const std::string& path, const SettingSections& sections) {
  const auto text = read_file(path);
  if (!text) return text.error();
  return parse_settings(*text, path, sections);
}

Status each_setting(std::string_view text, const std::string& file,
                    const std::function<Status(const SettingPlace&, const SettingValue&)>& take) {
  struct Found {
    SettingPlace place;
    const toml::node* node;
  };
  try {
    const toml::table root = toml::parse(text, file);
    std::vector<Found> all;
    const auto add = [&all](const std::string& section, const toml::table& table) {
      for (const auto& [name, value] : table) {
        if (section.empty() && value.is_table()) continue;
        all.push_back({{section, std::string(name.str()), name.source().begin.line}, &value});
      }
    };
    add("", root);
    for (const auto& [name, value] : root) {
      if (value.is_table()) add(std::string(name.str()), *value.as_table());
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Found& a, const Found& b) { return a.place.line < b.place.line; });
    for (const Found& one : all) {
      const Status status = take(one.place, TomlValue(*one.node));
      if (status) continue;
      const std::string key =
          (one.place.section.empty() ? "" : one.place.section + ".") + one.place.key;
      return at(file, one.node->source(), key + ": " + status.error().message);
    }
  } catch (const toml::parse_error& error) {
    return at(file, error.source(), std::string(error.description()));
  }
  return {};
}

Result<Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return expected("HOST:PORT");
  Address address;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string_view digits = text.substr(colon + 1);
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, address.port);
  // A URL is none.
  if (host.empty() || host.find('/') != host.npos || error != std::errc() || stop != end ||
      address.port == 0) {
    return expected("HOST:PORT");
  }
  address.host = host;
  return address;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Status check_doors(const std::string& api_tcp, const TlsFiles& files, const std::string& metrics) {
  if (!api_tcp.empty() && !files.complete()) {
    return Error{ErrorCode::kInvalid,
                 "api.tcp needs api.cert, api.key and api.ca: TCP is served with mutual TLS only"};
  }
  if (!metrics.empty() && !is_loopback(parse_address(metrics)->host)) {
    return Error{ErrorCode::kInvalid,
                 "metrics.listen must be a loopback address: it is served in the clear"};
  }
  return {};
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "machine";
  return name.data();
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("cannot read " + path, errno);
  std::ostringstream text;
  // A folder can be opened, and read as little as a bad disk.
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad()) return system_error("cannot read " + path, errno);
  return text.str();
}

Status check_readable(const NamedFiles& files) {
  std::string missing;
  for (const auto& [key, path] : files) {
    if (path.empty()) continue;
    const auto text = read_file(path);
    if (text && !text->empty()) continue;
    missing += (missing.empty() ? "" : "; ") + key + ": " +
               (text ? path + " is empty" : text.error().message);
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::kInvalid, std::move(missing)};
}

}  // namespace flyt::control
