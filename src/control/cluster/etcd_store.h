// EtcdStore: the memory that several cluster managers share; the one that decides writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/cluster/store.h"
#include "control/cluster/tenure.h"
#include "control/etcd/etcd.h"

namespace flyt::cluster {

// Below the cluster's own prefix.
inline constexpr std::string_view kEtcdState = "state/";
inline constexpr std::string_view kEtcdJournal = "journal/";
inline constexpr std::string_view kEtcdLeader = "leader";

// Whatever it writes, it writes under the condition that its tenure has not ended. Where nobody
// knows whether a commit was done, the tenure ends: whoever decides next reads what there is.
class EtcdStore final : public Store {
 public:
  EtcdStore(control::Etcd& etcd, std::string prefix, std::shared_ptr<Tenure> tenure)
      : etcd_(etcd), prefix_(std::move(prefix)), tenure_(std::move(tenure)) {}

  // Finishes, or forgets, what the one before was writing. Before anything else.
  Status open();

  Result<std::vector<StoreEntry>> list(std::string_view prefix) override;
  // kLost: the tenure has ended; it may have been done or not.
  Result<std::uint64_t> commit(std::span<const StoreCondition> conditions,
                               std::span<const StoreChange> changes) override;
  std::size_t changes_at_once() const override;
  bool mine() const override { return tenure_->holds(); }

 private:
  // A commit that is too large for one transaction goes to the journal first.
  struct Piece {
    std::vector<control::EtcdCompare> compares;
    std::vector<StoreChange> changes;
    std::size_t bytes = 0;
  };
  struct Written {
    std::uint64_t told = 0;  // The revision of the whole commit.
    std::uint64_t real = 0;  // The key's own.
  };
  control::EtcdCompare compare_of(const StoreCondition& condition) const;
  control::EtcdChange change_of(const StoreChange& change) const;
  std::string journal_key(std::size_t piece) const;
  std::vector<Piece> pieces_of(std::span<const StoreCondition> conditions,
                               std::span<const StoreChange> changes) const;
  // One transaction of this tenure. kDenied: another compare did not hold.
  Result<std::uint64_t> transact(std::vector<control::EtcdCompare> compares,
                                 const std::vector<control::EtcdChange>& changes);
  Result<std::uint64_t> commit_small(const Piece& piece);
  Result<std::uint64_t> commit_large(const std::vector<Piece>& pieces);
  Status write_journal(const std::vector<Piece>& pieces);
  Result<std::uint64_t> apply(const Piece& piece, const std::string& journal);
  Status forget_journal(std::size_t pieces);

  control::Etcd& etcd_;
  const std::string prefix_;
  const std::shared_ptr<Tenure> tenure_;
  std::map<std::string, Written> written_;  // Where the two differ.
};

}  // namespace flyt::cluster
