// Copies between the client and device memory, and inside device memory.
#include "server/hooks_copy.h"

#include <utility>

#include "server/graphs/graphs.h"
#include "server/memory_subjects.h"
#include "server/session.h"
#include "server/transfers/received.h"

namespace flyt::server::hooks {
namespace {

CUresult host_job(Request& request, CUstream stream, const Box& box, std::uint64_t delivery,
                  DeliveryJob& job) {
  Session& session = request.session();
  job.context = request.context();
  job.context_handle = session.handles().handle_at(wire::HandleKind::kContext, request.context());
  job.box = box;
  job.delivery = delivery;
  job.stream = stream;
  if (!request.resolve(job.stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (session.graphs().capturing(job.stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  session.memory().depths.count(request.context(), job.stream);
  job.stream_owner = request.owner_of(stream);
  if (!session.memory().allowed(box)) return CUDA_ERROR_INVALID_VALUE;
  session.memory().open_to_current(box.address);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_to_device(Request& request, const commands::CopyToDevice& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.data.empty()) return CUDA_SUCCESS;
  if (!request.session().regions().allowed(command.address, command.data.size())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  request.session().memory().open_to_current(command.address);
  return from_received(request, stream, command.data, [&](const std::byte* source) {
    return request.driver().cuMemcpyHtoDAsync_v2(command.address, source, command.data.size(),
                                                 stream);
  });
}

CUresult copy_block_to_device(Request& request, const commands::CopyBlockToDevice& command) {
  if (!request.block()) {
    request.session().end("a command names a block that no lane has sent");
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!request.session().regions().allowed(command.address, command.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  request.session().memory().open_to_current(command.address);
  const Bytes data = request.block()->bytes().first(command.bytes);
  return from_received(request, stream, data, request.block(), [&](const std::byte* source) {
    return request.driver().cuMemcpyHtoDAsync_v2(command.address, source, data.size(), stream);
  });
}

void copy_to_device_and_wait(Request request, const commands::CopyToDeviceAndWait& command) {
  const CUresult result = copy_to_device(
      request, {.stream = command.stream, .address = command.address, .data = command.data});
  if (result != CUDA_SUCCESS) return request.reply(result);
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return request.reply(CUDA_ERROR_INVALID_HANDLE);
  request.session().memory().answer_at_end_of(stream, std::move(request));
}

CUresult copy_rows_to_device(Request& request, const commands::CopyRowsToDevice& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.data.empty()) return CUDA_SUCCESS;
  if (command.width == 0 || command.data.size() % command.width != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t rows = command.data.size() / command.width;
  const Box box{command.address, command.pitch, 0, command.width, rows, 1};
  if (!request.session().memory().allowed(box)) return CUDA_ERROR_INVALID_VALUE;
  request.session().memory().open_to_current(command.address);
  return from_received(request, stream, command.data, [&](const std::byte* source) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = source;
    copy.srcPitch = command.width;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = command.address;
    copy.dstPitch = rows > 1 ? command.pitch : command.width;
    copy.WidthInBytes = command.width;
    copy.Height = rows;
    return request.driver().cuMemcpy2DAsync_v2(&copy, stream);
  });
}

void prepare_copies(Request request, const commands::PrepareCopies& command) {
  request.forget_payload();
  MemorySubjects& memory = request.session().memory();
  request.session().run_slow(
      std::move(request), [&memory, kind = command.kind, wanted = command.wanted](Request slow) {
        const auto bytes = memory.prepare_copies(kind, wanted);
        slow.reply(bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
                   commands::PrepareCopies::Reply{.bytes = bytes.value_or(0)});
      });
}

void copy_to_host(Request request, const commands::CopyToHost& command) {
  DeliveryJob job;
  const Box box{command.address, command.pitch, command.slice_pitch,
                command.width,   command.rows,  command.slices};
  const CUresult result = host_job(request, command.stream, box, command.delivery, job);
  if (result != CUDA_SUCCESS) return request.reply(result);
  Deliveries& deliveries = request.session().memory().deliveries;
  deliveries.answer(std::move(request), job);
}

CUresult post_to_host(Request& request, const commands::PostToHost& command) {
  DeliveryJob job;
  const Box box{command.address, command.pitch, command.slice_pitch,
                command.width,   command.rows,  command.slices};
  MemorySubjects& memory = request.session().memory();
  const CUresult result = host_job(request, command.stream, box, command.delivery, job);
  if (result == CUDA_SUCCESS) return memory.deliveries.post(request, job);
  request.session().endpoint().drop_delivery(command.delivery);
  return result;
}

CUresult copy_on_device(Request& request, const commands::CopyOnDevice& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.bytes == 0) return CUDA_SUCCESS;
  MemorySubjects& memory = request.session().memory();
  memory.depths.count(request.context(), stream);
  const Regions& regions = request.session().regions();
  if (!regions.allowed(command.to, command.bytes) ||
      !regions.allowed(command.from, command.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Box to{.address = command.to, .width = command.bytes, .rows = 1, .slices = 1};
  const Box from{.address = command.from, .width = command.bytes, .rows = 1, .slices = 1};
  if (!memory.may_be_captured(stream, to) || !memory.may_be_captured(stream, from)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory.open_to_current(command.to);
  memory.open_to_current(command.from);
  return request.driver().cuMemcpyDtoDAsync_v2(command.to, command.from, command.bytes, stream);
}

CUresult copy_box_on_device(Request& request, const commands::CopyBoxOnDevice& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  const Box to{command.to,    command.to_pitch, command.to_slice_pitch,
               command.width, command.rows,     command.slices};
  const Box from{command.from,  command.from_pitch, command.from_slice_pitch,
                 command.width, command.rows,       command.slices};
  if (to.empty()) return CUDA_SUCCESS;
  MemorySubjects& memory = request.session().memory();
  if (!memory.allowed(to) || !memory.allowed(from)) return CUDA_ERROR_INVALID_VALUE;
  if (!memory.may_be_captured(stream, to) || !memory.may_be_captured(stream, from)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory.open_to_current(command.to);
  memory.open_to_current(command.from);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcPitch = command.rows > 1 ? command.from_pitch : command.width;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstPitch = command.rows > 1 ? command.to_pitch : command.width;
  copy.WidthInBytes = command.width;
  copy.Height = command.rows;
  const bool captured = request.session().graphs().capturing(stream);
  if (captured && !request.session().graphs().note_captured(command.slices)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Slice by slice: the heights that cuMemcpy3D wants need not exist as whole rows.
  for (std::uint64_t slice = request.begun(); slice < command.slices; ++slice) {
    if (!captured) {
      if (request.session().gives_way(request, slice)) return CUDA_SUCCESS;
      memory.depths.count(request.context(), stream);
    }
    copy.srcDevice = command.from + slice * command.from_slice_pitch;
    copy.dstDevice = command.to + slice * command.to_slice_pitch;
    const CUresult result = request.driver().cuMemcpy2DAsync_v2(&copy, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
