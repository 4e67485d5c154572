// Transfers: the program's copies, as commands.
#include "client/transfers/transfers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "client/call.h"
#include "client/graphs/graph_node.h"
#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "client/session.h"
#include "client/streams/stream_wait.h"
#include "commands/array.h"
#include "commands/copy.h"
#include "commands/graph.h"
#include "commands/stream.h"

namespace flyt::client {
namespace {

// Below this it is cheaper to copy bytes into the send buffer than to send them from where they
// are, which takes a system call of its own.
constexpr std::uint64_t kInlineBytesMax = 16 * kKiB;
constexpr std::uint64_t kChunkBytes = wire::kBulkBytesMax;
// Behind a host function the server keeps so much of a copy from pageable memory, and the main
// connection has to stay free for the word that the function has run. A native copy waits, too.
constexpr std::uint64_t kBehindHostCallsMax = 32 * kMiB;
// Smaller copies are not worth waking the threads of the lanes.
constexpr std::uint64_t kLaneCopyBytesMin = 2 * kMiB;
// The server keeps nothing of less data than this.
constexpr std::uint64_t kKeptBytesMin = 8 * kKiB;
// What a piece of a copy to the host takes of the server's memory, and a small copy.
constexpr std::uint64_t kStagedPieceBytes = 1 * kMiB;
constexpr std::uint64_t kSmallStagedBytes = 16 * kKiB;

using Fields = std::array<std::byte, 256>;

// Encodes a command whose last field, the data, is sent from where it is.
template <class Command>
Bytes encode_without_data(const Command& command, std::size_t data_bytes, Fields& fields) {
  const std::size_t size = wire::encoded_size(command);
  Writer writer(MutableBytes(fields).first(size));
  wire::encode(writer, command);
  // The command was encoded without data: its last four bytes are the data's length.
  Writer length(MutableBytes(fields).subspan(size - sizeof(std::uint32_t), sizeof(std::uint32_t)));
  length.write(static_cast<std::uint32_t>(data_bytes));
  return Bytes(fields).first(size);
}

// Sends a command whose last field is `data`, from where the data is.
template <class Command>
CUresult post_with_data(Session& session, Command command, Bytes data) {
  if (data.size() <= kInlineBytesMax) {
    command.data = data;
    return session.post(command);
  }
  Fields fields;
  const Bytes encoded = encode_without_data(command, data.size(), fields);
  const auto attempt = [&] {
    return session.channel().post_bulk(Command::kOp, Session::context_index(), encoded, data).ok();
  };
  return attempt() ? CUDA_SUCCESS : session.again(attempt);
}

// The same for a command that is waited for and whose answer has no fields.
template <class Command>
CUresult ask_with_data(Session& session, Command command, Bytes data) {
  rpc::Reply answer;
  if (data.size() <= kInlineBytesMax) {
    command.data = data;
    typename Command::Reply reply;
    return session.ask(command, reply, answer);
  }
  Fields fields;
  const Bytes encoded = encode_without_data(command, data.size(), fields);
  const auto attempt = [&] {
    return session.channel()
        .call_bulk(Command::kOp, Session::context_index(), encoded,
                   std::span<const Bytes>(&data, 1), answer)
        .ok();
  };
  const CUresult lost = attempt() ? CUDA_SUCCESS : session.again(attempt);
  return lost == CUDA_SUCCESS ? session.settle(answer) : lost;
}

// What a copy to the host takes of the server's memory at most: it is cut up in pieces, of whole
// rows if there are gaps.
std::uint64_t staged_bytes(const BoxCopy& copy) {
  const std::uint64_t bytes = copy.width * copy.rows * copy.slices;
  if (bytes <= kSmallStagedBytes) return kSmallStagedBytes;
  const std::uint64_t pieces = (bytes + kStagedPieceBytes - 1) / kStagedPieceBytes;
  return kStagedPieceBytes * (copy.rows == 1 && copy.slices == 1 ? pieces : 2 * pieces);
}

std::uint64_t extent(const BoxCopy& copy, const BoxSide& side) {
  return (copy.slices - 1) * side.slice_pitch + (copy.rows - 1) * side.pitch + copy.width;
}

bool is_array(const BoxSide& side) { return side.memory == BoxSide::Memory::kArray; }

bool flat(const BoxCopy& copy, const BoxSide& side) {
  if (is_array(side)) return copy.rows == 1 && copy.slices == 1;
  return (copy.rows == 1 || side.pitch == copy.width) &&
         (copy.slices == 1 || side.slice_pitch == copy.width * copy.rows);
}

// One row where both sides have no gaps.
BoxCopy flattened(const BoxCopy& copy) {
  if (!flat(copy, copy.from) || !flat(copy, copy.to)) return copy;
  BoxCopy one = copy;
  one.width = copy.width * copy.rows * copy.slices;
  one.rows = one.slices = 1;
  return one;
}

template <class Command>
Command memory_to_host(const BoxCopy& copy, CUstream stream, std::uint64_t delivery) {
  return {.stream = stream,
          .address = copy.from.address,
          .pitch = copy.from.pitch,
          .slice_pitch = copy.from.slice_pitch,
          .width = copy.width,
          .rows = copy.rows,
          .slices = copy.slices,
          .delivery = delivery};
}

template <class Command>
Command array_to_host(const BoxCopy& copy, CUstream stream, std::uint64_t delivery) {
  return {.stream = stream,
          .array = copy.from.array,
          .x = copy.from.x,
          .y = copy.from.y,
          .z = copy.from.z,
          .width = copy.width,
          .rows = copy.rows,
          .slices = copy.slices,
          .delivery = delivery};
}

// Host memory as the program has it, whether or not the GPU reaches it.
BoxCopy from_the_program(const BoxCopy& copy) {
  BoxCopy out = copy;
  if (!copy.from.of_host) return out;
  out.from.memory = BoxSide::Memory::kHost;
  out.from.address -= out.from.distance;
  out.from.distance = 0;
  out.from.mirrored = false;
  return out;
}

}  // namespace

CUresult Transfers::run(const BoxCopy& copy, CUstream stream, Waiting waiting,
                        std::uint64_t graph) {
  if (copy.empty()) return CUDA_SUCCESS;
  if (graph != 0) return capture_in_graph(copy, stream, graph);
  give_work(stream);
  const BoxCopy box = flattened(waiting == Waiting::kSource ? from_the_program(copy) : copy);
  const bool mirrored = box.from.mirrored || box.to.mirrored;
  if (!mirrored) return start(box, stream, waiting);
  // The server's own copy of that memory takes part: it must be as the program has left it.
  HostMirror& mirror = session_.memory().mirror();
  for (const BoxSide* side : {&box.from, &box.to}) {
    if (side->mirrored) mirror.send(side->address, extent(box, *side));
  }
  const CUresult result = start(box, stream, waiting);
  // To the program it is host memory, which it may use when the call returns.
  return result == CUDA_SUCCESS && waiting == Waiting::kStaged ? synchronize(session_, stream)
                                                               : result;
}

CUresult Transfers::look_for_captures(CUstream stream, Waiting waiting, std::uint64_t& graph) {
  const CUresult no = session_.captures().work_call(stream, graph);
  // The captured stream itself cannot be waited for; others are, whatever the captures' modes.
  return graph != 0 && waiting == Waiting::kStaged ? session_.captures().wait_call(stream) : no;
}

namespace {

// One side as a program would describe it.
void describe(const BoxSide& side, CUmemorytype& type, std::uint64_t& host, CUdeviceptr& device,
              std::size_t& pitch, std::size_t& height) {
  const std::uint64_t address = side.address - side.distance;
  type = side.of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (side.of_host) {
    host = address;
  } else {
    device = address;
  }
  pitch = side.pitch;
  height = side.slice_pitch / side.pitch;
}

}  // namespace

// In the form in which a node of a graph is described, because that is what becomes of it.
CUresult Transfers::capture_in_graph(const BoxCopy& copy, CUstream stream, std::uint64_t graph) {
  CUDA_MEMCPY3D whole{};
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  if (is_array(copy.from)) {
    whole.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    whole.srcArray = copy.from.array;
    whole.srcXInBytes = copy.from.x;
    whole.srcY = copy.from.y;
    whole.srcZ = copy.from.z;
  } else {
    describe(copy.from, whole.srcMemoryType, from, whole.srcDevice, whole.srcPitch,
             whole.srcHeight);
  }
  if (is_array(copy.to)) {
    whole.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    whole.dstArray = copy.to.array;
    whole.dstXInBytes = copy.to.x;
    whole.dstY = copy.to.y;
    whole.dstZ = copy.to.z;
  } else {
    describe(copy.to, whole.dstMemoryType, to, whole.dstDevice, whole.dstPitch, whole.dstHeight);
  }
  if (copy.rows == 1 && copy.slices == 1) {
    // A row has no pitch, and may be longer than one can be.
    whole.srcPitch = whole.srcHeight = whole.dstPitch = whole.dstHeight = 0;
  }
  whole.srcHost = pointer_at(from);
  whole.dstHost = pointer_at(to);
  whole.WidthInBytes = copy.width;
  whole.Height = copy.rows;
  whole.Depth = copy.slices;
  LentMemories lent;
  const CUresult bad = take_graph_copy(whole, lent);
  if (bad != CUDA_SUCCESS) return bad;
  const CUresult clash = session_.graphs().check_clash("a copy in a capture", graph, lent);
  if (clash != CUDA_SUCCESS) return clash;
  session_.graphs().lend(graph, lent);
  commands::CaptureCopy::Reply reply;
  rpc::Reply answer;
  return session_.ask(
      commands::CaptureCopy{.stream = stream, .parameters = bytes_at(&whole, sizeof whole)}, reply,
      answer);
}

CUresult Transfers::start(const BoxCopy& box, CUstream stream, Waiting waiting) {
  if (box.from.on_gpu() && box.to.on_gpu()) {
    const CUresult result = on_device(box, stream);
    return result == CUDA_SUCCESS && waiting == Waiting::kSource ? synchronize(session_, stream)
                                                                 : result;
  }
  if (box.from.on_gpu()) return to_host(box, stream, waiting);
  if (box.to.on_gpu()) return to_device(box, stream, waiting);
  return host_to_host(box, stream);
}

CUresult Transfers::to_device(const BoxCopy& copy, CUstream stream, Waiting waiting) {
  // A structure for a kernel may hold pointers to host memory that it then reaches.
  if (copy.rows == 1 && copy.slices == 1 && copy.width <= kInlineBytesMax) {
    session_.memory().mirror().begin_all_in(bytes_at(pointer_at(copy.from.address), copy.width));
  }
  if (waiting != Waiting::kStaged) {
    // A program leaves page-locked memory alone until the copy is done, so it can be read now. But
    // what the GPU or a host function has yet to write there was issued before this copy and must
    // be in it: such memory is read when the stream comes to this place.
    const bool later = waiting == Waiting::kStream && copy.from.pinned &&
                       (host_calls_.any() || arriving(copy.from.address, extent(copy, copy.from)));
    if (later) return capture_later(copy, stream);
    if (host_calls_.any() && copy.width * copy.rows * copy.slices > kBehindHostCallsMax) {
      const CUresult result = synchronize(session_, stream);
      if (result != CUDA_SUCCESS) return result;
    }
    return capture(copy, stream);
  }
  // A native blocking copy starts when the stream is done with what came before. That can only be
  // told from the host's side if some of it writes host memory.
  if (host_writes_pending()) {
    if (const CUresult result = synchronize(session_, stream); result != CUDA_SUCCESS) {
      return result;
    }
  }
  if (copy.from.pinned && copy.rows == 1 && copy.slices == 1 && !is_array(copy.to)) {
    return send_flat_and_wait(copy.to.address, copy.from.address, copy.width, stream);
  }
  const CUresult result = capture(copy, stream);
  // From page-locked memory it also ends when the copy is done; other memory is just staged.
  if (result != CUDA_SUCCESS || !copy.from.pinned) return result;
  return synchronize(session_, stream);
}

CUresult Transfers::to_host(const BoxCopy& copy, CUstream stream, Waiting waiting) {
  if (waiting == Waiting::kStream && copy.to.pinned) return post_to_host(copy, stream);
  return wait_to_host(copy, stream);
}

CUresult Transfers::host_to_host(const BoxCopy& copy, CUstream stream) {
  const CUresult result = synchronize(session_, stream);
  if (result == CUDA_SUCCESS) copy_on_host(copy);
  return result;
}

CUresult Transfers::on_device(const BoxCopy& copy, CUstream stream) {
  if (is_array(copy.to) || is_array(copy.from)) {
    return session_.post(commands::CopyBoxWithArray{.stream = stream,
                                                    .to_context = copy.to.context,
                                                    .to_array = copy.to.array,
                                                    .to_x = copy.to.x,
                                                    .to_y = copy.to.y,
                                                    .to_z = copy.to.z,
                                                    .to = copy.to.address,
                                                    .to_pitch = copy.to.pitch,
                                                    .to_slice_pitch = copy.to.slice_pitch,
                                                    .from_context = copy.from.context,
                                                    .from_array = copy.from.array,
                                                    .from_x = copy.from.x,
                                                    .from_y = copy.from.y,
                                                    .from_z = copy.from.z,
                                                    .from = copy.from.address,
                                                    .from_pitch = copy.from.pitch,
                                                    .from_slice_pitch = copy.from.slice_pitch,
                                                    .width = copy.width,
                                                    .rows = copy.rows,
                                                    .slices = copy.slices});
  }
  if (copy.rows == 1 && copy.slices == 1) {
    return session_.post(commands::CopyOnDevice{
        .stream = stream, .to = copy.to.address, .from = copy.from.address, .bytes = copy.width});
  }
  return session_.post(commands::CopyBoxOnDevice{.stream = stream,
                                                 .to = copy.to.address,
                                                 .to_pitch = copy.to.pitch,
                                                 .to_slice_pitch = copy.to.slice_pitch,
                                                 .from = copy.from.address,
                                                 .from_pitch = copy.from.pitch,
                                                 .from_slice_pitch = copy.from.slice_pitch,
                                                 .width = copy.width,
                                                 .rows = copy.rows,
                                                 .slices = copy.slices});
}

CUresult Transfers::capture(const BoxCopy& copy, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (std::uint64_t slice = 0; slice < copy.slices && result == CUDA_SUCCESS; ++slice) {
    if (is_array(copy.to)) {
      result = send_to_array(copy, slice, stream);
      continue;
    }
    const std::uint64_t to = copy.to.address + slice * copy.to.slice_pitch;
    const std::uint64_t from = copy.from.address + slice * copy.from.slice_pitch;
    if (copy.rows == 1) {
      result = send_flat(to, from, copy.width, stream);
    } else if (copy.width <= kChunkBytes) {
      result = send_rows(copy, slice, stream);
    } else {
      for (std::uint64_t row = 0; row < copy.rows && result == CUDA_SUCCESS; ++row) {
        result =
            send_flat(to + row * copy.to.pitch, from + row * copy.from.pitch, copy.width, stream);
      }
    }
  }
  return result;
}

CUresult Transfers::make_room(std::uint64_t bytes, CUstream stream) {
  // Whoever sends for the client's host functions is who streams stand for, and a wait would end a
  // capture.
  if (rpc::KeptCredits::used() || session_.captures().any()) return CUDA_SUCCESS;
  const std::uint64_t in_context = context().handle;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS) {
    const std::uint64_t ready = prepared_.bytes(Prepared::Kind::kToDevice);
    if (room_.take(in_context, stream, bytes, ready)) break;
    const std::uint64_t wanted = std::max(2 * ready, room_.taken() + bytes);
    if (prepared_.ask(Prepared::Kind::kToDevice, wanted)) continue;
    result = synchronize(session_, stream);
    room_.give(in_context, stream);
  }
  return result;
}

bool Transfers::make_room_once(const rpc::SentBlock& block, const UploadRoom::LaneRoom& room,
                               CUstream stream, CUresult& result) {
  const std::uint64_t in_context = context().handle;
  while (result == CUDA_SUCCESS && !room_.take_block(in_context, stream, block.lane, room)) {
    commands::StreamSynchronize::Reply reply;
    rpc::Reply answer;
    if (!session_.ask_once(commands::StreamSynchronize{.stream = stream}, reply, answer)) {
      return false;
    }
    result = session_.settle(answer);
    room_.give(in_context, stream);
  }
  return true;
}

template <class Command>
CUresult Transfers::post_kept(const Command& command, Bytes data) {
  const CUresult result =
      data.size() <= kKeptBytesMin ? CUDA_SUCCESS : make_room(data.size(), command.stream);
  return result == CUDA_SUCCESS ? post_with_data(session_, command, data) : result;
}

unsigned Transfers::lanes_for(std::uint64_t bytes) {
  // A lane may be full of blocks whose commands the server has put off. While anything is captured,
  // each post into a stream is heard, and would be no quicker.
  const bool worth_it =
      bytes >= kLaneCopyBytesMin && !rpc::KeptCredits::used() && !session_.captures().any();
  return worth_it ? session_.channel().open_lanes() : 0;
}

// Blocks come to lie in memory that is ready in the order in which they come, so those that are not
// named yet count as well, and some more for lanes that others hold up.
UploadRoom::LaneRoom Transfers::prepare_lanes(unsigned lanes, std::uint64_t bytes,
                                              std::size_t& ahead) {
  constexpr std::uint64_t kBlock = wire::kLaneBlockBytesMax;
  const auto room_in = [&](std::uint64_t ready) {
    const std::uint64_t blocks = ready / kBlock;
    ahead = blocks / 3;
    const std::uint64_t named = ahead == 0 ? 0 : blocks - ahead - blocks / 12;
    return UploadRoom::LaneRoom{lanes, static_cast<unsigned>(named)};
  };
  const UploadRoom::LaneRoom room = room_in(prepared_.bytes(Prepared::Kind::kBlocks));
  const std::uint64_t wanted =
      room_.blocks() + std::max<std::uint64_t>(lanes, (bytes + kBlock - 1) / kBlock);
  if (wanted <= room.blocks || !prepared_.ask(Prepared::Kind::kBlocks, 2 * wanted * kBlock)) {
    return room;
  }
  return room_in(prepared_.bytes(Prepared::Kind::kBlocks));
}

bool Transfers::send_by_lanes(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                              CUstream stream, CUresult& result) {
  const unsigned lanes = lanes_for(bytes);
  if (lanes == 0) return false;
  std::size_t ahead = 0;
  const UploadRoom::LaneRoom room = prepare_lanes(lanes, bytes, ahead);
  if (!room_.lanes_have_room(room)) return false;
  rpc::LaneSend sent = rpc::LaneSend::kNone;
  bool cut = false;
  {
    // Blocks are of one connection.
    const auto steady = session_.steady();
    sent = session_.channel().send_by_lanes(
        bytes_at(pointer_at(from), bytes),
        [&](const rpc::SentBlock& block) {
          cut = cut || !make_room_once(block, room, stream, result);
          // After an error, too: each block that was sent has to be named.
          const bool posted =
              session_.post_once(commands::CopyBlockToDevice{.stream = stream,
                                                             .address = to + block.offset,
                                                             .block = block.number,
                                                             .lane = block.lane,
                                                             .bytes = block.bytes});
          cut = cut || !posted;
        },
        ahead);
  }
  if (!cut && sent != rpc::LaneSend::kLost) return sent != rpc::LaneSend::kNone;
  result = session_.after_loss();
  // Where it goes on, all of it is sent again, otherwise.
  return result != CUDA_SUCCESS;
}

CUresult Transfers::send_flat(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                              CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  if (send_by_lanes(to, from, bytes, stream, result)) return result;
  std::uint64_t at = 0;
  bool stage = bytes >= Staging::kBytesMin;
  while (at < bytes) {
    if (stage) at += staging_.to_device(to + at, from + at, bytes - at, stream, result);
    if (result != CUDA_SUCCESS || at == bytes) return result;
    const std::uint64_t size = std::min(kChunkBytes, bytes - at);
    const std::uint64_t kept = room_.taken();
    result = post_kept(commands::CopyToDevice{.stream = stream, .address = to + at},
                       bytes_at(pointer_at(from + at), size));
    if (result != CUDA_SUCCESS) return result;
    at += size;
    // After a wait slots are free again.
    stage = room_.taken() < kept;
  }
  return CUDA_SUCCESS;
}

CUresult Transfers::send_flat_and_wait(std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                                       CUstream stream) {
  const std::uint64_t before = (bytes - 1) / kChunkBytes * kChunkBytes;
  CUresult result = send_flat(to, from, before, stream);
  if (result != CUDA_SUCCESS) return result;
  result = ask_with_data(session_,
                         commands::CopyToDeviceAndWait{.stream = stream, .address = to + before},
                         bytes_at(pointer_at(from + before), bytes - before));
  return result == CUDA_SUCCESS ? session_.take_posted_error() : result;
}

CUresult Transfers::send_rows(const BoxCopy& copy, std::uint64_t slice, CUstream stream) {
  const std::uint64_t rows_at_once = std::min(copy.rows, kChunkBytes / copy.width);
  std::vector<std::byte> packed(rows_at_once * copy.width);
  for (std::uint64_t row = 0; row < copy.rows; row += rows_at_once) {
    const std::uint64_t rows = std::min(rows_at_once, copy.rows - row);
    pack_rows(copy, slice, row, rows, packed.data());
    const std::uint64_t to = copy.to.address + slice * copy.to.slice_pitch + row * copy.to.pitch;
    const CUresult result = post_kept(
        commands::CopyRowsToDevice{
            .stream = stream, .address = to, .pitch = copy.to.pitch, .width = copy.width},
        Bytes(packed).first(rows * copy.width));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Transfers::send_to_array(const BoxCopy& copy, std::uint64_t slice, CUstream stream) {
  commands::CopyToArray command{.stream = stream,
                                .array = copy.to.array,
                                .x = copy.to.x,
                                .y = copy.to.y,
                                .z = copy.to.z + slice,
                                .width = copy.width};
  // Whole rows, as many as fit; else one row in pieces.
  const std::uint64_t width = std::min(copy.width, kChunkBytes);
  const std::uint64_t rows_at_once = copy.width > kChunkBytes ? 1 : kChunkBytes / copy.width;
  const bool gaps = copy.rows > 1 && copy.from.pitch != copy.width;
  std::vector<std::byte> packed(gaps && rows_at_once > 1 ? rows_at_once * copy.width : 0);
  for (std::uint64_t row = 0; row < copy.rows; row += rows_at_once) {
    const std::uint64_t rows = std::min(rows_at_once, copy.rows - row);
    std::uint64_t from = copy.from.address + slice * copy.from.slice_pitch + row * copy.from.pitch;
    if (!packed.empty()) {
      pack_rows(copy, slice, row, rows, packed.data());
      from = address_of(packed.data());
    }
    command.y = copy.to.y + row;
    for (std::uint64_t at = 0; at < copy.width; at += width) {
      command.x = copy.to.x + at;
      command.width = std::min(width, copy.width - at);
      const CUresult result =
          post_kept(command, bytes_at(pointer_at(from + at), command.width * rows));
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult Transfers::capture_later(const BoxCopy& copy, CUstream stream) {
  ContextState* context = thread_state().current_state->home;
  const ContextScope scope(context);
  const std::uint64_t context_handle = context->handle;
  CUstream carrier = nullptr;
  {
    const Lock lock(later_mutex_);
    CUstream& entry = later_streams_[context_handle];
    if (entry == nullptr) {
      const CUresult result = session_.memory().make_stream(
          *context, CU_STREAM_NON_BLOCKING, context->greatest_priority.load(), entry);
      if (result != CUDA_SUCCESS) return result;
    }
    carrier = entry;
  }
  const CodeTurns::Turn turn = code_turns_.copy();
  return host_calls_.add(stream, 0, [this, copy, context, carrier, turn](CUresult) {
    // The stream stands here until this returns, so another one has to carry the bytes.
    set_current(context);
    if (capture(copy, carrier) == CUDA_SUCCESS) {
      static_cast<void>(synchronize(session_, carrier));
    }
    set_current(nullptr);
  });
}

CUresult Transfers::post_to_host(const BoxCopy& copy, CUstream stream) {
  static_cast<void>(lanes_for(copy.width * copy.rows * copy.slices));
  if (session_.captures().any()) {
    // What is refused is refused at once.
    const std::uint64_t delivery = expect_posted(copy);
    const CUresult result =
        is_array(copy.from)
            ? session_.post(array_to_host<commands::PostArrayToHost>(copy, stream, delivery))
            : session_.post(memory_to_host<commands::PostToHost>(copy, stream, delivery));
    if (result != CUDA_SUCCESS) give_up(delivery);
    return result;
  }
  // The thread waits that copies, and not all of them.
  if (!prepare_to_host(copy)) return deliver_to_host(copy, stream);
  const auto attempt = [&] { return try_to_post(copy, stream); };
  return attempt() ? CUDA_SUCCESS : session_.again(attempt);
}

bool Transfers::prepare_to_host(const BoxCopy& copy) {
  // For a host function the server takes as much as it can, because the stream stands for it.
  if (rpc::KeptCredits::used() || host_calls_.any()) return true;
  while (true) {
    const std::uint64_t ready = prepared_.bytes(Prepared::Kind::kToHost);
    std::uint64_t wanted = staged_bytes(copy);
    {
      const Lock lock(mutex_);
      wanted += staged_;
    }
    if (wanted <= ready) return true;
    if (wanted > Prepared::kToHostMax || !prepared_.ask(Prepared::Kind::kToHost, wanted)) {
      return false;
    }
  }
}

std::uint64_t Transfers::expect_posted(const BoxCopy& copy) {
  const rpc::Destination destination{
      pointer_at(copy.to.address), copy.width, copy.rows, copy.to.pitch, copy.slices,
      copy.to.slice_pitch};
  const std::uint64_t delivery = session_.channel().expect_detached(destination);
  const Lock lock(mutex_);
  const Range range{copy.to.address, extent(copy, copy.to), staged_bytes(copy)};
  if (arriving_.emplace(delivery, range).second) staged_ += range.staged;
  return delivery;
}

void Transfers::give_up(std::uint64_t delivery) {
  session_.channel().forget(delivery);
  on_delivered(delivery);
}

bool Transfers::try_to_post(const BoxCopy& copy, CUstream stream) {
  // Deliveries are of one connection.
  const auto steady = session_.steady();
  const std::uint64_t delivery = expect_posted(copy);
  const bool sent =
      is_array(copy.from)
          ? session_.post_once(array_to_host<commands::PostArrayToHost>(copy, stream, delivery))
          : session_.post_once(memory_to_host<commands::PostToHost>(copy, stream, delivery));
  if (!sent) give_up(delivery);
  return sent;
}

// A small result comes by way of shared memory: the GPU writes it there, and nobody is woken.
bool Transfers::result_to_host(const BoxCopy& copy, CUstream stream, CUresult& result) {
  if (copy.rows != 1 || copy.slices != 1 || is_array(copy.from)) return false;
  auto shared = session_.memory().fences().result(context(), copy.width);
  if (!shared) return false;
  unsigned times = 0;
  // Where the session goes on meanwhile nobody else makes the copy again: it changes nothing.
  do {
    times = session_.times_recovered();
    result = session_.post(commands::CopyOnDevice{
        .stream = stream, .to = shared->address(), .from = copy.from.address, .bytes = copy.width});
    if (result == CUDA_SUCCESS) result = synchronize(session_, stream);
  } while (result == CUDA_SUCCESS && times != session_.times_recovered());
  if (result == CUDA_SUCCESS) {
    std::memcpy(pointer_at(copy.to.address), pointer_at(shared->address()), copy.width);
  } else {
    shared->leave(session_, stream);
  }
  return true;
}

CUresult Transfers::wait_to_host(const BoxCopy& copy, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  if (result_to_host(copy, stream, result)) return result;
  const bool plain = copy.rows == 1 && copy.slices == 1 && !is_array(copy.from);
  if (!plain || copy.width < Staging::kBytesMin) return deliver_to_host(copy, stream);
  const std::uint64_t staged =
      staging_.to_host(copy.to.address, copy.from.address, copy.width, stream, result);
  if (result != CUDA_SUCCESS) return result;
  // Errors, host functions' results, printed text: whatever else a wait must bring.
  if (staged == copy.width) return synchronize(session_, stream);
  BoxCopy rest = copy;
  rest.to.address += staged;
  rest.from.address += staged;
  rest.width -= staged;
  return deliver_to_host(rest, stream);
}

CUresult Transfers::deliver_to_host(const BoxCopy& copy, CUstream stream) {
  static_cast<void>(lanes_for(copy.width * copy.rows * copy.slices));
  CUresult result = CUDA_SUCCESS;
  const auto attempt = [&] { return try_to_deliver(copy, stream, result); };
  const CUresult lost = attempt() ? CUDA_SUCCESS : session_.again(attempt);
  return lost == CUDA_SUCCESS ? result : lost;
}

bool Transfers::try_to_deliver(const BoxCopy& copy, CUstream stream, CUresult& result) {
  // A delivery is of one connection.
  const auto steady = session_.steady();
  const rpc::Delivery delivery =
      session_.channel().expect({pointer_at(copy.to.address), copy.width, copy.rows, copy.to.pitch,
                                 copy.slices, copy.to.slice_pitch});
  const auto ask = [&](const auto& command) {
    typename std::decay_t<decltype(command)>::Reply reply;
    rpc::Reply answer;
    if (!session_.ask_once(command, reply, answer)) return false;
    result = session_.settle(answer);
    return true;
  };
  const StreamSeenDone seen(session_, stream);
  const bool answered =
      is_array(copy.from)
          ? ask(array_to_host<commands::CopyArrayToHost>(copy, stream, delivery.id()))
          : ask(memory_to_host<commands::CopyToHost>(copy, stream, delivery.id()));
  if (!answered) return false;
  if (result != CUDA_SUCCESS) return true;
  seen.note();
  if (!delivery.complete()) {
    session_.channel().shut_down("a copy to the host was answered before its bytes came");
    return false;
  }
  result = session_.take_posted_error();
  return true;
}

void Transfers::on_delivered(std::uint64_t delivery) {
  const Lock lock(mutex_);
  const auto found = arriving_.find(delivery);
  if (found == arriving_.end()) return;
  staged_ -= found->second.staged;
  arriving_.erase(found);
  arrived_.notify_all();
}

void Transfers::on_lost() {
  const Lock lock(mutex_);
  lost_ = true;
  arriving_.clear();
  staged_ = 0;
  arrived_.notify_all();
}

void Transfers::on_context_destroyed(std::uint64_t context) {
  staging_.on_context_destroyed(context);
  room_.on_context_destroyed(context);
  prepared_.forget();
  const Lock lock(later_mutex_);
  later_streams_.erase(context);
}

void Transfers::on_recovered() {
  prepared_.forget();
  const Lock lock(mutex_);
  lost_ = false;
  // What was announced while on_lost() was at work met the loss, too.
  arriving_.clear();
  staged_ = 0;
  arrived_.notify_all();
}

std::vector<std::uint64_t> Transfers::arrivals(std::uint64_t base, std::uint64_t bytes) const {
  std::vector<std::uint64_t> found;
  for (const auto& [delivery, range] : arriving_) {
    if (range.base < base + bytes && base < range.base + range.bytes) found.push_back(delivery);
  }
  return found;
}

bool Transfers::arriving(std::uint64_t base, std::uint64_t bytes) const {
  const Lock lock(mutex_);
  return !arrivals(base, bytes).empty();
}

void Transfers::await_arrivals(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  for (const std::uint64_t delivery : arrivals(base, bytes)) {
    while (!lost_ && arriving_.contains(delivery)) arrived_.wait(mutex_);
  }
}

void Transfers::forget_arrivals(std::uint64_t base, std::uint64_t bytes) {
  std::vector<std::uint64_t> forgotten;
  {
    const Lock lock(mutex_);
    forgotten = arrivals(base, bytes);
  }
  // Without the lock: this waits for the thread that reads, which may want it.
  for (const std::uint64_t delivery : forgotten) {
    session_.channel().forget(delivery);
    on_delivered(delivery);
  }
}

bool Transfers::host_writes_pending() const { return host_calls_.any() || host_work_under_way(); }

bool Transfers::host_work_under_way() const {
  if (host_calls_.under_way()) return true;
  const Lock lock(mutex_);
  return !arriving_.empty();
}

}  // namespace flyt::client
