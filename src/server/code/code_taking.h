// Taking code: from what a client has sent or named to the bytes that a driver gets.
#pragma once

#include <optional>
#include <vector>

#include "base/sha256.h"
#include "commands/library.h"
#include "cuda/code_facts.h"
#include "driver/table.h"
#include "server/code/code_store.h"
#include "server/code/jit_arguments.h"
#include "server/lease/usage_board.h"
#include "server/request.h"
#include "wire/fields.h"

namespace flyt::server {

struct TakenCode {
  // wire::kResultSendCode where it was only named and is not here: the upload stays for what the
  // client sends then; CUDA_ERROR_INVALID_VALUE for an upload that there is not, is not whole, or
  // is not what it was said to be.
  CUresult result = CUDA_SUCCESS;
  std::optional<Digest> digest;  // Where the client named it.
};

// The code of an upload, with a zero byte behind it. Workers only: it may read and write files.
TakenCode take_code(Request& request, std::uint64_t upload, std::vector<std::byte>& code);

// Looks into code, or finds what was seen when it was looked into before. `store` may be null.
cuda::CodeFacts facts_of(CodeStore* store, Bytes code, const std::optional<Digest>& named);

struct CodeOrigin;  // server/code/code_subjects.h

struct Image {
  std::vector<std::byte> bytes;  // And a zero byte behind them.
  cuda::CodeFacts facts;
  std::optional<Digest> named;  // By the client.

  CodeName name() const { return {*named, bytes.size() - 1}; }  // Of one that is `named`.
};

// What a command that loads code names: an image whose size is the one it says, and the compiler's
// options. Otherwise the result to answer with, as of take_code().
CUresult take_image(Request& request, std::uint64_t upload, const wire::List<std::int32_t>& options,
                    const wire::List<std::uint64_t>& values, Image& image, JitArguments& jit);
template <class Command>
CUresult take_image(Request& request, const Command& command, Image& image, JitArguments& jit) {
  return take_image(request, command.upload, command.options, command.values, image, jit);
}

// Whether a library with these options is as one without any, but for what may be said of errors.
bool may_be_foreseen(const wire::List<std::int32_t>& options);
// The same for a library, which may have been loaded ahead (`native`). Compiler's thread.
CUresult take_library(Request& request, const commands::LoadLibrary& command, Image& image,
                      JitArguments& jit, CUlibrary& native);

// As the CUDA runtime has it, the code stays where it is as long as the library is loaded: else the
// driver takes a copy, and looks at all of it at once.
CUresult load_preserved(const driver::Table& driver, const std::vector<std::byte>& code,
                        JitArguments& jit, CUlibrary& native);

// Reserves what code takes once it is loaded, on the device of the current context or else on the
// first one, and here. CUDA_ERROR_OUT_OF_MEMORY if the lease, or the session, has no more.
CUresult charge_code(const Request& request, const Image& image, CodeOrigin& origin);

}  // namespace flyt::server
