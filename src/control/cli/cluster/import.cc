#include "control/cli/cluster/import.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace flyt::cli {
namespace {

using Json = nlohmann::json;
namespace v1 = cluster::v1;

Error wrong(const std::string& what) { return {ErrorCode::kInvalid, what}; }

Status take_text(const Json& value, std::string* out) {
  if (!value.is_string()) return wrong("a text is expected");
  *out = value.get<std::string>();
  return {};
}

// Of whichever kind: MongoDB's shells write numbers as doubles, mongoexport those as 8.0 and some
// as objects, {"$numberLong": "8"}.
Result<std::uint64_t> whole(const Json& value) {
  constexpr double kExact = 1ull << 53;
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_object() && value.size() == 1 && value.begin().value().is_string() &&
      value.begin().key().starts_with("$number")) {
    const Json number = Json::parse(value.begin().value().get<std::string>(), nullptr, false);
    if (number.is_number()) return whole(number);
  }
  const double number = value.is_number_float() ? value.get<double>() : -1;
  if (number >= 0 && number <= kExact && number == std::floor(number)) {
    return static_cast<std::uint64_t>(number);
  }
  return wrong("a whole number is expected");
}

Status take_sms(const Json& value, void (v1::VmSpec::*set)(std::uint32_t), v1::VmSpec& spec) {
  const auto sms = whole(value);
  if (!sms) return sms.error();
  if (*sms > UINT32_MAX) return wrong("there are not so many multiprocessors");
  (spec.*set)(static_cast<std::uint32_t>(*sms));
  return {};
}

// Ours is in bytes, or a text such as "20G"; an earlier Flyt's in MiB.
Status take_memory(const Json& value, std::uint64_t unit, v1::VmSpec& spec) {
  const auto memory =
      unit == 1 && value.is_string() ? parse_size(value.get<std::string>()) : whole(value);
  if (!memory) return memory.error();
  if (*memory > (1ull << 42) / unit) return wrong("there is not so much memory");
  spec.set_memory_bytes(*memory * unit);
  return {};
}

Status take_labels(const Json& value, v1::VmSpec& spec) {
  if (!value.is_object()) return wrong("an object of texts is expected");
  for (const auto& [key, label] : value.items()) {
    if (!label.is_string()) return wrong("an object of texts is expected");
    (*spec.mutable_labels())[key] = label.get<std::string>();
  }
  return {};
}

Status take_apart(const Json& value, v1::VmSpec& spec) {
  if (!value.is_array()) return wrong("a list of texts is expected");
  for (const Json& key : value) {
    if (!key.is_string()) return wrong("a list of texts is expected");
    spec.add_apart(key.get<std::string>());
  }
  return {};
}

Status take_field(const std::string& key, const Json& value, v1::VmSpec& spec) {
  if (key == "name") return take_text(value, spec.mutable_name());
  if (key == "address" || key == "vm_ip") return take_text(value, spec.mutable_address());
  if (key == "host" || key == "host_ip") return take_text(value, spec.mutable_host());
  if (key == "policy") return take_text(value, spec.mutable_policy());
  if (key == "sms" || key == "compute_units") return take_sms(value, &v1::VmSpec::set_sms, spec);
  if (key == "sms_min") return take_sms(value, &v1::VmSpec::set_sms_min, spec);
  if (key == "sms_max") return take_sms(value, &v1::VmSpec::set_sms_max, spec);
  if (key == "memory_bytes") return take_memory(value, 1, spec);
  if (key == "memory") return take_memory(value, value.is_string() ? 1 : 1ull << 20, spec);
  if (key == "labels") return take_labels(value, spec);
  if (key == "apart") return take_apart(value, spec);
  if (key == "priority") {
    if (!value.is_number_integer()) return wrong("a whole number is expected");
    const auto priority = value.get<std::int64_t>();
    if (priority < -1000 || priority > 1000) return wrong("a priority is from -1000 to 1000");
    spec.set_priority(static_cast<std::int32_t>(priority));
    return {};
  }
  if (key == "keep" || key == "share_sms") {
    if (!value.is_boolean()) return wrong("true or false is expected");
    key == "keep" ? spec.set_keep(value.get<bool>()) : spec.set_share_sms(value.get<bool>());
    return {};
  }
  if (key == "mode") {
    std::string mode;
    if (Status status = take_text(value, &mode); !status) return status;
    if (mode == "isolated") spec.set_mode(node::v1::MODE_ISOLATED);
    if (mode == "shared") spec.set_mode(node::v1::MODE_SHARED);
    const bool any = mode.empty() || mode == "any" || mode == "unspecified";
    if (any || spec.mode() != node::v1::MODE_UNSPECIFIED) return {};
    return wrong("isolated, shared or any is expected");
  }
  // As `flytctl --json vms` and databases have it; it cannot be set.
  if (key == "_id" || key == "source") return {};
  return wrong("a VM has no such field");
}

Status take_vm(const Json& object, v1::VmSpec& spec) {
  // `flytctl --json vms` tells more of a VM than its requirements.
  if (object.is_object() && object.contains("spec")) return take_vm(object["spec"], spec);
  if (!object.is_object()) return wrong("it is no object");
  for (const auto& [key, value] : object.items()) {
    if (Status status = take_field(key, value, spec); !status) {
      return wrong(key + ": " + status.error().message);
    }
  }
  // Flyt knows VMs by their addresses alone.
  if (spec.name().empty()) spec.set_name(spec.address());
  if (spec.name() == spec.address()) spec.clear_address();
  return {};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (text.substr(0, end).find_first_not_of(" \t\r") != std::string_view::npos) {
      lines.push_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Result<v1::SetVmsRequest> vms_of(std::string_view text, const std::string& file) {
  std::vector<Json> objects;
  Json all = Json::parse(text, nullptr, false);
  if (all.is_object() && all.contains("vms")) all = Json(all["vms"]);
  if (all.is_array()) {
    objects.assign(all.begin(), all.end());
  } else if (all.is_object()) {
    objects.push_back(std::move(all));
  } else {
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
      ++number;
      Json one = Json::parse(line, nullptr, false);
      if (one.is_discarded()) {
        return wrong(file + ": object " + std::to_string(number) +
                     " is no JSON; there is one on each line, or one list of all");
      }
      objects.push_back(std::move(one));
    }
  }
  if (objects.empty()) return wrong(file + ": there is no VM in it");
  v1::SetVmsRequest request;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (Status status = take_vm(objects[i], *request.add_vms()); !status) {
      return wrong(file + ": object " + std::to_string(i + 1) + ": " + status.error().message);
    }
  }
  return request;
}

}  // namespace flyt::cli
