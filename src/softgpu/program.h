// Program: from the bytes that a load or link call names to code that the interpreter runs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cuda/fatbin.h"
#include "cuda/image.h"
#include "cuda/types.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/ptx/jit_log.h"
#include "softgpu/ptx/module.h"

namespace flyt::softgpu {

// What was loaded: the code, and how to name it again.
struct Program {
  std::shared_ptr<const ptx::Program> code;
  const ptx::Module& module() const { return ptx::module_of(*code); }
  // The index in module().kernels(), or none.
  std::optional<std::uint32_t> kernel(std::string_view name) const;
  const ptx::Function& function(std::uint32_t kernel) const {
    return module().functions()[module().kernels()[kernel]];
  }
};

// The options of a load or link call. Buffers are the caller's and live until the call that uses
// them last.
class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for options that there are not, or null arrays.
  static CUresult read(unsigned count, const CUjit_option* options, void** values, JitOptions& out);
  // Puts the logs into the caller's buffers and their lengths into its options.
  void write(const ptx::JitLog& log) const;

 private:
  struct Buffer {
    char* at = nullptr;
    std::size_t size = 0;
    void** used = nullptr;  // Where the caller wants the length, or null.
    void fill(const std::string& text) const;
  };
  Buffer info_;
  Buffer error_;
  void** wall_time_ = nullptr;
};

// One PTX text, or what of a fat binary the GPU can use, parsed but not linked.
CUresult parse_image(const cuda::Image& image, cuda::ComputeCapability capability, ptx::JitLog& log,
                     std::vector<std::shared_ptr<const ptx::Module>>& out);

// Parsed (and, where there are several, linked) modules made executable.
CUresult make_program(std::span<const std::shared_ptr<const ptx::Module>> modules, ptx::JitLog& log,
                      Program& out);

// Both, for an image at an address of this process.
CUresult load_program(const void* image, cuda::ComputeCapability capability, ptx::JitLog& log,
                      Program& out);

// What cuLinkComplete hands out: a fat binary that only the software GPU can load, with the PTX
// texts that were linked; as many as LinkRoom lets in.
std::vector<std::byte> linked_image(std::span<const std::string_view> texts,
                                    cuda::ComputeCapability capability);

// A file's bytes with a NUL behind them; CUDA_ERROR_FILE_NOT_FOUND.
CUresult read_file(const char* path, std::vector<std::byte>& out);

}  // namespace flyt::softgpu
