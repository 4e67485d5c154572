// Words in memory that streams and graphs wait for or write.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/types.h"
#include "softgpu/memory/regions.h"
#include "softgpu/stream.h"

namespace flyt::softgpu {

struct MemoryWord {
  CUdeviceptr address = 0;
  std::uint64_t value = 0;
  unsigned flags = 0;
  bool wide = false;
  bool write = false;
};

// What the calls refuse at once.
CUresult check_word(const Regions& regions, const MemoryWord& word);
// Reads and checks a batch; barriers and flushes need nothing here, and are left out.
CUresult read_batch(const Regions& regions, std::span<const CUstreamBatchMemOpParams> batch,
                    std::vector<MemoryWord>& out);
CUstreamBatchMemOpParams batch_entry(const MemoryWord& word);

// Writes the word, or comes back when it has the value that was waited for.
void run_word(Fate& fate, const Regions& regions, const MemoryWord& word);

}  // namespace flyt::softgpu
