#include "control/cluster/requirements/requirement.h"

#include <algorithm>
#include <cmath>

namespace flyt::cluster::requirements {
namespace {

constexpr std::size_t kTextBytesMax = 256;
constexpr std::size_t kShownBytesMax = 64;
constexpr std::size_t kUriBytesMax = 4096;
constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kMemoryMiBMax = 1ull << 22;
constexpr std::uint64_t kSmsMax = 4096;

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

// As logs may have it.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShownBytesMax));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kShownBytesMax ? out + "..." : out;
}

Result<std::string> text_of(const Row& row, std::string_view field, bool needed) {
  const auto found = row.fields.find(field);
  if (found == row.fields.end()) {
    if (needed) return invalid(std::string(field) + " is missing");
    return std::string();
  }
  const auto* text = std::get_if<std::string>(&found->second);
  const bool good =
      text != nullptr && (!needed || !text->empty()) && text->size() <= kTextBytesMax &&
      std::all_of(text->begin(), text->end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!good) return invalid(std::string(field) + " is no text of at most 256 printable characters");
  return *text;
}

// Shells write numbers as doubles.
Result<std::uint64_t> number_of(const Row& row, std::string_view field, std::uint64_t most) {
  const auto found = row.fields.find(field);
  if (found == row.fields.end()) return invalid(std::string(field) + " is missing");
  const Error wrong =
      invalid(std::string(field) + " is no whole number from 1 to " + std::to_string(most));
  if (const auto* whole = std::get_if<std::int64_t>(&found->second)) {
    if (*whole < 1 || static_cast<std::uint64_t>(*whole) > most) return wrong;
    return static_cast<std::uint64_t>(*whole);
  }
  const auto* number = std::get_if<double>(&found->second);
  if (number == nullptr || !(*number >= 1 && *number <= static_cast<double>(most)) ||
      std::trunc(*number) != *number) {
    return wrong;
  }
  return static_cast<std::uint64_t>(*number);
}

std::string name_of(const Row& row) {
  const auto vm = text_of(row, "vm_ip", true);
  return vm ? shown(*vm) + " (" + shown(row.id) + ")" : shown(row.id);
}

}  // namespace

Result<Requirement> requirement_of(const Row& row) {
  const auto vm = text_of(row, "vm_ip", true);
  if (!vm) return vm.error();
  const auto host = text_of(row, "host_ip", false);
  if (!host) return host.error();
  const auto sms = number_of(row, "compute_units", kSmsMax);
  if (!sms) return sms.error();
  const auto memory = number_of(row, "memory", kMemoryMiBMax);
  if (!memory) return memory.error();
  return Requirement{*vm, *host, static_cast<std::uint32_t>(*sms), *memory * kMiB};
}

void Answer::note(std::string row, std::string why) {
  ++skipped_count_;
  if (skipped_.size() < kSkippedNamedMax) skipped_.push_back({std::move(row), std::move(why)});
}

void Answer::add(const Row& row) {
  if (full()) return cut();
  ++rows_;
  auto requirement = requirement_of(row);
  if (requirement) {
    const std::string vm = requirement->vm;
    if (vms_.emplace(vm, std::move(*requirement)).second) return;
    return note(name_of(row), "there is a row of this VM before it");
  }
  note(name_of(row), requirement.error().message);
  if (const auto vm = text_of(row, "vm_ip", true)) named_.insert(*vm);
}

void Answer::skip(std::string_view row, std::string why) {
  if (full()) return cut();
  ++rows_;
  note(shown(row), std::move(why));
}

Difference difference(const std::vector<Known>& known, const Answer& answer) {
  Difference difference;
  std::map<std::string_view, const Known*> of;
  for (const Known& vm : known) {
    // A name goes before an address, as where VMs are asked for.
    of[vm.name] = &vm;
    if (!vm.address.empty()) of.emplace(vm.address, &vm);
  }
  std::set<const Known*> taken;
  for (const auto& [vm, wanted] : answer.vms()) {
    const auto found = of.find(vm);
    if (found != of.end()) {
      const Known& is = *found->second;
      if (!taken.insert(&is).second) {
        difference.refused.push_back({vm, "another row names the VM " + is.name + ", too"});
        continue;
      }
      const bool same = is.listed && is.host == wanted.host && is.sms == wanted.sms &&
                        is.memory_bytes == wanted.memory_bytes;
      if (same) continue;
    }
    difference.changed.push_back(wanted);
  }
  if (!answer.complete()) return difference;
  for (const Known& vm : known) {
    if (!vm.listed || answer.names(vm.name)) continue;
    if (!vm.address.empty() && answer.names(vm.address)) continue;
    difference.gone.push_back(vm.name);
  }
  return difference;
}

std::string shown_uri(std::string_view uri) {
  const std::size_t scheme = uri.find("://");
  if (scheme == uri.npos) return "no URI";
  std::string_view rest = uri.substr(scheme + 3);
  // A password that is written as it should not be may have a slash in it.
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) rest = rest.substr(at + 1);
  return std::string(uri.substr(0, scheme + 3)) + shown(rest.substr(0, rest.find_first_of("/?")));
}

Status check_uri(std::string_view uri) {
  const Error wrong = invalid("mongodb://HOST[:PORT][,...]/[?OPTION=VALUE&...]");
  const bool good = uri.size() <= kUriBytesMax &&
                    (uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://")) &&
                    std::all_of(uri.begin(), uri.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!good || shown_uri(uri).ends_with("://")) return wrong;
  return {};
}

std::string without_secret(std::string text, std::string_view secret) {
  if (secret.empty()) return text;
  for (std::size_t at = text.find(secret); at != text.npos; at = text.find(secret, at + 3)) {
    text.replace(at, secret.size(), "***");
  }
  return text;
}

}  // namespace flyt::cluster::requirements
