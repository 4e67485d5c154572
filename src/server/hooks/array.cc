// Arrays, mipmapped ones, and copies from and to them.
#include "server/hooks_array.h"

#include <algorithm>
#include <utility>

#include "server/graphs/graphs.h"
#include "server/memory/images.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "server/transfers/received.h"

namespace flyt::server::hooks {
namespace {

// An array of the client's, kept while a command works with it.
struct FoundArray {
  CUarray native = nullptr;
  std::shared_ptr<ImageOwner> owner;
  explicit operator bool() const { return owner != nullptr; }
};

FoundArray find(Session& session, CUarray handle) {
  const Handles::Entry entry =
      session.handles().entry(wire::HandleKind::kArray, address_of(handle));
  return {static_cast<CUarray>(entry.native),
          std::static_pointer_cast<ImageOwner>(entry.attachment)};
}

CUresult put(Session& session, wire::HandleKind kind, std::uint64_t handle, void* native,
             std::shared_ptr<ImageOwner> owner) {
  if (session.handles().put(kind, handle, native, std::move(owner))) return CUDA_SUCCESS;
  session.end("bad handle for a new array");
  return CUDA_ERROR_INVALID_HANDLE;
}

// Runs `make`, and again after giving the driver all memory that lies idle here.
template <class Make>
CUresult make_with_room(Session& session, Make&& make) {
  CUresult result = make();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  CUdevice device = 0;
  static_cast<void>(session.driver().cuCtxGetDevice(&device));
  session.memory().make_room(device);
  return make();
}

// Where the session goes on the lease has had that memory before; what it has not had it asks for.
CUresult reserve(Session& session, std::uint64_t handle, UsedMemory& charge, CUdevice device,
                 std::uint64_t bytes) {
  Recovery* const recovery = session.recovery();
  if (recovery != nullptr && recovery->restoring() && recovery->had_array(handle, bytes)) {
    charge = UsedMemory(device, bytes);
    return CUDA_SUCCESS;
  }
  return charge.reserve(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// What the new array holds will be saved, and is what was saved.
template <class Command>
CUresult note(Session& session, const Request& request, wire::HandleKind kind,
              const Command& command) {
  SavedArrays::Shape shape{
      .kind = kind, .context = request.home(), .descriptor = command.descriptor};
  if constexpr (requires { command.levels; }) shape.levels = command.levels;
  const auto using_context = session.use();
  const CUresult entered = session.enter(request.context());
  if (entered != CUDA_SUCCESS) return entered;
  return session.memory().saved_arrays.add(address_of(command.array), shape);
}

// Makes an object on a worker with the context alive, and puts it under the client's handle.
// `bytes`: what it takes of the device.
template <class Native, class Command, class Make, class Describe>
void create(Request request, const Command& command, ImageKind kind, wire::HandleKind handle_kind,
            std::uint64_t bytes, Make make, Describe describe) {
  Session& session = request.session();
  request.forget_payload();
  session.run_slow(std::move(request), [&session, command, kind, handle_kind, bytes, make,
                                        describe](Request slow) {
    Native native = nullptr;
    const CUresult result = make_with_room(session, [&] {
      const auto using_context = session.use();
      UsedMemory charge;
      CUdevice device = 0;
      CUresult made = session.enter(slow.context());
      if (made == CUDA_SUCCESS) made = session.driver().cuCtxGetDevice(&device);
      if (made == CUDA_SUCCESS) {
        made = reserve(session, address_of(command.array), charge, device, bytes);
      }
      if (made == CUDA_SUCCESS && session.memory().images->full()) made = CUDA_ERROR_OUT_OF_MEMORY;
      if (made == CUDA_SUCCESS) made = make(session.driver(), &native);
      if (made != CUDA_SUCCESS) return made;
      auto owner =
          session.memory().images->own(kind, address_of(native), slow.home(), std::move(charge));
      describe(*owner);
      owner->saved_as = address_of(command.array);
      // Nobody keeps it when the client hears of it: it may end it at once.
      return put(session, handle_kind, address_of(command.array), native, std::move(owner));
    });
    slow.reply(result == CUDA_SUCCESS ? note(session, slow, handle_kind, command) : result);
  });
}

// Drops a handle, waits for the GPU in the object's context, and ends the object, unless something
// else still keeps it.
void destroy(Request request, wire::HandleKind kind, std::uint64_t handle) {
  Session& session = request.session();
  Handles::Entry entry = session.handles().drop(kind, handle);
  auto owner = std::static_pointer_cast<ImageOwner>(std::move(entry.attachment));
  if (owner == nullptr) return request.reply(session.ended_before(CUDA_ERROR_INVALID_HANDLE));
  if (owner->saved_as == handle) session.memory().saved_arrays.forget(handle);
  if (owner->id() == 0) return request.reply(CUDA_SUCCESS);
  entry = {};
  request.forget_payload();
  session.run_slow(std::move(request), [&session, owner = std::move(owner)](Request slow) mutable {
    {
      const auto using_context = session.use();
      if (session.enter(owner->context()) == CUDA_SUCCESS) {
        static_cast<void>(session.graphs().wait_for_context(owner->context()));
        // Textures, levels and copies on their way keep it too.
        if (owner.use_count() == 1) session.memory().images->end(owner->id());
      }
    }
    owner.reset();
    slow.reply(CUDA_SUCCESS);
  });
}

// A job that reads an array.
CUresult array_job(Request& request, CUstream stream, const FoundArray& array,
                   const ArrayPlace& place, const Box& box, std::uint64_t delivery,
                   DeliveryJob& job) {
  job.context = request.context();
  job.context_handle =
      request.session().handles().handle_at(wire::HandleKind::kContext, request.context());
  job.box = box;
  job.delivery = delivery;
  job.stream = stream;
  if (!array || !request.resolve(job.stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (request.session().graphs().capturing(job.stream)) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  job.stream_owner = request.owner_of(stream);
  if (!array.owner->extent.holds(place.x, place.y, place.z, box.width, box.rows, box.slices)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  job.array = place;
  job.array.array = array.native;
  job.array_owner = array.owner;
  return CUDA_SUCCESS;
}

template <class Command>
CUresult array_job(Request& request, const Command& command, DeliveryJob& job) {
  // The pitches only say that there are no gaps: places in an array are counted by rows.
  Box box{0, command.width, 0, command.width, command.rows, command.slices};
  if (__builtin_mul_overflow(command.width, command.rows, &box.slice_pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return array_job(request, command.stream, find(request.session(), command.array),
                   {nullptr, command.x, command.y, command.z}, box, command.delivery, job);
}

// One side of a copy between arrays and device memory.
struct CopySide {
  CUcontext context = nullptr;
  CUarray array = nullptr;
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::uint64_t z = 0;
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint64_t slice_pitch = 0;
};

// Checks a side and replaces the client's handles by the driver's.
CUresult settle(Request& request, CUstream stream, CopySide& side,
                const commands::CopyBoxWithArray& command) {
  if (side.context != nullptr && !request.resolve(side.context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (side.array == nullptr) {
    const Box box{side.address,  side.pitch,   side.slice_pitch,
                  command.width, command.rows, command.slices};
    if (!request.session().memory().allowed(box)) return CUDA_ERROR_INVALID_VALUE;
    if (!request.session().memory().may_be_captured(stream, box)) return CUDA_ERROR_OUT_OF_MEMORY;
    request.session().memory().open_to_current(side.address);
    return CUDA_SUCCESS;
  }
  const FoundArray array = find(request.session(), side.array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  side.array = array.native;
  const bool inside = array.owner->extent.holds(side.x, side.y, side.z, command.width, command.rows,
                                                command.slices);
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// One slice of a copy, as a peer copy or a plain one.
CUresult copy_slice(Request& request, CUstream stream, const CopySide& to, const CopySide& from,
                    const commands::CopyBoxWithArray& command, std::uint64_t slice) {
  CUDA_MEMCPY3D_PEER peer{};
  peer.srcMemoryType = from.array != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
  peer.srcXInBytes = from.x;
  peer.srcY = from.y;
  peer.srcZ = from.array != nullptr ? from.z + slice : 0;
  peer.srcArray = from.array;
  peer.srcDevice = from.array != nullptr ? 0 : from.address + slice * from.slice_pitch;
  peer.srcPitch = command.rows > 1 ? from.pitch : command.width;
  peer.dstMemoryType = to.array != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
  peer.dstXInBytes = to.x;
  peer.dstY = to.y;
  peer.dstZ = to.array != nullptr ? to.z + slice : 0;
  peer.dstArray = to.array;
  peer.dstDevice = to.array != nullptr ? 0 : to.address + slice * to.slice_pitch;
  peer.dstPitch = command.rows > 1 ? to.pitch : command.width;
  peer.WidthInBytes = command.width;
  peer.Height = command.rows;
  peer.Depth = 1;
  if (to.context != nullptr && from.context != nullptr) {
    peer.dstContext = to.context;
    peer.srcContext = from.context;
    return request.driver().cuMemcpy3DPeerAsync(&peer, stream);
  }
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = peer.srcMemoryType;
  copy.srcXInBytes = peer.srcXInBytes;
  copy.srcY = peer.srcY;
  copy.srcZ = peer.srcZ;
  copy.srcArray = peer.srcArray;
  copy.srcDevice = peer.srcDevice;
  copy.srcPitch = peer.srcPitch;
  copy.dstMemoryType = peer.dstMemoryType;
  copy.dstXInBytes = peer.dstXInBytes;
  copy.dstY = peer.dstY;
  copy.dstZ = peer.dstZ;
  copy.dstArray = peer.dstArray;
  copy.dstDevice = peer.dstDevice;
  copy.dstPitch = peer.dstPitch;
  copy.WidthInBytes = peer.WidthInBytes;
  copy.Height = peer.Height;
  copy.Depth = 1;
  return request.driver().cuMemcpy3DAsync_v2(&copy, stream);
}

}  // namespace

void create_array(Request request, const commands::CreateArray& command) {
  if (cuda::check_array(command.descriptor) != CUDA_SUCCESS) {
    return request.reply(CUDA_ERROR_INVALID_VALUE);
  }
  create<CUarray>(
      std::move(request), command, ImageKind::kArray, wire::HandleKind::kArray,
      cuda::bytes_of_texels(command.descriptor),
      [descriptor = command.descriptor](const driver::Table& driver, CUarray* array) {
        return driver.cuArray3DCreate_v2(array, &descriptor);
      },
      [descriptor = command.descriptor](ImageOwner& owner) {
        owner.descriptor = descriptor;
        owner.extent = cuda::extent_of(descriptor);
      });
}

void create_mipmapped_array(Request request, const commands::CreateMipmappedArray& command) {
  const bool good = cuda::check_array(command.descriptor) == CUDA_SUCCESS && command.levels != 0 &&
                    command.levels <= cuda::levels_max(command.descriptor);
  if (!good) return request.reply(CUDA_ERROR_INVALID_VALUE);
  create<CUmipmappedArray>(
      std::move(request), command, ImageKind::kMipmappedArray, wire::HandleKind::kMipmappedArray,
      cuda::bytes_of_texels(command.descriptor, command.levels),
      [descriptor = command.descriptor, levels = command.levels](const driver::Table& driver,
                                                                 CUmipmappedArray* array) {
        return driver.cuMipmappedArrayCreate(array, &descriptor, levels);
      },
      [descriptor = command.descriptor, levels = command.levels](ImageOwner& owner) {
        owner.descriptor = descriptor;
        owner.levels = levels;
      });
}

CUresult get_array_level(Request& request, const commands::GetArrayLevel& command) {
  Session& session = request.session();
  const Handles::Entry whole =
      session.handles().entry(wire::HandleKind::kMipmappedArray, address_of(command.mipmapped));
  const auto owner = std::static_pointer_cast<ImageOwner>(whole.attachment);
  if (owner == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (command.level >= owner->levels) return CUDA_ERROR_INVALID_VALUE;
  CUarray level = nullptr;
  const CUresult result = request.driver().cuMipmappedArrayGetLevel(
      &level, static_cast<CUmipmappedArray>(whole.native), command.level);
  if (result != CUDA_SUCCESS) return result;
  auto part = session.memory().images->own_part(owner, owner->context());
  part->descriptor = cuda::level_of(owner->descriptor, command.level);
  part->extent = cuda::extent_of(part->descriptor);
  part->saved_as = owner->saved_as;
  return put(session, wire::HandleKind::kArray, address_of(command.array), level, std::move(part));
}

void destroy_array(Request request, const commands::DestroyArray& command) {
  destroy(std::move(request), wire::HandleKind::kArray, address_of(command.array));
}

void destroy_mipmapped_array(Request request, const commands::DestroyMipmappedArray& command) {
  Session& session = request.session();
  const std::uint64_t handle = address_of(command.array);
  const auto whole = session.handles().entry(wire::HandleKind::kMipmappedArray, handle).attachment;
  // Its levels go with it.
  for (const auto& entry : session.handles().all(wire::HandleKind::kArray)) {
    const auto& keeps = static_cast<const ImageOwner&>(*entry.attachment).keeps;
    if (whole != nullptr && std::find(keeps.begin(), keeps.end(), whole) != keeps.end()) {
      session.handles().drop(wire::HandleKind::kArray, entry.handle);
    }
  }
  destroy(std::move(request), wire::HandleKind::kMipmappedArray, handle);
}

CUresult copy_to_array(Request& request, const commands::CopyToArray& command) {
  CUstream stream = command.stream;
  Session& session = request.session();
  const FoundArray array = find(session, command.array);
  if (!array || !request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.data.empty()) return CUDA_SUCCESS;
  if (command.width == 0 || command.data.size() % command.width != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  session.memory().saved_arrays.touch(array.owner->saved_as);
  const std::uint64_t rows = command.data.size() / command.width;
  if (!array.owner->extent.holds(command.x, command.y, command.z, command.width, rows, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return from_received(request, stream, command.data, [&](const std::byte* source) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = source;
    copy.srcPitch = command.width;
    copy.srcHeight = rows;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array.native;
    copy.dstXInBytes = command.x;
    copy.dstY = command.y;
    copy.dstZ = command.z;
    copy.WidthInBytes = command.width;
    copy.Height = rows;
    copy.Depth = 1;
    return request.driver().cuMemcpy3DAsync_v2(&copy, stream);
  });
}

void copy_array_to_host(Request request, const commands::CopyArrayToHost& command) {
  DeliveryJob job;
  const CUresult result = array_job(request, command, job);
  if (result != CUDA_SUCCESS) return request.reply(result);
  Deliveries& deliveries = request.session().memory().deliveries;
  deliveries.answer(std::move(request), job);
}

CUresult post_array_to_host(Request& request, const commands::PostArrayToHost& command) {
  DeliveryJob job;
  MemorySubjects& memory = request.session().memory();
  const CUresult result = array_job(request, command, job);
  if (result == CUDA_SUCCESS) return memory.deliveries.post(request, job);
  request.session().endpoint().drop_delivery(command.delivery);
  return result;
}

CUresult copy_box_with_array(Request& request, const commands::CopyBoxWithArray& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CopySide to{command.to_context, command.to_array, command.to_x,     command.to_y,
              command.to_z,       command.to,       command.to_pitch, command.to_slice_pitch};
  CopySide from{command.from_context, command.from_array,      command.from_x,
                command.from_y,       command.from_z,          command.from,
                command.from_pitch,   command.from_slice_pitch};
  if (command.width == 0 || command.rows == 0 || command.slices == 0) return CUDA_SUCCESS;
  if (const FoundArray array = find(request.session(), command.to_array)) {
    request.session().memory().saved_arrays.touch(array.owner->saved_as);
  }
  CUresult result = settle(request, stream, to, command);
  if (result == CUDA_SUCCESS) result = settle(request, stream, from, command);
  // An array holds all slices, so that their number is bounded.
  if (to.array == nullptr && from.array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool captured = request.session().graphs().capturing(stream);
  if (result == CUDA_SUCCESS && captured &&
      !request.session().graphs().note_captured(command.slices)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Slice by slice: the heights that cuMemcpy3D wants need not exist as whole rows.
  Session& session = request.session();
  for (std::uint64_t slice = request.begun(); slice < command.slices && result == CUDA_SUCCESS;
       ++slice) {
    if (!captured) {
      if (session.gives_way(request, slice)) return CUDA_SUCCESS;
      session.memory().depths.count(request.context(), stream);
    }
    result = copy_slice(request, stream, to, from, command, slice);
  }
  return result;
}

}  // namespace flyt::server::hooks
