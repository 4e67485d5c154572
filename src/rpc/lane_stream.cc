#include "rpc/lane_stream.h"

#include <zstd.h>

#include <array>
#include <span>

namespace flyt::rpc {
namespace {

using transport::Patience;

// Above zstd's ordinary levels in speed, and good enough for what has zeros or repeats itself.
constexpr int kPackingLevel = -3;

}  // namespace

bool PackingChoice::try_now() {
  switch (packing_) {
    case wire::LanePacking::kOff:
      return false;
    case wire::LanePacking::kOn:
      return true;
    case wire::LanePacking::kAuto:
      break;
  }
  if (!slow_) return false;
  if (resting_ == 0) return true;
  --resting_;
  return false;
}

void PackingChoice::wrote(std::uint64_t bytes, Duration took) {
  bytes_ += bytes;
  took_ += took;
  if (bytes_ < kRateBytes) return;
  slow_ =
      static_cast<double>(bytes_) * 1e9 < kCodecBytesPerSecond * static_cast<double>(took_.count());
  bytes_ = 0;
  took_ = Duration{0};
}

// Empty if the block is better sent as it is.
Bytes LaneWriter::packed(Bytes data) {
  if (!choice_.try_now()) return {};
  // Room for what is worth sending, and no more.
  packed_.resize(data.size() - data.size() / 8);
  const std::size_t used =
      ZSTD_compress(packed_.data(), packed_.size(), data.data(), data.size(), kPackingLevel);
  if (ZSTD_isError(used) == 0 && used > 0) return Bytes(packed_).first(used);
  choice_.saved_nothing();
  return {};
}

Status LaneWriter::write(std::uint64_t name, std::uint64_t offset, Bytes data) {
  FLYT_ASSERT(!data.empty() && data.size() <= wire::kLaneBlockBytesMax);
  const Bytes small = packed(data);
  const Bytes sent = small.empty() ? data : small;
  std::array<std::byte, wire::kLaneBlockHeaderBytes> header;
  Writer writer(header);
  wire::encode(wire::LaneBlock{.sent_bytes = static_cast<std::uint32_t>(sent.size()),
                               .bytes = static_cast<std::uint32_t>(data.size()),
                               .name = name,
                               .offset = offset},
               writer);
  std::array<Bytes, 2> both{Bytes(header), sent};
  const Instant begun = clock_.now();
  std::span<Bytes> rest(both);
  while (!rest.empty()) {
    Result<std::size_t> taken = connection_.write(rest, Patience::kWait);
    if (!taken) return std::move(taken).error();
    std::size_t left = *taken;
    while (!rest.empty() && left >= rest.front().size()) {
      left -= rest.front().size();
      rest = rest.subspan(1);
    }
    if (!rest.empty()) rest.front() = rest.front().subspan(left);
  }
  choice_.wrote(sent.size(), clock_.now() - begun);
  return {};
}

Status LaneReader::fill(MutableBytes into) {
  while (!into.empty()) {
    Result<std::size_t> got = connection_.read({&into, 1}, Patience::kWait);
    if (!got) return std::move(got).error();
    into = into.subspan(*got);
  }
  return {};
}

MutableBytes LaneReader::room(std::size_t size) {
  if (packed_.size() < size) packed_.resize(wire::kLaneBlockBytesMax);
  return MutableBytes(packed_).first(size);
}

Result<wire::LaneBlock> LaneReader::next() {
  std::array<std::byte, wire::kLaneBlockHeaderBytes> header;
  if (Status got = fill(header); !got) return std::move(got).error();
  Reader reader(header);
  const wire::LaneBlock block = wire::decode_lane_block(reader);
  const std::string_view problem = wire::problem_with(block);
  if (!problem.empty()) return Error{ErrorCode::kInvalid, std::string(problem)};
  return block;
}

Status LaneReader::read(const wire::LaneBlock& block, MutableBytes into) {
  FLYT_ASSERT(into.size() == block.bytes);
  if (!block.packed()) return fill(into);
  const MutableBytes packed = room(block.sent_bytes);
  if (Status got = fill(packed); !got) return got;
  const std::size_t size = ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) == 0 && size == into.size()) return {};
  return Error{ErrorCode::kInvalid, "packed block on a lane is damaged"};
}

Status LaneReader::skip(const wire::LaneBlock& block) { return fill(room(block.sent_bytes)); }

}  // namespace flyt::rpc
