#include "server/code/code_subjects.h"

#include <algorithm>

#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// Where libraries can be loaded ahead without anything to show for it: not where loading takes the
// GPU's memory, nor where a session goes on, which has its code loaded in the order of before.
CodeStore* store_to_foresee(const Session& session) {
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  session.driver().cuModuleGetLoadingMode(&mode);
  const bool goes_on = session.recovery() != nullptr && session.recovery()->before();
  return mode == CU_MODULE_LAZY_LOADING && !goes_on ? session.code_store() : nullptr;
}

}  // namespace

CodeSubjects::CodeSubjects(Session& session)
    : variables_(session),
      foresight_(session.driver(), store_to_foresee(session), session.log()),
      session_(session) {}

Link::~Link() {
  if (state != nullptr) driver.cuLinkDestroy(state);
}

template <class Dies>
void CodeSubjects::forget_if(Dies&& dies) {
  for (const auto kind :
       {wire::HandleKind::kFunction, wire::HandleKind::kModule, wire::HandleKind::kKernel,
        wire::HandleKind::kLibrary, wire::HandleKind::kTextureReference,
        wire::HandleKind::kSurfaceReference}) {
    for (const Handles::Entry& entry : session_.handles().all(kind)) {
      const auto origin = std::static_pointer_cast<CodeOrigin>(entry.attachment);
      if (!dies(entry.handle, *origin)) continue;
      forget_globals(*origin);
      if (kind == wire::HandleKind::kModule || kind == wire::HandleKind::kLibrary) {
        variables_.forget_code(entry.handle);
      }
      session_.handles().drop(kind, entry.handle);
    }
  }
}

void CodeSubjects::on_context_destroy(std::uint32_t context) {
  forget_if([&](std::uint64_t, const CodeOrigin& origin) { return origin.context == context; });
  variables_.forget_context(context);
  // A library stays, but its variables in this context are gone.
  for (const Handles::Entry& entry : session_.handles().all(wire::HandleKind::kLibrary)) {
    auto& origin = static_cast<CodeOrigin&>(*entry.attachment);
    const Lock lock(origin.mutex);
    std::erase_if(origin.globals, [&](const CodeOrigin::Global& global) {
      if (global.context == context) session_.regions().remove(global.address);
      return global.context == context;
    });
  }
}

void CodeSubjects::on_module_unload(std::uint64_t module) {
  forget_if([&](std::uint64_t handle, const CodeOrigin& origin) {
    return handle == module || origin.module == module;
  });
}

void CodeSubjects::on_library_unload(std::uint64_t library) {
  forget_if([&](std::uint64_t handle, const CodeOrigin& origin) {
    return handle == library || origin.library == library;
  });
}

void CodeSubjects::note_global(CodeOrigin& owner, std::uint32_t context, std::uint64_t address,
                               std::uint64_t size) {
  const Lock lock(owner.mutex);
  const CodeOrigin::Global global{address, context};
  if (std::find(owner.globals.begin(), owner.globals.end(), global) != owner.globals.end()) return;
  session_.regions().add({address, size, Regions::Kind::kGlobal});
  owner.globals.push_back(global);
}

void CodeSubjects::forget_globals(CodeOrigin& owner) {
  const Lock lock(owner.mutex);
  for (const CodeOrigin::Global& global : owner.globals) {
    session_.memory().host_mirror.drop_adopted(global.address);
    session_.regions().remove(global.address);
  }
  owner.globals.clear();
}

void CodeSubjects::note_code(const cuda::CodeFacts& facts) {
  if (!facts.may_print || may_print_.exchange(true, std::memory_order_relaxed)) return;
  session_.endpoint().demand_replies();
}

}  // namespace flyt::server
