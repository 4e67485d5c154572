// Documents: what the cluster's page shows, as JSON, and the stream of their changes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/result.h"
#include "control/cluster/council.h"

namespace flyt::cluster {

inline constexpr int kPageRowsMax = 1000;  // Of each list.
inline constexpr std::size_t kPageEventsMax = 100;
inline constexpr std::size_t kPageMatchBytesMax = 256;
inline constexpr Duration kPageRest = std::chrono::milliseconds(500);
inline constexpr Duration kPageBeat = std::chrono::seconds(5);

// One document, as a stream of events has it; one that did not change since it was last made is the
// same object.
struct Document {
  std::string_view name;
  std::shared_ptr<const std::string> json;
};

// What all streams have in common.
struct DocumentViews {
  static constexpr std::size_t kCount = 6;
  std::uint64_t revision = 0;
  std::array<std::shared_ptr<const std::string>, kCount> json;
};

// Safe from any thread.
class Documents {
 public:
  // Of the manager that decides here; else of what is known here, which "health" tells.
  // `name` is that of the manager here.
  Documents(Chair& chair, std::string name, std::string version, const Clock& clock)
      : chair_(chair), name_(std::move(name)), version_(std::move(version)), clock_(clock) {}

  // "cluster", "health", "nodes", "leases", "vms", "queue" or "events". kNotFound: none of these.
  // With `match`, of nodes, VMs and the queue only those in which this text stands, in large or
  // small letters: of all there are, not only of those that a document has room for.
  Result<std::string> document(std::string_view name, const Caller& caller,
                               std::string_view match = {});
  Result<std::string> explain(const std::string& vm);

  // Made at most once in kPageRest, for however many streams.
  DocumentViews views();
  // Waits for a change beyond a revision.
  void wait(std::uint64_t revision, Duration patience);
  // The document "cluster" without what changes all the time.
  std::string cluster(const Caller& caller);

 private:
  friend class DocumentStream;
  v1::ClusterDescription describe(const Caller& caller);

  Chair& chair_;
  const std::string name_;
  const std::string version_;
  const Clock& clock_;
  Mutex mutex_;
  std::optional<Instant> made_ GUARDED_BY(mutex_);
  std::uint64_t after_ GUARDED_BY(mutex_) = 0;  // Events up to here are too old.
  DocumentViews views_ GUARDED_BY(mutex_);
};

// What one browser is sent. It holds no queue: who is slow gets what is then the newest. One thread
// has it.
class DocumentStream {
 public:
  DocumentStream(Documents& documents, Caller caller)
      : documents_(documents), caller_(std::move(caller)) {}

  // The next document to send; none if nothing changes within `patience`. Now and then "beat",
  // which tells that the manager is there.
  std::optional<Document> next(Duration patience);

 private:
  std::optional<Document> pending();

  Documents& documents_;
  const Caller caller_;
  DocumentViews views_;
  std::array<std::shared_ptr<const std::string>, DocumentViews::kCount> sent_;
  std::string cluster_;
  std::optional<Instant> last_;
};

}  // namespace flyt::cluster
