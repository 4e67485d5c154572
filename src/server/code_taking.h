// Taking code: from what a client has sent or named to the bytes that a driver gets.
#pragma once

#include <vector>

#include "server/request.h"

namespace flyt::server {

// The code of an upload, with a zero byte behind it. Otherwise the result to answer with:
// wire::kResultSendCode where it was only named and is not here: the upload stays for what the
// client sends then; CUDA_ERROR_INVALID_VALUE for an upload that there is not, is not whole, or is
// not what it was said to be. Workers only: it may read and write files.
CUresult take_code(Request& request, std::uint64_t upload, std::vector<std::byte>& code);

}  // namespace flyt::server
