#include "control/json/message_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace flyt::control {
namespace {

namespace pb = google::protobuf;
using Json = nlohmann::ordered_json;

Json value_of(const pb::Message& message);

// A mode is written as in a configuration: "shared", not "MODE_SHARED".
Json enum_of(const pb::EnumValueDescriptor& value) {
  std::string text = value.name();
  text = text.substr(text.find('_') + 1);
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

Json one_of(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  const pb::Reflection& of = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return many ? of.GetRepeatedInt32(message, &field, index) : of.GetInt32(message, &field);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return many ? of.GetRepeatedInt64(message, &field, index) : of.GetInt64(message, &field);
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return many ? of.GetRepeatedUInt32(message, &field, index) : of.GetUInt32(message, &field);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return many ? of.GetRepeatedUInt64(message, &field, index) : of.GetUInt64(message, &field);
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return many ? of.GetRepeatedBool(message, &field, index) : of.GetBool(message, &field);
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return enum_of(many ? *of.GetRepeatedEnum(message, &field, index)
                          : *of.GetEnum(message, &field));
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return many ? of.GetRepeatedString(message, &field, index) : of.GetString(message, &field);
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return value_of(many ? of.GetRepeatedMessage(message, &field, index)
                           : of.GetMessage(message, &field));
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      break;
  }
  return nullptr;
}

Json value_of(const pb::Message& message) {
  const pb::Descriptor& type = *message.GetDescriptor();
  const pb::Reflection& of = *message.GetReflection();
  Json out = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (!field.is_repeated()) {
      // What may be missing is not shown as if it were 0.
      const bool missing = field.has_optional_keyword() && !of.HasField(message, &field);
      out[field.name()] = missing ? Json(nullptr) : one_of(message, field, -1);
      continue;
    }
    Json list = field.is_map() ? Json::object() : Json::array();
    for (int j = 0; j < of.FieldSize(message, &field); ++j) {
      const Json value = one_of(message, field, j);
      if (field.is_map()) {
        list[value["key"].get<std::string>()] = value["value"];
      } else {
        list.push_back(value);
      }
    }
    out[field.name()] = list;
  }
  return out;
}

}  // namespace

std::string json_of(const pb::Message& message) {
  // What is no UTF-8 is replaced, not thrown.
  return value_of(message).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace flyt::control
