// The just-in-time linker.
#include "server/hooks_link.h"

#include <string>

#include "server/code_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

std::shared_ptr<Link> find(Request& request, CUlinkState handle) {
  return std::static_pointer_cast<Link>(
      request.session().handles().entry(wire::HandleKind::kLink, address_of(handle)).attachment);
}

template <class Reply>
void fill_logs(Link& link, Reply& reply) {
  reply.wall_time = link.arguments->wall_time();
  reply.info_log = link.arguments->info_log();
  reply.error_log = link.arguments->error_log();
}

}  // namespace

CUresult create_link(Request& request, const commands::CreateLink& command) {
  auto link = std::make_shared<Link>(request.driver());
  link->arguments = std::make_unique<JitArguments>();
  JitArguments& jit = *link->arguments;
  if (!jit.take(command.options, command.values)) return CUDA_ERROR_INVALID_VALUE;
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
  auto data = request.session().code().take_upload(command.upload);
  JitArguments jit;
  if (link == nullptr) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  if (!data || !jit.take(command.options, command.values)) {
    return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  }
  const Lock lock(link->mutex);
  link->inputs.push_back(std::move(*data));
  std::vector<std::byte>& kept = link->inputs.back();
  request.session().code().note_code(kept);
  const CUresult result = request.driver().cuLinkAddData_v2(
      link->state, static_cast<CUjitInputType>(command.type), kept.data(), kept.size() - 1,
      std::string(command.name).c_str(), jit.count(), jit.options(), jit.values());
  fill_logs(*link, reply);
  request.reply(result, reply);
}

void complete_link(Request request, const commands::CompleteLink& command) {
  commands::CompleteLink::Reply reply;
  const auto link = find(request, command.link);
  if (link == nullptr) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  const Lock lock(link->mutex);
  void* cubin = nullptr;
  std::size_t size = 0;
  const CUresult result = request.driver().cuLinkComplete(link->state, &cubin, &size);
  if (result == CUDA_SUCCESS) link->cubin = bytes_at(cubin, size);
  reply.size = link->cubin.size();
  fill_logs(*link, reply);
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
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace flyt::server::hooks
