// Access and copies between devices.
#include "client/hooks_peer.h"

#include <span>

#include "client/call.h"
#include "client/hooks_copy.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "commands/peer.h"

namespace flyt::client::hooks {
namespace {

// A null context stands for the current one; addresses tell the devices by themselves.
CUresult check_contexts(CUcontext first, CUcontext second) {
  for (const CUcontext context : {first, second}) {
    if (context == nullptr) continue;
    if (const CUresult result = check(context); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult box(const CUDA_MEMCPY3D_PEER* description, CUstream stream, Waiting waiting) {
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check(stream);
  if (result != CUDA_SUCCESS) return result;
  result = check_contexts(description->srcContext, description->dstContext);
  if (result != CUDA_SUCCESS) return result;
  MemoryState& memory = session().memory();
  std::uint64_t graph = 0;
  result = memory.transfers().look_for_captures(stream, waiting, graph);
  if (result != CUDA_SUCCESS) return result;
  BoxCopy copy;
  result = make_box_copy({memory.map(), memory.images.arrays}, *description, copy);
  return result == CUDA_SUCCESS ? memory.transfers().run(copy, stream, waiting, graph) : result;
}

// As natively, earlier errors are told by these, too.
CUresult told(CUresult result) {
  return result == CUDA_SUCCESS ? session().take_posted_error() : result;
}

}  // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  if (const CUresult no = check(peerContext); no != CUDA_SUCCESS) return no;
  const commands::CtxEnablePeerAccess command{.peerContext = peerContext, .Flags = Flags};
  return told(ask_and_note(command, [&](const auto&) {
    session().memory().peers.enable({context().handle, address_of(peerContext)});
    return CUDA_SUCCESS;
  }));
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  if (const CUresult no = check(peerContext); no != CUDA_SUCCESS) return no;
  const commands::CtxDisablePeerAccess command{.peerContext = peerContext};
  return told(ask_and_note(command, [&](const auto&) {
    session().memory().peers.disable({context().handle, address_of(peerContext)});
    return CUDA_SUCCESS;
  }));
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                          const CUatomicOperation* operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  using Command = commands::DeviceGetP2PAtomicCapabilities;
  if (capabilities == nullptr || operations == nullptr || count == 0 ||
      count > Command::kOperationsCountMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Command::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(Command{.operations = wire::List<CUatomicOperation>(
                                          std::span<const CUatomicOperation>(operations, count)),
                                      .count = count,
                                      .srcDevice = srcDevice,
                                      .dstDevice = dstDevice},
                              reply, answer);
  if (result == CUDA_SUCCESS) reply.capabilities.copy_to({capabilities, count});
  return result;
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  const CUresult result = check_contexts(dstContext, srcContext);
  return result == CUDA_SUCCESS ? cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount) : result;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  const CUresult result = check_contexts(dstContext, srcContext);
  return result == CUDA_SUCCESS ? cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream)
                                : result;
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return box(pCopy, nullptr, Waiting::kStaged);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return box(pCopy, hStream, Waiting::kStream);
}

}  // namespace flyt::client::hooks
