// The just-in-time linker.
#include "server/hooks_link.h"

#include <string>

#include "cuda/image.h"
#include "server/code/code_subjects.h"
#include "server/code/code_taking.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

std::shared_ptr<Link> find(Request& request, CUlinkState handle) {
  return std::static_pointer_cast<Link>(
      request.session().handles().entry(wire::HandleKind::kLink, address_of(handle)).attachment);
}

// A driver trusts the sizes inside of binaries more than the one that it is told: a cubin or fat
// binary must be what it says. `data` has a zero byte behind it.
bool measured(CUjitInputType type, const std::vector<std::byte>& data) {
  const bool binary = type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_FATBINARY;
  return !binary || cuda::image_of(Bytes(data).first(data.size() - 1)).ok();
}

void note_failure(Request& request, Link& link) {
  Recovery* const recovery = request.session().recovery();
  if (recovery == nullptr || link.spoiler) return;
  link.spoiler = Spoiler(recovery->marks(), request.op());
}

}  // namespace

CUresult create_link(Request& request, const commands::CreateLink& command) {
  auto link = std::make_shared<Link>(request.driver());
  link->arguments = std::make_unique<JitArguments>();
  JitArguments& jit = *link->arguments;
  if (!jit.take(command.options, command.values)) return CUDA_ERROR_INVALID_VALUE;
  const bool room = link->counted.take(request.session().code().link_bytes(),
                                       sizeof *link + jit.log_bytes(), Link::kInputBytesMax);
  if (!room) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result =
      request.driver().cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link->state);
  if (result == CUDA_SUCCESS) {
    CUlinkState const native = link->state;
    static_cast<void>(
        request.adopt(wire::HandleKind::kLink, command.link, native, std::move(link)));
  }
  return result;
}

void add_link_data(Request request, const commands::AddLinkData& command) {
  commands::AddLinkData::Reply reply;
  const auto link = find(request, command.link);
  std::vector<std::byte> data;
  const CUresult none = take_code(request, command.upload, data).result;
  auto input = std::make_unique<Link::Input>();
  JitArguments& jit = input->arguments;
  if (link == nullptr) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  if (none != CUDA_SUCCESS) return request.reply(none, reply);
  const auto type = static_cast<CUjitInputType>(command.type);
  if (!jit.take(command.options, command.values) || !measured(type, data)) {
    return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  }
  const Lock lock(link->mutex);
  const std::uint64_t bytes = data.size() + sizeof *input + jit.log_bytes();
  if (!input->counted.take(request.session().code().link_bytes(), bytes, Link::kInputBytesMax)) {
    return request.reply(CUDA_ERROR_OUT_OF_MEMORY, reply);
  }
  input->data = std::move(data);
  std::vector<std::byte>& kept = input->data;
  request.session().code().note_code(cuda::code_facts(kept));
  link->cubin = {};
  link->inputs.push_back(std::move(input));
  const CUresult result = request.driver().cuLinkAddData_v2(
      link->state, type, kept.data(), kept.size() - 1, std::string(command.name).c_str(),
      jit.count(), jit.options(), jit.values());
  if (result != CUDA_SUCCESS) note_failure(request, *link);
  link->arguments->fill_told(reply);
  request.reply(result, reply);
}

void complete_link(Request request, const commands::CompleteLink& command) {
  commands::CompleteLink::Reply reply;
  const auto link = find(request, command.link);
  if (link == nullptr) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  const Lock lock(link->mutex);
  // The driver may free an earlier one.
  link->cubin = {};
  void* cubin = nullptr;
  std::size_t size = 0;
  const CUresult result = request.driver().cuLinkComplete(link->state, &cubin, &size);
  if (result == CUDA_SUCCESS) link->cubin = bytes_at(cubin, size);
  if (result != CUDA_SUCCESS) note_failure(request, *link);
  reply.size = link->cubin.size();
  link->arguments->fill_told(reply);
  request.reply(result, reply);
}

CUresult read_link(Request& request, const commands::ReadLink& command) {
  const auto link = find(request, command.link);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Lock lock(link->mutex);
  request.session().endpoint().deliver(command.delivery, 0, link->cubin);
  return CUDA_SUCCESS;
}

CUresult destroy_link(Request& request, const commands::DestroyLink& command) {
  const auto entry =
      request.session().handles().drop(wire::HandleKind::kLink, address_of(command.link));
  return entry ? CUDA_SUCCESS : request.session().ended_before(CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace flyt::server::hooks
