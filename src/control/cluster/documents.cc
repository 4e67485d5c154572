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
enum View : std::size_t { kHealth, kNodes, kLeases, kVms, kQueue, kEvents };

// Whom the documents are of, and what is to be said of that.
struct Source {
  std::shared_ptr<Manager> manager;  // None: nothing is known.
  std::string note;                  // Empty: it decides.
};

Source source_of(Chair& chair) {
  const Answerer who = chair.answerer();
  if (who.here) return {who.here, who.problem};
  const std::string why =
      who.leader ? "this manager does not decide, " + who.leader->name() + " does" : who.why;
  return {chair.known(), why + "; what is told here may be old"};
}

template <class List>
void cut(List* list, int most) {
  if (list->size() > most) list->DeleteSubrange(most, list->size() - most);
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Those in which the text stands. Names and labels stand in a message's bytes as they are.
template <class List>
void keep_matching(List& list, std::string_view match) {
  if (match.empty()) return;
  const std::string wanted = lower(std::string(match));
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const auto& one) {
                              return lower(one.SerializeAsString()).find(wanted) ==
                                     std::string::npos;
                            }),
             list.end());
}

std::string health(const Source& source) {
  v1::ClusterHealth all;
  if (!source.note.empty()) all.add_problems(source.note);
  if (source.manager) {
    for (const std::string& problem : source.manager->problems()) all.add_problems(problem);
  }
  all.set_healthy(all.problems_size() == 0);
  cut(all.mutable_problems(), kPageRowsMax);
  return json_of(all);
}

std::string nodes(const Source& source, std::string_view match) {
  auto all = source.manager ? source.manager->nodes("") : v1::ListNodesResponse();
  if (!all) return json_of(v1::ListNodesResponse());
  keep_matching(*all->mutable_nodes(), match);
  cut(all->mutable_nodes(), kPageRowsMax);
  return json_of(*all);
}

std::string leases(const Source& source) {
  auto all = source.manager ? source.manager->leases("", "") : v1::ListClusterLeasesResponse();
  if (!all) return json_of(v1::ListClusterLeasesResponse());
  cut(all->mutable_leases(), 8 * kPageRowsMax);
  return json_of(*all);
}

// All, or those that wait, in their order.
std::string vms(const Source& source, bool waiting, std::string_view match) {
  auto all = source.manager ? source.manager->vms("") : v1::ListVmsResponse();
  if (!all) return json_of(v1::ListVmsResponse());
  auto& list = *all->mutable_vms();
  keep_matching(list, match);
  if (waiting) {
    list.erase(
        std::remove_if(list.begin(), list.end(),
                       [](const v1::Vm& vm) { return vm.gpu().phase() != v1::PHASE_WAITING; }),
        list.end());
    std::stable_sort(list.begin(), list.end(), [](const v1::Vm& a, const v1::Vm& b) {
      return a.gpu().ahead() < b.gpu().ahead();
    });
  }
  cut(&list, kPageRowsMax);
  return json_of(*all);
}

// The last ones. `after`: those up to here are known to be older.
std::string events(const Source& source, std::uint64_t& after) {
  std::deque<v1::ClusterEvent> last;
  std::uint64_t seen = after;
  while (source.manager) {
    auto batch = source.manager->events(seen);
    if (batch.empty()) break;
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

std::string view_of(View view, const Source& source, std::uint64_t& after,
                    std::string_view match = {}) {
  switch (view) {
    case kHealth:
      return health(source);
    case kNodes:
      return nodes(source, match);
    case kLeases:
      return leases(source);
    case kVms:
      return vms(source, false, match);
    case kQueue:
      return vms(source, true, match);
    case kEvents:
      return events(source, after);
  }
  return {};
}

}  // namespace

Result<std::string> Documents::document(std::string_view name, const Caller& caller,
                                        std::string_view match) {
  if (match.size() > kPageMatchBytesMax) {
    return Error{ErrorCode::kInvalid, "what is looked for has at most 256 bytes"};
  }
  if (name == "cluster") return json_of(describe(caller));
  std::uint64_t after = 0;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return view_of(static_cast<View>(i), source_of(chair_), after, match);
  }
  return Error{ErrorCode::kNotFound, "there is no such document"};
}

v1::ClusterDescription Documents::describe(const Caller& caller) {
  const Source source = source_of(chair_);
  v1::ClusterDescription all;
  if (source.manager) all = source.manager->describe();
  all.set_version(version_);
  all.set_caller(caller.name);
  all.set_role(message_of(caller.role));
  all.set_manager(name_);
  all.set_decides(source.manager && source.manager->decides());
  return all;
}

Result<std::string> Documents::explain(const std::string& vm) {
  const Source source = source_of(chair_);
  if (!source.manager) return Error{ErrorCode::kLost, source.note};
  const auto told = source.manager->explain(vm);
  if (!told) return told.error();
  return json_of(*told);
}

std::string Documents::cluster(const Caller& caller) {
  v1::ClusterDescription all = describe(caller);
  all.clear_revision();
  return json_of(all);
}

void Documents::wait(std::uint64_t revision, Duration patience) {
  const Source source = source_of(chair_);
  if (source.manager) source.manager->wait_for_change(revision, patience);
}

DocumentViews Documents::views() {
  const Lock lock(mutex_);
  const Instant now = clock_.now();
  if (made_ && now - *made_ < kPageRest) return views_;
  made_ = now;
  const Source source = source_of(chair_);
  // Asked before anything is read: what changes meanwhile is a change after it.
  views_.revision = source.manager ? source.manager->describe().revision() : 0;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    std::string json = view_of(static_cast<View>(i), source, after_);
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
    documents_.wait(views_.revision, patience);
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
