#include "nvml/gpu.h"

#include <algorithm>
#include <charconv>

namespace flyt::nvml {
namespace {

constexpr std::size_t kRowBytesMax = 160;

std::string hexadecimal(std::uint64_t value, int digits) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out(static_cast<std::size_t>(digits), '0');
  for (auto at = out.rbegin(); at != out.rend(); ++at, value >>= 4) *at = kDigits[value & 15];
  return out;
}

// Takes the number in front of `end` (or all that is left) off the text.
bool take(std::string_view& text, char end, std::uint32_t& value) {
  const std::size_t length = std::min(text.find(end), text.size());
  const auto part = text.substr(0, length);
  const auto read = std::from_chars(part.data(), part.data() + part.size(), value, 16);
  if (part.empty() || read.ec != std::errc() || read.ptr != part.data() + part.size()) return false;
  text.remove_prefix(std::min(length + 1, text.size()));
  return true;
}

}  // namespace

std::string uuid_text(const Gpu& gpu) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "GPU-";
  for (std::size_t i = 0; i < gpu.uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out.push_back('-');
    out.push_back(kDigits[gpu.uuid[i] >> 4]);
    out.push_back(kDigits[gpu.uuid[i] & 15]);
  }
  return out;
}

std::string pci_text(const Gpu& gpu, int domain_digits) {
  return hexadecimal(gpu.pci_domain, domain_digits) + ":" + hexadecimal(gpu.pci_bus, 2) + ":" +
         hexadecimal(gpu.pci_device, 2) + ".0";
}

bool parse_pci(std::string_view text, std::uint32_t& domain, std::uint32_t& bus,
               std::uint32_t& device) {
  domain = 0;
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons != 1 && colons != 2) return false;
  if (colons == 2 && !take(text, ':', domain)) return false;
  if (!take(text, ':', bus)) return false;
  const bool has_function = text.find('.') != std::string_view::npos;
  if (!take(text, '.', device)) return false;
  std::uint32_t function = 0;
  return !has_function || (take(text, '\0', function) && function == 0);
}

std::vector<std::byte> encode(const std::vector<Gpu>& gpus) {
  const std::size_t count = std::min<std::size_t>(gpus.size(), kGpusMax);
  std::vector<std::byte> out(4 + count * kRowBytesMax);
  Writer writer(out);
  writer.write(static_cast<std::uint32_t>(count));
  for (const Gpu& gpu : std::span(gpus).first(count)) {
    const std::string_view name = std::string_view(gpu.name).substr(0, kNameBytesMax);
    writer.write(static_cast<std::uint8_t>(name.size()));
    writer.write_bytes(bytes_of(name));
    writer.write(gpu.uuid);
    for (const std::uint32_t value :
         {gpu.pci_domain, gpu.pci_bus, gpu.pci_device, gpu.pci_id, gpu.pci_subsystem,
          gpu.capability_major, gpu.capability_minor, gpu.compute_mode}) {
      writer.write(value);
    }
    writer.write(gpu.memory_bytes);
  }
  out.resize(writer.used());
  return out;
}

Result<std::vector<Gpu>> decode_gpus(Bytes bytes) {
  Reader reader(bytes);
  const auto count = reader.take<std::uint32_t>();
  if (count > kGpusMax) return Error{ErrorCode::kInvalid, "too many GPUs"};
  std::vector<Gpu> gpus(count);
  for (Gpu& gpu : gpus) {
    const auto name_bytes = reader.take<std::uint8_t>();
    if (name_bytes > kNameBytesMax) reader.fail();
    gpu.name = text_of(reader.take_bytes(name_bytes));
    reader.read(gpu.uuid);
    for (std::uint32_t* value :
         {&gpu.pci_domain, &gpu.pci_bus, &gpu.pci_device, &gpu.pci_id, &gpu.pci_subsystem,
          &gpu.capability_major, &gpu.capability_minor, &gpu.compute_mode}) {
      reader.read(*value);
    }
    reader.read(gpu.memory_bytes);
  }
  if (!reader.finished()) return Error{ErrorCode::kInvalid, "malformed description of GPUs"};
  return gpus;
}

}  // namespace flyt::nvml
