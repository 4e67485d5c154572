#include "tests/conformance/sweep_calls.h"

#include <utility>

#include "driver/table.h"

namespace flyt::conformance {
namespace {

template <class Pointer>
struct Invoker;

template <class... Args>
struct Invoker<CUresult (*)(Args...)> {
  static CUresult call(void* function, const Argument* arguments) {
    return with(function, arguments, std::index_sequence_for<Args...>{});
  }
  template <std::size_t... I>
  static CUresult with(void* function, [[maybe_unused]] const Argument* arguments,
                       std::index_sequence<I...>) {
    return reinterpret_cast<CUresult (*)(Args...)>(function)(arguments[I].template as<Args>()...);
  }
};

struct EnumValue {
  std::string_view name;
  std::int64_t value;
};

#define SWEEP_ENUM_VALUE(name, value) {name, value},
constexpr EnumValue kEnumValues[] = {
#include "tests/sweep.inc"
};
#undef SWEEP_ENUM_VALUE

#define SWEEP_FIELD(of, path, offset, bytes, kind, type) \
  {of, path, offset, bytes, Kind::kind, type},
constexpr Member kMembers[] = {
#include "tests/sweep.inc"
};
#undef SWEEP_FIELD

#define SWEEP_PARAMETER(kind, type, name, stars, is_const) \
  {Kind::kind, type, name, stars, is_const},
constexpr Parameter kParameters[] = {
#include "tests/sweep.inc"
};
#undef SWEEP_PARAMETER

// SWEEP_CALL(cuMemFree_v2, cuMemFree_v2, 7, 1):
// {"cuMemFree_v2", "cuMemFree_v2", &Invoker<decltype(driver::Table::cuMemFree_v2)>::call,
//  {&kParameters[7], 1}},
#define SWEEP_CALL(name, base, first, count)                    \
  {#name, #base, &Invoker<decltype(driver::Table::name)>::call, \
   std::span<const Parameter>(kParameters).subspan(first, count)},
constexpr SweptCall kCalls[] = {
#include "tests/sweep.inc"
};
#undef SWEEP_CALL

}  // namespace

std::span<const SweptCall> swept_calls() { return kCalls; }

std::vector<std::int64_t> values_of(std::string_view enum_name) {
  std::vector<std::int64_t> values;
  for (const EnumValue& each : kEnumValues) {
    if (each.name == enum_name) values.push_back(each.value);
  }
  return values;
}

std::vector<Member> members_of(std::string_view struct_name) {
  std::vector<Member> members;
  for (const Member& each : kMembers) {
    if (each.of == struct_name) members.push_back(each);
  }
  return members;
}

}  // namespace flyt::conformance
