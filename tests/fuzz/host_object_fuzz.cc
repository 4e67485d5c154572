// Host objects and libraries of unknown origin: taken apart, and the PTX in them within limits.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/host_object.h"
#include "softgpu/link_texts.h"

using flyt::Bytes;
using flyt::bytes_at;

namespace {

namespace cuda = flyt::cuda;
namespace softgpu = flyt::softgpu;

void expect_within(Bytes part, Bytes whole) {
  FLYT_ASSERT(part.empty() || (part.data() >= whole.data() &&
                               part.data() + part.size() <= whole.data() + whole.size()));
}

void take_apart(Bytes object) {
  const auto fatbins = cuda::fatbins_of_object(object);
  if (!fatbins) return;
  std::size_t code_bytes = 0;
  for (const cuda::Fatbin& fatbin : *fatbins) {
    for (const cuda::FatbinFile& file : fatbin.files()) {
      expect_within(file.whole, object);
      code_bytes += file.whole.size();
    }
  }
  FLYT_ASSERT(code_bytes <= object.size());
}

void take_texts(CUjitInputType type, Bytes bytes) {
  // Unpacking more than this costs time, and shows nothing new.
  constexpr std::uint64_t kTextBytesMax = 1 << 20;
  constexpr cuda::ComputeCapability kHopper{9, 0};
  softgpu::LinkRoom room;
  room.texts = 8;
  room.bytes = kTextBytesMax;
  room.all = std::make_shared<std::atomic<std::uint64_t>>(0);
  flyt::ptx::JitLog log;
  std::vector<softgpu::LinkText> texts;
  const CUresult result = softgpu::texts_of_input(type, bytes, kHopper, room, log, texts);
  FLYT_ASSERT(result == CUDA_SUCCESS || !log.errors().empty());
  std::uint64_t text_bytes = 0;
  for (const softgpu::LinkText& each : texts) text_bytes += each.text.size();
  FLYT_ASSERT(texts.size() <= 8 && text_bytes <= kTextBytesMax && text_bytes == room.all->load());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = bytes_at(data, size);
  take_apart(bytes);
  const auto members = cuda::members_of_archive(bytes);
  if (members) {
    for (const Bytes member : *members) {
      expect_within(member, bytes);
      take_apart(member);
    }
  }
  take_texts(CU_JIT_INPUT_OBJECT, bytes);
  take_texts(CU_JIT_INPUT_LIBRARY, bytes);
  return 0;
}
