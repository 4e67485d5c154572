#include "softgpu/interpreter/system.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "softgpu/interpreter/call_arguments.h"
#include "softgpu/interpreter/device_call.h"
#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {
namespace {

constexpr std::size_t kPrintBytesMax = 256u << 10;  // Of the text of one call.
constexpr int kFieldWidthMax = 128 << 10;

// One conversion of a format: %[flags][width][.precision][length]letter. Lengths are h, hh, l and
// ll; GPUs know no others, and no precision among the arguments.
struct Conversion {
  std::string flags;
  int width = -1;
  bool width_given = false;  // Among the arguments, for a '*'.
  int precision = -1;
  bool wide = false;  // 8 bytes: l, ll.
  int narrow = 0;     // hh: 1, h: 2.
  char letter = '\0';
};

class Formatter {
 public:
  Formatter(LaneMemory& reader, std::uint64_t arguments) : reader_(reader), next_(arguments) {}

  std::string run(const std::string& format) {
    for (std::size_t i = 0; i < format.size() && reader_.ok() && out_.size() < kPrintBytesMax;) {
      if (format[i] != '%') {
        out_ += format[i++];
        continue;
      }
      const std::size_t begin = i++;
      Conversion conversion;
      if (!parse(format, i, conversion)) {
        // No conversion: the characters stand for themselves.
        out_ += format.substr(begin, i - begin);
        continue;
      }
      take_width(conversion);
      convert(conversion);
    }
    return out_;
  }
  int count() const { return count_; }

 private:
  // Each argument stands at a multiple of its size.
  template <class T>
  T take() {
    next_ = (next_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const T value = reader_.value<T>(next_);
    next_ += sizeof(T);
    ++count_;
    return value;
  }

  // False: there are no digits.
  static bool number(const std::string& format, std::size_t& i, int& into) {
    bool any = false;
    for (; i < format.size() && format[i] >= '0' && format[i] <= '9'; ++i) {
      into = std::min((any ? into : 0) * 10 + (format[i] - '0'), kFieldWidthMax);
      any = true;
    }
    return any;
  }

  static std::string_view take_length(const std::string& format, std::size_t& i) {
    for (const std::string_view length : {"hh", "h", "ll", "l"}) {
      if (format.compare(i, length.size(), length) != 0) continue;
      i += length.size();
      return length;
    }
    return {};
  }

  static bool parse(const std::string& format, std::size_t& i, Conversion& into) {
    for (; i < format.size() && std::string_view("-+ #0").find(format[i]) != std::string_view::npos;
         ++i) {
      if (into.flags.find(format[i]) == std::string::npos) into.flags += format[i];
    }
    into.width_given = i < format.size() && format[i] == '*';
    if (into.width_given) {
      ++i;
    } else {
      number(format, i, into.width);
    }
    if (i < format.size() && format[i] == '.') {
      ++i;
      if (!number(format, i, into.precision)) into.precision = 0;
    }
    const std::string_view length = take_length(format, i);
    if (i >= format.size()) return false;
    into.wide = length == "l" || length == "ll";
    into.narrow = length == "hh" ? 1 : length == "h" ? 2 : 0;
    into.letter = format[i++];
    return std::string_view("diouxXcsaAeEfFgGp%").find(into.letter) != std::string_view::npos;
  }

  void take_width(Conversion& conversion) {
    if (!conversion.width_given) return;
    const auto width = std::int64_t{take<std::int32_t>()};
    if (width < 0) conversion.flags += '-';
    conversion.width = static_cast<int>(std::min<std::int64_t>(std::abs(width), kFieldWidthMax));
  }

  template <class T>
  void add(const Conversion& conversion, const char* length, T value) {
    std::string spec = "%" + conversion.flags;
    if (conversion.width >= 0) spec += std::to_string(conversion.width);
    if (conversion.precision >= 0) spec += "." + std::to_string(conversion.precision);
    spec += length;
    spec += conversion.letter;
    // The format is ours: one conversion that fits the type of the one argument.
    const int size = std::snprintf(nullptr, 0, spec.c_str(), value);
    if (size <= 0) return;
    std::string text(static_cast<std::size_t>(size) + 1, '\0');
    std::snprintf(text.data(), text.size(), spec.c_str(), value);
    text.pop_back();
    out_ += text;
  }

  void convert(const Conversion& conversion) {
    switch (conversion.letter) {
      case '%':
        out_ += '%';
        return;
      case 'd':
      case 'i':
        return integer<std::int64_t, std::int32_t>(conversion);
      case 'o':
      case 'u':
      case 'x':
      case 'X':
        return integer<std::uint64_t, std::uint32_t>(conversion);
      case 'c':
        return add(conversion, "", take<std::int32_t>());
      case 's': {
        const auto address = take<std::uint64_t>();
        // What a null pointer is called is never cut.
        const std::string null =
            conversion.precision >= 0 && conversion.precision < 6 ? "" : "(null)";
        const std::string text = address == 0 ? null : reader_.text(address);
        return add(conversion, "", text.c_str());
      }
      case 'p':
        return add(conversion, "", pointer_at(take<std::uint64_t>()));
      default:
        return add(conversion, "", take<double>());
    }
  }

  template <class Wide, class Plain>
  void integer(const Conversion& conversion) {
    if (conversion.wide) return add(conversion, "ll", static_cast<long long>(take<Wide>()));
    Plain value = take<Plain>();
    if (conversion.narrow == 1) {
      value = std::is_signed_v<Plain> ? static_cast<Plain>(static_cast<std::int8_t>(value))
                                      : static_cast<Plain>(value & 0xff);
    } else if (conversion.narrow == 2) {
      value = std::is_signed_v<Plain> ? static_cast<Plain>(static_cast<std::int16_t>(value))
                                      : static_cast<Plain>(value & 0xffff);
    }
    add(conversion, "", value);
  }

  LaneMemory& reader_;
  std::uint64_t next_;
  int count_ = 0;
  std::string out_;
};

bool print(Warp& warp, unsigned lane, const CallArguments& arguments) {
  LaneMemory reader(warp, lane);
  const std::uint64_t format_address = arguments.at(0);
  if (format_address == 0) {
    arguments.give(~std::uint64_t{0});
    return true;
  }
  const std::string format = reader.text(format_address);
  Formatter formatter(reader, arguments.at(1));
  const std::string text = formatter.run(format);
  if (!reader.ok()) return false;
  warp.block().state().environment->print(text);
  arguments.give(static_cast<std::uint64_t>(formatter.count()));
  return true;
}

std::string dimensions(const std::array<std::uint32_t, 3>& of) {
  return "[" + std::to_string(of[0]) + "," + std::to_string(of[1]) + "," + std::to_string(of[2]) +
         "]";
}

void fail_assertion(Warp& warp, unsigned lane, const CallArguments& arguments) {
  LaneMemory reader(warp, lane);
  const std::string message = reader.text(arguments.at(0));
  const std::string file = reader.text(arguments.at(1));
  const std::string function = reader.text(arguments.at(3));
  const auto line = static_cast<std::uint32_t>(arguments.at(2));
  const std::string text = file + ":" + std::to_string(line) + ": " + function +
                           ": block: " + dimensions(warp.block().index()) +
                           ", thread: " + dimensions(warp.thread_index(lane)) + " Assertion `" +
                           message + "` failed.\n";
  if (reader.ok()) warp.block().state().environment->assertion(text);
}

}  // namespace

SystemCall system_call_named(std::string_view name) {
  if (name == "vprintf") return SystemCall::kPrint;
  if (name == "malloc") return SystemCall::kAllocate;
  if (name == "free") return SystemCall::kRelease;
  if (name == "cudaGraphSetConditional") return SystemCall::kSetConditional;
  if (name == "__assertfail" || name == "__assert_fail") return SystemCall::kAssert;
  return device_call_named(name) == DeviceCall::kNone ? SystemCall::kNone
                                                      : SystemCall::kDeviceRuntime;
}

Flow system_call(Warp& warp, const FunctionCode& function, const CallSite& site, Mask lanes) {
  const SystemCall call = function.system;
  Environment& environment = *warp.block().state().environment;
  const Mask all = lanes;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const CallArguments arguments(warp, site, lane);
    switch (call) {
      case SystemCall::kNone:
        break;
      case SystemCall::kDeviceRuntime:
        return call_device(warp, function.device_call, site, all);
      case SystemCall::kPrint:
        if (!print(warp, lane, arguments)) return Flow::kFault;
        break;
      case SystemCall::kAllocate:
        arguments.give(environment.allocate(arguments.at(0)));
        break;
      case SystemCall::kRelease:
        if (arguments.at(0) != 0) environment.release(arguments.at(0));
        break;
      case SystemCall::kSetConditional:
        // A handle that is none of the graph's is left alone.
        environment.set_conditional(arguments.at(0), static_cast<std::uint32_t>(arguments.at(1)));
        break;
      case SystemCall::kAssert:
        fail_assertion(warp, lane, arguments);
        break;
    }
  }
  if (call == SystemCall::kAssert) return warp.fault(FaultKind::kAssert, all);
  return Flow::kNext;
}

}  // namespace flyt::ptx
