// The just-in-time linker: it runs on the server, the program's buffers stay here.
#include "client/hooks_link.h"

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/code/image_sender.h"
#include "client/code/jit_options.h"
#include "commands/link.h"

namespace flyt::client::hooks {
namespace {

constexpr std::size_t kLinkNameBytesMax = 4096;
constexpr std::uint64_t kCubinBytesMax = 1 * kGiB;

LinkState* find(CUlinkState handle) { return session().code().links.find(address_of(handle)); }

CUresult add(CUlinkState handle, CUjitInputType type, Bytes data, std::string_view name,
             JitOptions& jit) {
  LinkState* link = find(handle);
  Upload sent;
  if (const CUresult no = upload(data, sent); no != CUDA_SUCCESS) return no;
  name = name.substr(0, kLinkNameBytesMax);
  const commands::AddLinkData command{.link = handle,
                                      .type = static_cast<std::int32_t>(type),
                                      .upload = sent.handle,
                                      .name = name,
                                      .options = wire::List<std::int32_t>(jit.options()),
                                      .values = wire::List<std::uint64_t>(jit.values())};
  commands::AddLinkData::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask_with(sent, command, reply, answer, [&] {
    if (session().recovery() != nullptr) {
      link->inputs.push_back(
          {type, std::string(name), {data.begin(), data.end()}, jit.options(), jit.values()});
    }
    return CUDA_SUCCESS;
  });
  link->options->deliver(reply.info_log, reply.error_log, reply.wall_time);
  return result;
}

// The finished cubin, from the server.
CUresult fetch(CUlinkState handle, std::uint64_t size, LinkState& link) {
  if (size > kCubinBytesMax) return CUDA_ERROR_UNKNOWN;
  link.cubin.resize(size);
  CUresult result = CUDA_SUCCESS;
  // A delivery is of one connection.
  const auto attempt = [&] {
    const auto steady = session().steady();
    const rpc::Delivery delivery =
        session().channel().expect(rpc::Destination::flat(link.cubin.data(), link.cubin.size()));
    commands::ReadLink::Reply reply;
    rpc::Reply answer;
    const commands::ReadLink command{.link = handle, .delivery = delivery.id()};
    if (!session().ask_once(command, reply, answer)) return false;
    result = session().settle(answer);
    if (result == CUDA_SUCCESS && !delivery.complete()) result = CUDA_ERROR_UNKNOWN;
    if (result != CUDA_SUCCESS) return true;
    link.fetched = true;
    link.inputs.clear();
    return true;
  };
  const CUresult lost = attempt() ? CUDA_SUCCESS : session().again(attempt);
  return lost == CUDA_SUCCESS ? result : lost;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto jit = std::make_unique<JitOptions>();
  if (const CUresult no = jit->take(numOptions, options, optionValues); no != CUDA_SUCCESS) {
    return no;
  }
  auto& links = session().code().links;
  const auto made = links.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto handle = static_cast<CUlinkState>(pointer_at(made.handle));
  const commands::CreateLink command{.link = handle,
                                     .options = wire::List<std::int32_t>(jit->options()),
                                     .values = wire::List<std::uint64_t>(jit->values())};
  const CUresult result = ask_and_note(command, [&](const auto&) {
    made.state->context = &context();
    made.state->options = std::move(jit);
    links.publish(made.handle);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) {
    links.discard(made.handle);
    return result;
  }
  *stateOut = handle;
  return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                      CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  const LinkState* link = find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(link->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (link->complete || data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult no = jit.take(numOptions, options, optionValues); no != CUDA_SUCCESS) {
    return no;
  }
  return add(state, type, bytes_at(data, size), name == nullptr ? "" : name, jit);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                       const char* name, unsigned int numOptions, CUjit_option* options,
                       void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> file;
  if (const CUresult no = read_code_file(path, file); no != CUDA_SUCCESS) return no;
  // The zero byte behind the file belongs to PTX alone.
  const std::size_t size = type == CU_JIT_INPUT_PTX ? file.size() : file.size() - 1;
  return cuLinkAddData_v2(state, type, file.data(), size, path, numOptions, options, optionValues);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                       unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  LinkState* link = find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(link->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (link->complete) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::CompleteLink::Reply reply;
  rpc::Reply answer;
  const CUresult result =
      session().ask_and_note(commands::CompleteLink{.link = state}, reply, answer, [&] {
        link->complete = true;
        return CUDA_SUCCESS;
      });
  link->options->deliver(reply.info_log, reply.error_log, reply.wall_time);
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult no = fetch(state, reply.size, *link); no != CUDA_SUCCESS) return no;
  *cubinOut = link->cubin.data();
  if (sizeOut != nullptr) *sizeOut = link->cubin.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  if (find(state) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return session().post_and_note(commands::DestroyLink{.link = state},
                                 [&] { session().code().links.drop(address_of(state)); });
}

}  // namespace flyt::client::hooks
