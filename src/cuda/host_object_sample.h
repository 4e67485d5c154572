// Host object files and archives for tests, as small as they may be.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace flyt::cuda {

// An object file of x86-64 with one section of these bytes.
inline std::vector<std::byte> host_object(std::string_view section, Bytes bytes) {
  const std::string names = std::string(1, '\0') + ".shstrtab" + '\0' + std::string(section) + '\0';
  constexpr std::size_t kHeader = 64;
  const std::size_t content = (bytes.size() + 7) / 8 * 8;
  const std::size_t table = (names.size() + 7) / 8 * 8;
  std::vector<std::byte> object(kHeader + content + table + 3 * kHeader);
  Writer writer(object);
  writer.write_bytes(
      bytes_of(std::string_view("\x7f"
                                "ELF\x02\x01\x01",
                                7)));
  writer.skip(9);
  for (const std::uint16_t each : {1, 62}) writer.write(each);  // A part, of x86-64.
  writer.write(std::uint32_t{1});
  writer.skip(16);
  writer.write(std::uint64_t{kHeader + content + table});
  writer.write(std::uint32_t{0});
  for (const std::uint16_t each : {64, 0, 0, 64, 3, 1}) writer.write(each);
  std::memcpy(writer.skip(content).data(), bytes.data(), bytes.size());
  std::memcpy(writer.skip(table).data(), names.data(), names.size());
  writer.skip(kHeader);
  const auto header = [&](std::uint32_t name, std::uint32_t type, std::uint64_t flags,
                          std::uint64_t at, std::uint64_t size) {
    writer.write(name);
    writer.write(type);
    writer.write(flags);
    for (const std::uint64_t each : {std::uint64_t{0}, at, size, std::uint64_t{0}}) {
      writer.write(each);
    }
    for (const std::uint64_t each : {8, 0}) writer.write(each);
  };
  header(1, 3, 0, kHeader + content, names.size());
  header(11, 1, 2, kHeader, bytes.size());
  return object;
}

inline std::vector<std::byte> archive(
    const std::vector<std::pair<std::string_view, Bytes>>& members) {
  std::string text = "!<arch>\n";
  const auto field = [&](std::string_view value, std::size_t width) {
    text += std::string(value) + std::string(width - value.size(), ' ');
  };
  for (const auto& [name, bytes] : members) {
    field(name, 16);
    field("0", 12);
    field("0", 6);
    field("0", 6);
    field("644", 8);
    field(std::to_string(bytes.size()), 10);
    text += "`\n";
    text += text_of(bytes);
    if (bytes.size() % 2 != 0) text += '\n';
  }
  const Bytes bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace flyt::cuda
