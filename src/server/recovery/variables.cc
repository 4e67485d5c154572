#include "server/recovery/variables.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "commands/module.h"
#include "cuda/code_variables.h"
#include "server/code/code_subjects.h"
#include "server/context_subjects.h"
#include "server/faults/session_faults.h"
#include "server/memory/host_mirror.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "server/transfers/pinned_memory.h"

namespace flyt::server {
namespace {

// Copies from one context's variables, through pinned memory and many at once.
class Batch {
 public:
  Batch(const driver::Table& driver, Staging& staging, CUstream stream)
      : driver_(driver),
        staging_(staging),
        stream_(stream),
        slot_(staging.take(Staging::kSlotBytes, Staging::kBytesMax)) {
    if (!slot_) plain_.resize(Staging::kSlotBytes);
  }
  ~Batch() {
    // After an error: others get this memory next.
    if (!copies_.empty()) driver_.cuStreamSynchronize(stream_);
    if (slot_) staging_.give(slot_);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  CUresult add(std::uint64_t address, MutableBytes to) {
    while (!to.empty()) {
      CUresult result = CUDA_SUCCESS;
      if (used_ == Staging::kSlotBytes) result = flush();
      const std::size_t piece = std::min(to.size(), Staging::kSlotBytes - used_);
      if (result == CUDA_SUCCESS) {
        result = driver_.cuMemcpyDtoHAsync_v2(data() + used_, address, piece, stream_);
      }
      if (result != CUDA_SUCCESS) return result;
      copies_.push_back({to.first(piece), used_});
      used_ += piece;
      address += piece;
      to = to.subspan(piece);
    }
    return CUDA_SUCCESS;
  }

  // With the context of the copies current.
  CUresult flush() {
    if (copies_.empty()) return CUDA_SUCCESS;
    const CUresult result = driver_.cuStreamSynchronize(stream_);
    if (result != CUDA_SUCCESS) return result;
    for (const Copy& copy : copies_) {
      std::memcpy(copy.to.data(), data() + copy.from, copy.to.size());
    }
    copies_.clear();
    used_ = 0;
    return CUDA_SUCCESS;
  }

 private:
  struct Copy {
    MutableBytes to;
    std::size_t from = 0;
  };
  std::byte* data() { return slot_ ? slot_.data : plain_.data(); }

  const driver::Table& driver_;
  Staging& staging_;
  const CUstream stream_;
  const Staging::Slot slot_;
  std::vector<std::byte> plain_;
  std::vector<Copy> copies_;
  std::size_t used_ = 0;
};

// Of the context that is current.
cuda::ComputeCapability capability_of_device(const driver::Table& driver) {
  CUdevice device = 0;
  int major = 0;
  int minor = 0;
  if (driver.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  }
  return {static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

}  // namespace

Variables::Variables(Session& session)
    : session_(session), places_(session.driver(), [&session](std::uint32_t context) {
        return session.enter(context);
      }) {}

bool Variables::wanted() const {
  return session_.recovery() != nullptr && !session_.recovery()->marks().spoilt_for_good();
}

void Variables::spoil(std::uint16_t op, std::string_view why, std::string_view variable) {
  session_.recovery()->marks().spoil(op);
  session_.log().info("the session cannot go on in another process",
                      {{"why", why}, {"variable", variable}});
}

void Variables::load_as_before(Request& request, std::uint64_t code) {
  const auto read = session_.recovery() == nullptr ? nullptr : session_.recovery()->variables();
  if (read == nullptr) return;
  load_libraries_before(request, *read, code);
  places_.aim(request.home(), code);
  session_.enter(request.context());
}

void Variables::load_libraries_before(Request& request, const Snapshot::Read& read,
                                      std::uint64_t code) {
  const std::vector<SavedVariable>& saved = read.variables;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> libraries;
  {
    const Lock lock(mutex_);
    const auto from = saved.begin() + static_cast<std::ptrdiff_t>(loaded_as_before_);
    const auto until = std::find_if(from, saved.end(),
                                    [code](const SavedVariable& one) { return one.owner == code; });
    if (until == from || until == saved.end()) return;
    loaded_as_before_ = static_cast<std::size_t>(until - saved.begin());
    // Modules are loaded by the client's commands alone.
    for (const SavedVariable& variable : std::span(from, until)) {
      if (variable.of_library) libraries.emplace_back(variable.owner, variable.context);
    }
  }
  for (const auto& [library, context] : libraries) {
    if (session_.enter(context) == CUDA_SUCCESS) find_in_library(request.op(), context, library);
  }
}

void Variables::before_library(Request& request, std::uint64_t library) {
  if (!places_.holding()) return;
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  session_.driver().cuModuleGetLoadingMode(&mode);
  const bool at_once = mode == CU_MODULE_EAGER_LOADING;
  if (places_.aim(request.home(), at_once ? library : 0)) session_.enter(request.context());
}

void Variables::on_module(Request& request, std::uint64_t module, Bytes image) {
  if (!wanted()) return;
  const auto entry = session_.handles().entry(wire::HandleKind::kModule, module);
  if (!entry) return;
  const std::uint64_t launches = launches_.load(std::memory_order_relaxed);
  find_all(request.op(), request.home(), {module, false, entry.native, launches}, image);
}

void Variables::on_library(Request& request, std::uint64_t library) {
  if (wanted() && request.context() != 0) find_in_library(request.op(), request.home(), library);
}

void Variables::on_kernel(std::uint64_t library) {
  if (!wanted()) return;
  const auto entry = session_.handles().entry(wire::HandleKind::kLibrary, library);
  if (!entry || !static_cast<const CodeOrigin&>(*entry.attachment).has_variables) return;
  {
    const Lock lock(mutex_);
    if (!with_kernels_.insert(library).second) return;
  }
  watch();
}

void Variables::on_context(std::uint32_t context) {
  if (!wanted()) return;
  watch();
  const auto read = session_.recovery()->variables();
  if (read != nullptr) places_.hold(context, read->variables);
}

void Variables::end_restoring() {
  const VariablePlaces::Outcome outcome = places_.let_go();
  if (outcome.wanted == 0) return;
  session_.log().info(
      "places of variables were looked for",
      {{"wanted", outcome.wanted}, {"found", outcome.found}, {"modules", outcome.modules}});
}

// Whether kernels' handles are good in contexts in which their libraries have not been seen.
void Variables::watch() {
  const auto contexts = session_.handles().all(wire::HandleKind::kContext);
  const Lock lock(mutex_);
  bool unseen = false;
  for (const std::uint64_t library : with_kernels_) {
    for (const Handles::Entry& context : contexts) {
      unseen = unseen || !libraries_.contains({library, wire::Handle{context.handle}.index()});
    }
  }
  watching_.store(unseen, std::memory_order_relaxed);
}

void Variables::look_at_launch(Request& request, CUfunction kernel) {
  const auto entry = session_.handles().entry(wire::HandleKind::kKernel, address_of(kernel));
  if (!entry) return;
  on_library(request, static_cast<const CodeOrigin&>(*entry.attachment).library);
}

void Variables::find_in_library(std::uint16_t op, std::uint32_t context, std::uint64_t library) {
  const Handles::Entry entry = session_.handles().entry(wire::HandleKind::kLibrary, library);
  if (!entry) return;
  const auto& origin = static_cast<const CodeOrigin&>(*entry.attachment);
  if (!origin.has_variables) return;
  const std::uint64_t launches = launches_.load(std::memory_order_relaxed);
  {
    const Lock lock(mutex_);
    if (!libraries_.emplace(library, context).second) return;
  }
  watch();
  if (places_.aim(context, library)) session_.enter(context);
  find_all(op, context, {library, true, entry.native, launches}, origin.image);
}

void Variables::on_told(Request& request, std::uint64_t code, bool is_library, const Told& told) {
  if (!wanted()) return;
  if (told.managed) return spoil(request.op(), "it is managed", told.name);
  const std::uint32_t context = request.home();
  const Lock lock(mutex_);
  const auto known = std::find_if(all_.begin(), all_.end(), [&](const SavedVariable& one) {
    return one.owner == code && one.context == context && one.name == told.name;
  });
  if (known != all_.end()) {
    if (known->told) return;
    known->told = true;
    movable_.reset();
  } else if (!add({code,
                   is_library,
                   true,
                   context,
                   told.address,
                   told.bytes,
                   std::string(told.name),
                   {}})) {
    return spoil(request.op(), "more variables than are saved", told.name);
  }
  // Whoever goes on has to know of it.
  session_.recovery()->marks().set_unsaved(true);
}

void Variables::forget_context(std::uint32_t context) {
  places_.forget_context(context);
  const Lock lock(mutex_);
  // Another one may come under its index.
  if (!with_kernels_.empty()) watching_.store(true, std::memory_order_relaxed);
  std::erase_if(libraries_, [&](const auto& item) { return item.second == context; });
  std::erase_if(all_, [&](const SavedVariable& one) {
    if (one.context == context) bytes_ -= one.bytes;
    return one.context == context;
  });
}

void Variables::forget_code(std::uint64_t handle) {
  const Lock lock(mutex_);
  with_kernels_.erase(handle);
  std::erase_if(libraries_, [&](const auto& item) { return item.first == handle; });
  std::erase_if(all_, [&](const SavedVariable& one) {
    if (one.owner == handle) bytes_ -= one.bytes;
    return one.owner == handle;
  });
}

CUresult Variables::find(const Code& code, const std::string& name, std::uint64_t& address,
                         std::uint64_t& bytes) const {
  const driver::Table& driver = session_.driver();
  CUdeviceptr at = 0;
  std::size_t size = 0;
  const CUresult result =
      code.is_library
          ? driver.cuLibraryGetGlobal(&at, &size, static_cast<CUlibrary>(code.native), name.c_str())
          : driver.cuModuleGetGlobal_v2(&at, &size, static_cast<CUmodule>(code.native),
                                        name.c_str());
  address = at;
  bytes = size;
  return result;
}

void Variables::find_all(std::uint16_t op, std::uint32_t context, const Code& code, Bytes image) {
  const auto files = cuda::variables_of_image(image, capability_of_device(session_.driver()));
  std::string first_missing;
  for (const cuda::CodeVariables& file : files) {
    std::vector<SavedVariable> found;
    std::string missing;
    if (!file.complete || !find_named(code, context, file.names, found, missing)) {
      if (first_missing.empty()) first_missing = file.complete ? missing : "one without a name";
      continue;
    }
    note_loaded(code, found);
    const Lock lock(mutex_);
    for (SavedVariable& variable : found) {
      std::string name = variable.name;
      if (add(std::move(variable))) continue;
      return spoil(op, "more variables than are saved", name);
    }
    return;
  }
  spoil(op, "the driver does not give it", first_missing);
}

void Variables::note_loaded(const Code& code, std::vector<SavedVariable>& found) const {
  std::uint64_t bytes = 0;
  for (const SavedVariable& variable : found) {
    if (variable.bytes > Snapshot::kContentsBytesMax - bytes) return;
    bytes += variable.bytes;
  }
  // Nobody's work is waited for.
  CUstream stream = nullptr;
  const driver::Table& driver = session_.driver();
  if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return;
  std::vector<std::byte> contents(bytes);
  CUresult result = CUDA_SUCCESS;
  {
    Batch batch(driver, session_.buffers().staging, stream);
    MutableBytes rest = contents;
    for (const SavedVariable& variable : found) {
      if (result != CUDA_SUCCESS) break;
      result = batch.add(variable.address, rest.first(variable.bytes));
      rest = rest.subspan(variable.bytes);
    }
    if (result == CUDA_SUCCESS) result = batch.flush();
  }
  driver.cuStreamDestroy_v2(stream);
  // Another thread of the program may have launched one of its kernels meanwhile.
  if (result != CUDA_SUCCESS || launches_.load() != code.launches) return;
  Bytes rest = contents;
  for (SavedVariable& variable : found) {
    variable.loaded = sha256(rest.first(variable.bytes));
    rest = rest.subspan(variable.bytes);
  }
}

bool Variables::find_named(const Code& code, std::uint32_t context,
                           const std::vector<std::string>& names, std::vector<SavedVariable>& found,
                           std::string& missing) const {
  for (const std::string& name : names) {
    SavedVariable variable{code.handle, code.is_library, false, context, 0, 0, name, {}};
    const CUresult result = find(code, name, variable.address, variable.bytes);
    if (result == CUDA_SUCCESS && !is_managed(session_.driver(), variable.address)) {
      found.push_back(std::move(variable));
    } else if (result == CUDA_SUCCESS || !cuda::names_literal(name)) {
      missing = name;
      return false;
    }
  }
  return true;
}

bool Variables::add(SavedVariable variable) {
  const std::uint64_t left = Snapshot::kContentsBytesMax - bytes_;
  if (variable.bytes > left || variable.name.size() > Snapshot::kNameBytesMax) return false;
  bytes_ += variable.bytes;
  movable_.reset();
  all_.push_back(std::move(variable));
  return true;
}

void Variables::save(bool changed) {
  Marks& marks = session_.recovery()->marks();
  const Lock lock(mutex_);
  // Nobody will read it.
  if (marks.spoilt_for_good()) marks.set_unsaved(false);
  if (marks.spoilt_for_good() || (!marks.unsaved() && (!changed || all_.empty()))) return;
  if (const Status saved = save_all(); !saved) {
    spoil(commands::LoadModule::kOp, saved.error().message, "");
  }
}

Status Variables::save_all() {
  Marks& marks = session_.recovery()->marks();
  auto contents = marks.begin_snapshot(all_);
  if (!contents) return std::move(contents).error();
  const CUresult result = copy_out(*contents);
  // Another process's fault is no reason not to go on: what the snapshot before holds stands.
  if (session_.faults() != nullptr && is_gpu_fault(result)) {
    marks.set_unsaved(true);
    session_.faults()->see(result);
    return {};
  }
  if (result != CUDA_SUCCESS) {
    return Error{ErrorCode::kUnsupported,
                 "copying variables failed with " + std::to_string(static_cast<int>(result))};
  }
  marks.end_snapshot();
  marks.set_unsaved(false);
  return {};
}

CUresult Variables::copy_out(MutableBytes contents) {
  if (all_.empty()) return CUDA_SUCCESS;
  // All is done: the legacy stream waits for nobody.
  Batch batch(session_.driver(), session_.buffers().staging, CU_STREAM_LEGACY);
  std::uint32_t context = 0;
  for (const SavedVariable& variable : all_) {
    CUresult result = CUDA_SUCCESS;
    if (variable.context != context) {
      result = batch.flush();
      if (result == CUDA_SUCCESS) result = session_.enter(variable.context);
      context = variable.context;
    }
    if (result == CUDA_SUCCESS)
      result = batch.add(variable.address, contents.first(variable.bytes));
    if (result != CUDA_SUCCESS) return result;
    contents = contents.subspan(variable.bytes);
  }
  return batch.flush();
}

}  // namespace flyt::server
