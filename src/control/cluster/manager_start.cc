// What a cluster manager reads when it starts.
#include <algorithm>

#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

// Keys that begin so, each with a message: `take` says whether it makes sense.
template <class Message, class Take>
Status load(Ledger& ledger, std::string_view prefix, Take take) {
  const auto entries = ledger.load(prefix);
  if (!entries) return entries.error();
  for (const StoreEntry& entry : *entries) {
    Message message;
    Status status = message.ParseFromString(entry.value)
                        ? take(entry.key.substr(prefix.size()), std::move(message))
                        : Status(Error{ErrorCode::kInvalid, "no such message"});
    if (!status) {
      return Error{ErrorCode::kInvalid,
                   "its entry " + entry.key + " is damaged: " + status.error().message};
    }
  }
  return {};
}

Error unknown(const std::string& what, const std::string& name) {
  return {ErrorCode::kInvalid, "there is no " + what + " " + name};
}

}  // namespace

Status Manager::start(bool decides) {
  const Lock lock(mutex_);
  for (const auto part :
       {&Manager::load_identity, &Manager::load_nodes, &Manager::load_vms, &Manager::load_grants,
        &Manager::load_endings, &Manager::load_wishes, &Manager::load_enrol_tokens}) {
    if (Status status = (this->*part)(); !status) return status;
  }
  if (!decides) return {};
  if (Status status = begin_epoch(); !status) return status;
  note("manager-started", "", "",
       counted(nodes_.size(), "node") + ", " + counted(vms_.size(), "VM"));
  return ledger_.problem().empty() ? Status()
                                   : Status(Error{ErrorCode::kSystem, ledger_.problem()});
}

Status Manager::load_identity() {
  if (Status status = ledger_.start(); !status) return status;
  Status status =
      load<state::Identity>(ledger_, "identity", [this](const std::string&, state::Identity one) {
        cluster_ = one.cluster();
        return check_name("the cluster", cluster_, kTextBytesMax);
      });
  if (!status || !cluster_.empty()) return status;
  state::Identity identity;
  identity.set_cluster(new_id());
  Batch batch;
  batch.put("identity", identity);
  cluster_ = identity.cluster();
  return ledger_.commit(std::move(batch));
}

// Nodes refuse whoever has an older one. It is a time as well, so that it grows also where an old
// state was put back; and more than any before it, where clocks do not agree.
Status Manager::begin_epoch() {
  state::Epoch epoch;
  Status status = load<state::Epoch>(ledger_, "epoch", [&](const std::string&, state::Epoch one) {
    epoch = std::move(one);
    return Status();
  });
  if (!status) return status;
  epoch.set_number(std::max(epoch.number() + 1, static_cast<std::uint64_t>(unix_milliseconds())));
  Batch batch;
  batch.put("epoch", epoch);
  if (status = ledger_.commit(std::move(batch)); status) epoch_ = epoch.number();
  return status;
}

Status Manager::load_nodes() {
  return load<state::NodeRecord>(
      ledger_, "nodes/", [this](const std::string& name, state::NodeRecord record) -> Status {
        NodeEntry node;
        node.record = std::move(record);
        node.last = clock_.now();
        placement::NodeFacts facts = facts_of(node.record);
        facts.state = placement_state(node);
        if (Status status = scheduler_.map().set_node(facts); !status) return status;
        places_.set(name, node.record.address());
        nodes_.emplace(name, std::move(node));
        return {};
      });
}

Status Manager::load_vms() {
  Status status = load<v1::VmSpec>(ledger_, "vms/", [this](const std::string&, v1::VmSpec spec) {
    Status good = check_spec(spec);
    if (good) set_spec(spec);
    return good;
  });
  if (!status) return status;
  return load<state::Generation>(ledger_, "generations/",
                                 [this](const std::string& name, state::Generation generation) {
                                   if (Vm* vm = find_vm(name)) vm->generation = generation.number();
                                   return Status();
                                 });
}

Status Manager::load_grants() {
  return load<state::Grant>(ledger_, "grants/",
                            [this](const std::string& name, state::Grant grant) -> Status {
                              Vm* vm = find_vm(name);
                              if (vm == nullptr) return unknown("VM", name);
                              if (find_node(grant.node()) == nullptr)
                                return unknown("node", grant.node());
                              vm->made = vm->used = clock_.now();
                              vm->scaler.settle(clock_.now());
                              vm->generation = grant.generation();
                              vm_of_id_[grant.id()] = name;
                              vm->grant = std::move(grant);
                              hold(*vm);
                              return {};
                            });
}

Status Manager::load_endings() {
  return load<state::Ending>(
      ledger_, "endings/", [this](const std::string& id, state::Ending ending) -> Status {
        if (find_node(ending.node()) == nullptr) return unknown("node", ending.node());
        endings_[id] = {.ending = std::move(ending), .failures = 0, .retry_at = clock_.now()};
        return {};
      });
}

Status Manager::load_wishes() {
  return load<state::Wish>(ledger_, "wishes/",
                           [this](const std::string& name, state::Wish wish) -> Status {
                             Vm* vm = find_vm(name);
                             if (vm == nullptr) return unknown("VM", name);
                             next_sequence_ = std::max(next_sequence_, wish.sequence() + 1);
                             vm->reason = wish.reason();
                             if (wish.has_machine()) vm->machine = wish.machine();
                             vm->wish = std::move(wish);
                             vm->absent = vm->grant.has_value();
                             return enter_queue(*vm);
                           });
}

Status Manager::load_enrol_tokens() {
  return load<state::EnrolToken>(ledger_, "enrol/",
                                 [this](const std::string& id, state::EnrolToken token) {
                                   enrol_tokens_.set({id, std::move(token)});
                                   return Status();
                                 });
}

}  // namespace flyt::cluster
