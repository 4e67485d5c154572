// Long rows of commands that mostly make sense, in sessions that so come to have objects of every
// kind, with hostile ones among them. A session goes on or is ended with a reason; its process
// never just dies, and nobody else notices.
//   FLYT_SIM_SEEDS=N sessions (default 12)     FLYT_SIM_FIRST_SEED=S
#include <algorithm>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "commands/all.h"
#include "tests/hostile/hostile_graphs.h"
#include "tests/hostile/malice.h"

namespace flyt::sim {
namespace {

using wire::HandleKind;

constexpr int kCommands = 400;
// Of furnish() are those below.
constexpr std::uint32_t kFirstNew = 4;
constexpr std::size_t kKnownMax = 24;
constexpr double kReplySeconds = 0.02;
constexpr std::size_t kShown = 8;  // Commands before a session that died.

constexpr std::string_view kCode = R"(
.version 7.8
.target sm_75
.address_size 64
.visible .global .u32 counter = 7;
.visible .global .texref picture;
.visible .entry idle() { ret; }
.visible .entry put(.param .u64 p, .param .u32 v) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p]; ld.param.u32 %v, [v]; st.global.u32 [%a], %v; ret; }
)";

template <class T>
struct KindOf;
template <HandleKind kValue>
struct Kind {
  static constexpr HandleKind kKind = kValue;
};
template <>
struct KindOf<CUcontext> : Kind<HandleKind::kContext> {};
template <>
struct KindOf<CUstream> : Kind<HandleKind::kStream> {};
template <>
struct KindOf<CUevent> : Kind<HandleKind::kEvent> {};
template <>
struct KindOf<CUmodule> : Kind<HandleKind::kModule> {};
template <>
struct KindOf<CUfunction> : Kind<HandleKind::kFunction> {};
template <>
struct KindOf<CUlibrary> : Kind<HandleKind::kLibrary> {};
template <>
struct KindOf<CUkernel> : Kind<HandleKind::kKernel> {};
template <>
struct KindOf<CUlinkState> : Kind<HandleKind::kLink> {};
template <>
struct KindOf<CUmemoryPool> : Kind<HandleKind::kPool> {};
template <>
struct KindOf<CUgraph> : Kind<HandleKind::kGraph> {};
template <>
struct KindOf<CUgraphNode> : Kind<HandleKind::kGraphNode> {};
template <>
struct KindOf<CUgraphExec> : Kind<HandleKind::kGraphExec> {};
template <>
struct KindOf<CUarray> : Kind<HandleKind::kArray> {};
template <>
struct KindOf<CUmipmappedArray> : Kind<HandleKind::kMipmappedArray> {};
template <>
struct KindOf<CUtexref> : Kind<HandleKind::kTextureReference> {};
template <>
struct KindOf<CUsurfref> : Kind<HandleKind::kSurfaceReference> {};
template <>
struct KindOf<CUuserObject> : Kind<HandleKind::kUserObject> {};
template <>
struct KindOf<CUgreenCtx> : Kind<HandleKind::kGreenContext> {};

template <class T>
concept Named = requires {
  KindOf<T>::kKind;
};

bool any_of(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// What a session has, as far as its replies tell.
struct Known {
  std::vector<std::uint64_t> addresses;
  std::vector<std::uint64_t> numbers;  // Of graphs and their nodes, which the server chooses.
  std::map<HandleKind, std::vector<std::uint64_t>> handles;
  std::map<HandleKind, std::uint32_t> next;  // Indices that were never used.
  std::uint32_t uploads = 0;

  static void keep(std::vector<std::uint64_t>& in, std::uint64_t value) {
    if (std::find(in.begin(), in.end(), value) != in.end()) return;
    in.push_back(value);
    if (in.size() > kKnownMax) in.erase(in.begin());
  }
  // What a successful command has answered, and the handles that it was sent with.
  void learn(std::string_view command, Bytes reply, const std::vector<wire::Handle>& sent) {
    for (const wire::Handle handle : sent) keep(handles[handle.kind()], handle.value);
    const bool numbered = any_of(command, {"graph", "node", "capture", "conditional", "clone"});
    Reader reader(reply);
    while (reader.remaining() >= 8) {
      const auto word = reader.take<std::uint64_t>();
      const bool address = word >> 40 != 0 && word >> 47 == 0 && word % 256 == 0;
      if (address) keep(addresses, word);
      if (numbered && !address && word != 0) keep(numbers, word);
    }
  }
};

// Fills a command with what fits it by type and name, but for one field in `hostile_in`.
class Sense {
 public:
  Sense(Malice& malice, Known& known, std::uint64_t hostile_in, std::optional<HandleKind> made)
      : malice_(malice), known_(known), hostile_in_(hostile_in), made_(made) {}

  template <class T>
  void operator()(const char* name, T& value) {
    if (hostile()) return Fill{malice_}(name, value);
    if constexpr (Named<T>) {
      value = static_cast<T>(pointer_at(handle(KindOf<T>::kKind)));
    } else if constexpr (std::is_same_v<T, CUDA_ARRAY3D_DESCRIPTOR>) {
      Random& random = malice_.random();
      value = {.Width = 1 + random.below(40),
               .Height = random.below(20),
               .Depth = random.one_in(4) ? random.below(6) : 0,
               .Format = random.one_in(3) ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_FLOAT,
               .NumChannels = 1U << random.below(3),
               .Flags = random.one_in(2) ? CUDA_ARRAY3D_SURFACE_LDST : 0U};
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(malice_.random().below(4));
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      value = static_cast<T>(number(name, sizeof(T)));
    } else {
      Fill{malice_}(name, value);
    }
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (malice_.coin()) (*this)(name, value.emplace());
  }
  void operator()(const char* name, std::string_view& value, std::uint32_t limit) {
    constexpr std::string_view kNames[] = {"idle", "put", "counter", "picture", "other"};
    if (hostile()) return Fill{malice_}(name, value, limit);
    value = kNames[malice_.random().below(std::size(kNames))].substr(0, limit);
  }
  // Structures as CUDA has them: small numbers, handles and addresses among zeros.
  void operator()(const char* name, Bytes& value, std::uint32_t limit) {
    if (hostile()) return Fill{malice_}(name, value, limit);
    constexpr std::size_t kSizes[] = {0, 0, 8, 16, 72, 80, 104, 200, 256};
    Random& random = malice_.random();
    auto& made = kept_.emplace_back(kSizes[random.below(std::size(kSizes))] / 8);
    if (!made.empty()) made[0] = random.below(14);
    for (std::size_t i = 0; i < made.size() / 6; ++i) made[random.below(made.size())] = word();
    value =
        Bytes(std::as_bytes(std::span(made))).first(std::min<std::size_t>(limit, made.size() * 8));
  }
  template <class T>
  void operator()(const char* name, wire::List<T>& value, std::uint32_t limit) {
    Random& random = malice_.random();
    if (hostile()) return Fill{malice_}(name, value, limit);
    // Options are hardly ever given.
    const std::size_t count = random.one_in(3) ? 1 + random.below(2) : 0;
    auto& made = kept_.emplace_back((count * sizeof(T) + 7) / 8);
    for (std::uint64_t& each : made) each = number(name, 8);
    value =
        wire::List<T>::from_bytes(Bytes(std::as_bytes(std::span(made))).first(count * sizeof(T)));
  }

  // The handles that the command was given.
  const std::vector<wire::Handle>& used() const { return used_; }

 private:
  std::uint64_t word() {
    Random& random = malice_.random();
    switch (random.below(4)) {
      case 0:
        return handle(static_cast<HandleKind>(1 + random.below(wire::kHandleKindMax)));
      case 1:
        return number("address", 8);
      case 2:
        return number("graph", 8);
      default:
        return random.below(65) | random.below(3) << 32;
    }
  }
  bool hostile() { return malice_.random().one_in(hostile_in_); }
  std::uint64_t handle(HandleKind kind) {
    Random& random = malice_.random();
    if (kind == HandleKind::kStream && kind != made_ && random.one_in(3)) return random.below(3);
    const auto& live = known_.handles[kind];
    const bool fresh = kind == made_ && !random.one_in(32);
    wire::Handle chosen = wire::Handle::make(kind, 1, 1);
    if (fresh) {
      chosen = wire::Handle::make(kind, 1, known_.next.emplace(kind, kFirstNew).first->second++);
    } else if (!live.empty()) {
      chosen.value = live[random.below(live.size())];
    }
    used_.push_back(chosen);
    return chosen.value;
  }
  std::uint64_t number(std::string_view name, std::size_t size) {
    Random& random = malice_.random();
    const auto says = [name](std::string_view part) {
      return name.find(part) != std::string_view::npos;
    };
    if (says("exec")) return handle(HandleKind::kGraphExec);
    if (says("object")) return handle(HandleKind::kUserObject);
    const bool numbered = says("graph") || says("node") || says("clone") || says("dependencies");
    if (numbered && size == 8 && !known_.numbers.empty()) {
      return known_.numbers[random.below(known_.numbers.size())];
    }
    if (name == "pool") return random.one_in(3) ? 0 : handle(HandleKind::kPool);
    if (says("upload")) {
      return wire::Handle::make(HandleKind::kUpload, 1, std::max(known_.uploads, 1U)).value;
    }
    if (says("allocation")) return handle(HandleKind::kMemAllocation);
    if (says("texture")) return handle(HandleKind::kTexture);
    if (says("surface")) return handle(HandleKind::kSurface);
    const bool place = size == 8 && (says("address") || name == "to" || name == "from" ||
                                     says("pointer") || says("base"));
    if (place && !known_.addresses.empty()) {
      return known_.addresses[random.below(known_.addresses.size())] +
             (random.one_in(4) ? random.below(8192) : 0);
    }
    if (says("flags") || says("device") || says("options")) {
      return random.one_in(3) ? random.below(3) : 0;
    }
    if (says("grid") || says("block") || says("rows") || says("slices")) return 1 + random.below(3);
    return random.one_in(8) ? std::uint64_t{4096} << random.below(10) : random.below(65);
  }

  Malice& malice_;
  Known& known_;
  const std::uint64_t hostile_in_;
  const std::optional<HandleKind> made_;
  std::vector<wire::Handle> used_;
  std::deque<std::vector<std::uint64_t>> kept_;
};

struct Command {
  std::string_view name;
  std::uint16_t op;
  bool waits;
  std::vector<std::byte> (*encode)(Sense& sense);
};

// Commands of other sessions, and those that end a session wherever they stand in such a row.
bool is_out_of_place(std::string_view name) {
  return any_of(name, {"nvml", "lease_", "restor", "recovered_", "aim_image", "upload",
                       "host_call_done", "write_host", "copy_block_to"});
}

// What a command makes under a handle of its client's; the session ends if that is in use.
std::optional<HandleKind> made_by(std::string_view name) {
  constexpr std::pair<std::string_view, HandleKind> kMakers[] = {
      {"create_context", HandleKind::kContext},
      {"create_green_context", HandleKind::kGreenContext},
      {"stream_create", HandleKind::kStream},
      {"event_create", HandleKind::kEvent},
      {"open_event", HandleKind::kEvent},
      {"load_module", HandleKind::kModule},
      {"get_library_module", HandleKind::kModule},
      {"get_function", HandleKind::kFunction},
      {"get_kernel_function", HandleKind::kFunction},
      {"load_library", HandleKind::kLibrary},
      {"get_kernel", HandleKind::kKernel},
      {"create_link", HandleKind::kLink},
      {"pool_create", HandleKind::kPool},
      {"open_pool", HandleKind::kPool},
      {"vmm_create", HandleKind::kMemAllocation},
      {"create_array", HandleKind::kArray},
      {"get_array_level", HandleKind::kArray},
      {"create_mipmapped_array", HandleKind::kMipmappedArray},
      {"get_texture_reference", HandleKind::kTextureReference},
      {"create_texture_reference", HandleKind::kTextureReference},
      {"get_surface_reference", HandleKind::kSurfaceReference},
      {"instantiate_graph", HandleKind::kGraphExec},
      {"create_user_object", HandleKind::kUserObject},
  };
  for (const auto& [maker, kind] : kMakers) {
    if (maker == name) return kind;
  }
  return std::nullopt;
}

template <class T>
std::vector<std::byte> encoding(Sense& sense) {
  T command;
  T::each(command, sense);
  std::vector<std::byte> bytes(wire::encoded_size(command));
  Writer writer(bytes);
  wire::encode(writer, command);
  return bytes;
}

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> made;
    commands::All::each([&]<class T>() {
      if (is_out_of_place(T::kName)) return;
      made.push_back({T::kName, T::kOp, T::kWaits, &encoding<T>});
    });
    return made;
  }();
  return commands;
}

std::string hexadecimal(Bytes bytes) {
  constexpr std::size_t kMost = 128;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes.first(std::min(kMost, bytes.size()))) {
    text += {kDigits[static_cast<unsigned>(byte) >> 4], kDigits[static_cast<unsigned>(byte) & 15]};
  }
  return text;
}

class HostileMixture : public HostileGraphs {
 protected:
  void send_code(Known& known) {
    send(commands::Upload{
        .upload = wire::Handle::make(HandleKind::kUpload, 1, ++known.uploads).value,
        .total = kCode.size(),
        .offset = 0,
        .data = bytes_of(kCode)});
  }
  // A few objects to begin with.
  void furnish(Known& known) {
    for (std::uint32_t i = 1; i < kFirstNew; ++i) {
      ask(commands::MemAlloc{.bytes = std::uint64_t{1000} << (4 * i)});
      known.learn("mem_alloc", fields(), {});
    }
    send_code(known);
    const auto module = handle_as<CUmodule>(HandleKind::kModule, 1);
    ask(commands::LoadModule{
        .module = module,
        .upload = wire::Handle::make(HandleKind::kUpload, 1, known.uploads).value});
    known.learn("load_module", {}, {wire::Handle{address_of(module)}});
    known.learn("stream_create", {}, {wire::Handle{address_of(stream_)}});
    CUgraphNodeParams empty{};
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    for (const CUgraphNodeParams& node :
         {empty, fill(address_, 64), copy(address_, address_ + 256, 64)}) {
      ask(commands::AddGraphNode{.graph = graph_, .parameters = bytes_at(&node, sizeof node)});
      known.learn("add_graph_node", fields(), {});
    }
    Known::keep(known.numbers, graph_);
  }
  // One session's row of commands; how it ended. `last`: what was sent in the end.
  Peer::Verdict go(std::uint64_t seed, std::deque<std::string>& last) {
    Malice malice(seed);
    Random& random = malice.random();
    Known known;
    furnish(known);
    const std::uint64_t hostile_in = 4 + random.below(60);
    for (int i = 0; i < kCommands; ++i) {
      const Command& command = all_commands()[random.below(all_commands().size())];
      // Without a context little is left to do.
      const bool ends = any_of(command.name, {"destroy_context", "_primary"});
      if (ends && !random.one_in(16)) continue;
      Sense sense(malice, known, hostile_in, made_by(command.name));
      if (any_of(command.name, {"load_", "add_link"})) send_code(known);
      const std::vector<std::byte> bytes = command.encode(sense);
      last.push_back(std::string(command.name) + " " + hexadecimal(bytes));
      if (last.size() > kShown) last.pop_front();
      const std::uint32_t context = random.one_in(12) ? 0 : kPrimary;
      if (!peer_->send_command(command.op, bytes, command.waits, context).ok()) break;
      if (!command.waits) known.learn(command.name, {}, sense.used());
      // Some wait for what never comes.
      while (command.waits && peer_->readable(kReplySeconds)) {
        const Heard heard = peer_->read_frame();
        if (heard.is(wire::FrameKind::kEnded)) return {Peer::State::kEnded, heard.text()};
        if (heard.what == Heard::What::kClosed) return {Peer::State::kDied, "closed"};
        if (!heard.is(wire::FrameKind::kReply)) continue;
        Reader reader(heard.payload);
        const bool done = wire::decode_reply_prefix(reader).result == CUDA_SUCCESS;
        const Bytes fields = reader.take_bytes(reader.remaining());
        if (done) known.learn(command.name, fields, sense.used());
        break;
      }
    }
    return peer_->verdict();
  }
};

TEST_F(HostileMixture, NeverKillsASessionsProcess) {
  for (int round = 0; round < rounds(12); ++round) {
    const std::uint64_t seed = first_seed() + static_cast<std::uint64_t>(round);
    std::deque<std::string> last;
    const Peer::Verdict verdict = go(seed, last);
    const bool defined =
        verdict.state == Peer::State::kAlive || verdict.state == Peer::State::kEnded;
    EXPECT_TRUE(defined) << "FLYT_SIM_FIRST_SEED=" << seed
                         << " FLYT_SIM_SEEDS=1: " << verdict.reason << "\n"
                         << ::testing::PrintToString(last) << "\n"
                         << server().log();
    current_ = 0;
    HostileGraphs::SetUp();
    ASSERT_FALSE(HasFatalFailure());
  }
}

}  // namespace
}  // namespace flyt::sim
