#include "control/cluster/documents.h"

#include <algorithm>
#include <deque>

#include "control/cluster/records.h"
#include "control/json/message_json.h"

namespace flyt::cluster {
namespace {

using control::json_of;

constexpr std::array<std::string_view, DocumentViews::kCount> kNames = {
    "health", "nodes", "leases", "vms", "queue", "events"};

template <class List>
void cut(List* list, int most) {
  if (list->size() > most) list->DeleteSubrange(most, list->size() - most);
}

std::string health(Manager& manager) {
  v1::ClusterHealth all;
  for (const std::string& problem : manager.problems()) all.add_problems(problem);
  all.set_healthy(all.problems_size() == 0);
  cut(all.mutable_problems(), kPageRowsMax);
  return json_of(all);
}

std::string nodes(Manager& manager) {
  auto all = manager.nodes("");
  if (!all) return "{}\n";
  cut(all->mutable_nodes(), kPageRowsMax);
  return json_of(*all);
}

std::string leases(Manager& manager) {
  auto all = manager.leases("", "");
  if (!all) return "{}\n";
  cut(all->mutable_leases(), 8 * kPageRowsMax);
  return json_of(*all);
}

std::string vms(Manager& manager) {
  auto all = manager.vms("");
  if (!all) return "{}\n";
  cut(all->mutable_vms(), kPageRowsMax);
  return json_of(*all);
}

// Those that wait, in their order.
std::string queue(Manager& manager) {
  auto all = manager.vms("");
  if (!all) return "{}\n";
  auto& list = *all->mutable_vms();
  list.erase(std::remove_if(list.begin(), list.end(),
                            [](const v1::Vm& vm) { return vm.gpu().phase() != v1::PHASE_WAITING; }),
             list.end());
  std::stable_sort(list.begin(), list.end(), [](const v1::Vm& a, const v1::Vm& b) {
    return a.gpu().ahead() < b.gpu().ahead();
  });
  cut(&list, kPageRowsMax);
  return json_of(*all);
}

// The last ones. `after`: those up to here are known to be older.
std::string events(Manager& manager, std::uint64_t& after) {
  std::deque<v1::ClusterEvent> last;
  std::uint64_t seen = after;
  for (auto batch = manager.events(seen); !batch.empty(); batch = manager.events(seen)) {
    seen = batch.back().number();
    for (v1::ClusterEvent& event : batch) last.push_back(std::move(event));
    while (last.size() > kPageEventsMax) last.pop_front();
  }
  if (!last.empty()) after = last.front().number() - 1;
  std::string text = "{\"events\":[";
  for (const v1::ClusterEvent& event : last) {
    std::string one = json_of(event);
    one.pop_back();
    text += (text.back() == '[' ? "" : ",") + one;
  }
  return text + "]}\n";
}

std::string view_of(std::size_t index, Manager& manager, std::uint64_t& after) {
  constexpr std::array kMakers = {health, nodes, leases, vms, queue};
  static_assert(kMakers.size() + 1 == kNames.size());
  return index < kMakers.size() ? kMakers[index](manager) : events(manager, after);
}

}  // namespace

Result<std::string> Documents::document(std::string_view name, const Caller& caller) {
  if (name == "cluster") return json_of(describe(caller));
  std::uint64_t after = 0;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return view_of(i, manager_, after);
  }
  return Error{ErrorCode::kNotFound, "there is no such document"};
}

v1::ClusterDescription Documents::describe(const Caller& caller) {
  v1::ClusterDescription all = manager_.describe();
  all.set_version(version_);
  all.set_caller(caller.name);
  all.set_role(message_of(caller.role));
  return all;
}

Result<std::string> Documents::explain(const std::string& vm) {
  const auto told = manager_.explain(vm);
  if (!told) return told.error();
  return json_of(*told);
}

std::string Documents::cluster(const Caller& caller) {
  v1::ClusterDescription all = describe(caller);
  all.clear_revision();
  return json_of(all);
}

DocumentViews Documents::views() {
  const Lock lock(mutex_);
  const Instant now = clock_.now();
  if (made_ && now - *made_ < kPageRest) return views_;
  made_ = now;
  // Asked before anything is read: what changes meanwhile is a change after it.
  views_.revision = manager_.describe().revision();
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    std::string json = view_of(i, manager_, after_);
    auto& known = views_.json[i];
    if (!known || *known != json) known = std::make_shared<const std::string>(std::move(json));
  }
  return views_;
}

std::optional<Document> DocumentStream::pending() {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    if (sent_[i] == views_.json[i]) continue;
    sent_[i] = views_.json[i];
    return Document{kNames[i], sent_[i]};
  }
  return std::nullopt;
}

std::optional<Document> DocumentStream::next(Duration patience) {
  const Clock& clock = documents_.clock_;
  std::optional<Document> out = pending();
  if (!out) {
    // Who follows every change shall not make others wait.
    if (last_) clock.sleep_for(std::min<Duration>(kPageRest, patience));
    documents_.manager_.wait_for_change(views_.revision, patience);
    views_ = documents_.views();
    // It comes first: lists may be cut, and are told apart by its counts.
    std::string cluster = documents_.cluster(caller_);
    if (cluster != cluster_) {
      cluster_ = std::move(cluster);
      out = Document{"cluster", std::make_shared<const std::string>(cluster_)};
    } else {
      out = pending();
    }
  }
  const Instant now = clock.now();
  if (!out && (!last_ || now - *last_ >= kPageBeat)) {
    out = Document{"beat", std::make_shared<const std::string>("{}")};
  }
  if (out) last_ = now;
  return out;
}

}  // namespace flyt::cluster
