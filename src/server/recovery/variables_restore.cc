// Variables that hold again what they held, in another process of the session.
#include <algorithm>
#include <map>
#include <utility>

#include "server/code/code_subjects.h"
#include "server/graphs/graphs.h"
#include "server/memory/memory_search.h"
#include "server/memory_subjects.h"
#include "server/recovery/moved_variables.h"
#include "server/recovery/recovery.h"
#include "server/recovery/variables.h"
#include "server/session.h"

namespace flyt::server {
namespace {

Error wrong(const std::string& name, std::string_view what) {
  return {ErrorCode::kUnsupported, "the variable " + name + " " + std::string(what)};
}

Error elsewhere(const std::string& name, std::string_view who_knows) {
  return wrong(name, "has another address in this process, and " + std::string(who_knows));
}

bool as_loaded(const SavedVariable& variable, Bytes contents) {
  return variable.loaded != Digest{} && sha256(contents) == variable.loaded;
}

}  // namespace

struct Variables::Found {
  const SavedVariable* saved = nullptr;
  MutableBytes contents;
  Handles::Entry code;
  std::uint64_t address = 0;
  bool untouched = false;  // What its code was loaded with is right.
};

Status Variables::restore(Snapshot::Read& saved) {
  std::vector<Found> found;
  MovedVariables moved;
  const Status there = find_again(saved, found, moved);
  end_restoring();
  if (!there) return there;
  if (Status renewed = renew(found, moved); !renewed) return renewed;
  if (moved.any()) {
    const auto known = look_for(moved);
    if (!known) return known.error();
    if (*known) return elsewhere((*known)->name, (*known)->who);
    session_.log().info("variables of code are elsewhere, and nothing knows where they were",
                        {{"ranges", moved.ranges().size()}});
  }
  std::set<std::uint32_t> contexts;
  for (const Found& one : found) {
    if (Status written = write_back(one); !written) return written;
    contexts.insert(one.saved->context);
  }
  for (const std::uint32_t context : contexts) {
    session_.enter(context);
    session_.driver().cuCtxSynchronize();
  }
  const Lock lock(mutex_);
  return save_all();
}

bool Variables::may_move() {
  const std::uint64_t begun = session_.recovery()->marks().begun();
  {
    const Lock lock(mutex_);
    if (movable_ && movable_->first == begun) return movable_->second;
    // Whoever adds one meanwhile, or tells where one is, takes this away.
    movable_ = {begun, false};
  }
  const bool may = nobody_knows();
  const Lock lock(mutex_);
  if (movable_) movable_->second = may;
  return movable_ && may;
}

bool Variables::nobody_knows() {
  MovedVariables all;
  {
    const Lock lock(mutex_);
    std::vector<std::byte> contents(bytes_);
    if (copy_out(contents) != CUDA_SUCCESS) return false;
    for (const SavedVariable& variable : all_) {
      if (variable.told) return false;
      all.add({variable.address, 0, variable.bytes, variable.name});
    }
    Bytes rest = contents;
    for (const SavedVariable& variable : all_) {
      const Bytes held = rest.first(variable.bytes);
      rest = rest.subspan(variable.bytes);
      // Which of the addresses in one that was written to are the driver's is not known here.
      if (!as_loaded(variable, held) && all.any_in(variable.address, held)) return false;
    }
  }
  if (!all.any()) return true;
  const auto known = look_for(all);
  return known && !*known;
}

Status Variables::find_again(Snapshot::Read& saved, std::vector<Found>& found,
                             MovedVariables& moved) {
  const bool all_told = session_.recovery()->before()->unsaved;
  MutableBytes rest = saved.contents;
  for (const SavedVariable& variable : saved.variables) {
    const MutableBytes contents = rest.first(variable.bytes);
    rest = rest.subspan(variable.bytes);
    // What is not there any more has ended since.
    if (session_.enter(variable.context) != CUDA_SUCCESS || variable.context == 0) continue;
    const auto kind = variable.of_library ? wire::HandleKind::kLibrary : wire::HandleKind::kModule;
    Found one{&variable, contents, session_.handles().entry(kind, variable.owner)};
    if (!one.code) continue;
    if (places_.aim(variable.context, variable.owner)) session_.enter(variable.context);
    std::uint64_t bytes = 0;
    if (find({variable.owner, variable.of_library, one.code.native}, variable.name, one.address,
             bytes) != CUDA_SUCCESS ||
        bytes != variable.bytes) {
      return wrong(variable.name, "is not there any more");
    }
    if (one.address != variable.address) {
      if (variable.told) return elsewhere(variable.name, "the program was told the old one");
      if (all_told) return elsewhere(variable.name, "the program may have been told the old one");
      moved.add({variable.address, one.address, bytes, variable.name});
    }
    found.push_back(std::move(one));
  }
  return {};
}

// Initial values may be addresses, of variables, of functions, of texts without names: where
// nobody has written, the driver has put the right ones.
Status Variables::renew(std::vector<Found>& found, const MovedVariables& moved) {
  for (Found& one : found) {
    const SavedVariable& variable = *one.saved;
    one.untouched = as_loaded(variable, one.contents);
    if (one.untouched || !moved.any_in(variable.address, one.contents)) continue;
    std::vector<std::byte> loaded(one.contents.size());
    if (session_.enter(variable.context) != CUDA_SUCCESS ||
        session_.driver().cuMemcpyDtoH_v2(loaded.data(), one.address, loaded.size()) !=
            CUDA_SUCCESS) {
      return wrong(variable.name, "cannot be read");
    }
    if (const MovedVariable* left = moved.renew(variable.address, one.contents, loaded)) {
      return elsewhere(left->name, "the variable " + variable.name + " holds the old one");
    }
  }
  return {};
}

Result<std::optional<Variables::Known>> Variables::look_for(const MovedVariables& moved) {
  const std::string& any = moved.at(moved.ranges().front().first)->name;
  if (session_.memory().saved_arrays.any_holds(moved)) {
    return std::optional(Known{any, "an array holds the old one"});
  }
  if (session_.graphs().records().hold(moved)) {
    return std::optional(Known{any, "a graph holds the old one"});
  }
  const VirtualMemory::Reached mapped(session_.memory().virtual_memory);
  if (!mapped.all()) {
    return std::optional(Known{any, "memory that cannot be reached may hold the old one"});
  }
  std::map<CUdevice, std::uint32_t> contexts;
  for (const Handles::Entry& context : session_.handles().all(wire::HandleKind::kContext)) {
    const std::uint32_t index = wire::Handle{context.handle}.index();
    CUdevice device = 0;
    if (session_.enter(index) == CUDA_SUCCESS &&
        session_.driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
      contexts.emplace(device, index);
    }
  }
  if (contexts.empty()) return wrong(any, "has no context that can be entered");
  std::vector<VirtualMemory::Place> places = mapped.places();
  for (CUdevice device = 0; device < static_cast<CUdevice>(kUsageDevicesMax); ++device) {
    for (const Block& block : session_.memory().arena.blocks_of(device)) {
      places.push_back({block.address, block.bytes, device});
    }
  }
  // Any device reaches that.
  for (const Regions::Region& region : session_.regions().all(Regions::Kind::kPinned)) {
    places.push_back({region.base, region.size, contexts.begin()->first});
  }
  for (const auto& place : places) {
    if (!contexts.contains(place.device)) {
      return std::optional(Known{any, "memory without a context may hold the old one"});
    }
  }
  for (const auto& [device, context] : contexts) {
    if (const CUresult entered = session_.enter(context); entered != CUDA_SUCCESS) {
      return wrong(any, "has a context that cannot be entered");
    }
    MemorySearch search(session_.driver());
    if (Status begun = search.begin(moved.ranges()); !begun) return std::move(begun).error();
    for (const auto& place : places) {
      if (place.device != device) continue;
      Status looked = search.look(place.address, place.bytes);
      if (!looked) return std::move(looked).error();
    }
    const auto word = search.end();
    if (!word) return word.error();
    if (*word == 0) continue;
    const MovedVariable* const variable = moved.at(*word);
    return std::optional(
        Known{variable == nullptr ? any : variable->name, "memory holds the old one"});
  }
  return std::optional<Known>();
}

Status Variables::write_back(const Found& found) {
  const SavedVariable& variable = *found.saved;
  if (!found.untouched) {
    if (session_.enter(variable.context) != CUDA_SUCCESS ||
        session_.driver().cuMemcpyHtoD_v2(found.address, found.contents.data(), variable.bytes) !=
            CUDA_SUCCESS) {
      return wrong(variable.name, "cannot be written");
    }
  }
  if (variable.told) {
    session_.code().note_global(static_cast<CodeOrigin&>(*found.code.attachment), variable.context,
                                found.address, variable.bytes);
  }
  const Lock lock(mutex_);
  if (variable.of_library) libraries_.emplace(variable.owner, variable.context);
  const auto known = std::find_if(all_.begin(), all_.end(), [&](const SavedVariable& one) {
    return one.owner == variable.owner && one.context == variable.context &&
           one.name == variable.name;
  });
  if (known != all_.end()) {
    known->told = variable.told;
    return {};
  }
  SavedVariable again = variable;
  again.address = found.address;
  return add(std::move(again)) ? Status() : wrong(variable.name, "is more than is saved");
}

}  // namespace flyt::server
