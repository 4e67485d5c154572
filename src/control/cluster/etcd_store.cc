#include "control/cluster/etcd_store.h"

#include <algorithm>

#include "control/cluster_state.pb.h"

namespace flyt::cluster {
namespace {

using control::EtcdChange;
using control::EtcdCompare;

// One compare is the fence, one change the journal's.
constexpr std::size_t kPieceOperationsMax = control::kEtcdOperationsMax - 2;
constexpr std::size_t kPieceBytesMax = control::kEtcdRequestBytesMax / 2;
// Stands behind all pieces, and says that they are all there.
constexpr std::string_view kComplete = "~complete";

std::size_t bytes_of(const StoreChange& change) {
  return change.key.size() + (change.value ? change.value->size() : 0) + 16;
}

}  // namespace

std::size_t EtcdStore::changes_at_once() const { return kPieceOperationsMax; }

EtcdCompare EtcdStore::compare_of(const StoreCondition& condition) const {
  EtcdCompare compare{prefix_ + std::string(kEtcdState) + condition.key,
                      EtcdCompare::What::kModified, condition.revision};
  const auto written = written_.find(condition.key);
  if (written != written_.end() && written->second.told == condition.revision) {
    compare.revision = written->second.real;
  }
  return compare;
}

EtcdChange EtcdStore::change_of(const StoreChange& change) const {
  return {prefix_ + std::string(kEtcdState) + change.key, change.value, 0};
}

std::string EtcdStore::journal_key(std::size_t piece) const {
  const std::string digits = std::to_string(piece);
  return prefix_ + std::string(kEtcdJournal) + std::string(8 - digits.size(), '0') + digits;
}

Result<std::vector<StoreEntry>> EtcdStore::list(std::string_view prefix) {
  const std::string front = prefix_ + std::string(kEtcdState);
  const auto found = etcd_.list(front + std::string(prefix));
  if (!found) return found.error();
  std::vector<StoreEntry> entries;
  for (const control::EtcdEntry& entry : found->entries) {
    entries.push_back({entry.key.substr(front.size()), entry.value, entry.modified});
  }
  return entries;
}

Result<std::uint64_t> EtcdStore::transact(std::vector<EtcdCompare> compares,
                                          const std::vector<EtcdChange>& changes) {
  if (!tenure_->holds()) {
    tenure_->end(tenure_->why());
    return Error{ErrorCode::kLost, tenure_->why()};
  }
  const EtcdCompare fence{tenure_->key(), EtcdCompare::What::kCreated, tenure_->fence()};
  compares.push_back(fence);
  const auto outcome = etcd_.commit(compares, changes);
  if (!outcome) {
    if (outcome.error().code == ErrorCode::kLost) tenure_->end(outcome.error().message);
    return outcome.error();
  }
  if (outcome->done) return outcome->revision;
  const auto leader = etcd_.list(tenure_->key());
  const bool still =
      leader && !leader->entries.empty() && leader->entries.front().created == tenure_->fence();
  if (still) return Error{ErrorCode::kDenied, "a key was changed by somebody else"};
  tenure_->end(leader ? "another cluster manager decides now" : leader.error().message);
  return Error{ErrorCode::kLost, tenure_->why()};
}

std::vector<EtcdStore::Piece> EtcdStore::pieces_of(std::span<const StoreCondition> conditions,
                                                   std::span<const StoreChange> changes) const {
  std::vector<Piece> pieces(1);
  for (const StoreCondition& condition : conditions) {
    if (pieces.back().compares.size() == kPieceOperationsMax) pieces.emplace_back();
    pieces.back().compares.push_back(compare_of(condition));
  }
  std::size_t at = 0;
  for (const StoreChange& change : changes) {
    const std::size_t bytes = bytes_of(change);
    if (pieces[at].changes.size() == kPieceOperationsMax ||
        pieces[at].bytes + bytes > kPieceBytesMax) {
      if (++at == pieces.size()) pieces.emplace_back();
    }
    pieces[at].bytes += bytes;
    pieces[at].changes.push_back(change);
  }
  return pieces;
}

Result<std::uint64_t> EtcdStore::commit(std::span<const StoreCondition> conditions,
                                        std::span<const StoreChange> changes) {
  const std::vector<Piece> pieces = pieces_of(conditions, changes);
  return pieces.size() == 1 ? commit_small(pieces.front()) : commit_large(pieces);
}

Result<std::uint64_t> EtcdStore::commit_small(const Piece& piece) {
  std::vector<EtcdChange> changes;
  for (const StoreChange& change : piece.changes) changes.push_back(change_of(change));
  const auto revision = transact(piece.compares, changes);
  if (!revision) return revision;
  for (const StoreChange& change : piece.changes) written_.erase(change.key);
  return revision;
}

Result<std::uint64_t> EtcdStore::commit_large(const std::vector<Piece>& pieces) {
  if (Status status = write_journal(pieces); !status) {
    // An error here leaves pieces that mean nothing; whoever decides next forgets them.
    if (status.error().code != ErrorCode::kLost) {
      if (Status gone = forget_journal(pieces.size()); !gone) tenure_->end(gone.error().message);
    }
    return status.error();
  }
  // It is decided. What fails from here on is finished by whoever decides next.
  std::uint64_t last = 0;
  std::vector<std::pair<std::string, std::uint64_t>> real;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto revision = apply(pieces[i], journal_key(i));
    if (!revision) {
      tenure_->end(revision.error().message);
      return Error{ErrorCode::kLost, revision.error().message};
    }
    last = *revision;
    for (const StoreChange& change : pieces[i].changes) real.emplace_back(change.key, last);
  }
  const std::string complete = prefix_ + std::string(kEtcdJournal) + std::string(kComplete);
  const auto ended = transact({}, {{complete, std::nullopt, 0}});
  if (!ended) {
    tenure_->end(ended.error().message);
    return Error{ErrorCode::kLost, ended.error().message};
  }
  for (const auto& [key, revision] : real) written_[key] = {*ended, revision};
  return *ended;
}

Status EtcdStore::write_journal(const std::vector<Piece>& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    state::Journal journal;
    for (const StoreChange& change : pieces[i].changes) {
      state::Journal::Change& one = *journal.add_changes();
      one.set_key(change.key);
      if (change.value) one.set_value(*change.value);
    }
    const auto revision =
        transact(pieces[i].compares, {{journal_key(i), journal.SerializeAsString(), 0}});
    if (!revision) return revision.error();
  }
  const std::string complete = prefix_ + std::string(kEtcdJournal) + std::string(kComplete);
  const auto revision = transact({}, {{complete, "", 0}});
  return revision ? Status() : Status(revision.error());
}

Result<std::uint64_t> EtcdStore::apply(const Piece& piece, const std::string& journal) {
  std::vector<EtcdChange> changes;
  for (const StoreChange& change : piece.changes) changes.push_back(change_of(change));
  changes.push_back({journal, std::nullopt, 0});
  return transact({}, changes);
}

Status EtcdStore::forget_journal(std::size_t pieces) {
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto gone = transact({}, {{journal_key(i), std::nullopt, 0}});
    if (!gone) return gone.error();
  }
  return {};
}

Status EtcdStore::open() {
  const std::string front = prefix_ + std::string(kEtcdJournal);
  const auto journal = etcd_.list(front);
  if (!journal) return journal.error();
  if (journal->entries.empty()) return {};
  const bool complete = journal->entries.back().key == front + std::string(kComplete);
  for (const control::EtcdEntry& entry : journal->entries) {
    Piece piece;
    state::Journal said;
    const bool is_piece = entry.key != front + std::string(kComplete);
    if (complete && is_piece) {
      if (!said.ParseFromString(entry.value)) {
        return Error{ErrorCode::kInvalid, "its entry " + entry.key + " is damaged"};
      }
      for (const state::Journal::Change& one : said.changes()) {
        piece.changes.push_back(
            {one.key(), one.has_value() ? std::optional(one.value()) : std::nullopt});
      }
    }
    // The mark is last, and so goes when all else is done.
    if (const auto done = apply(piece, entry.key); !done) return done.error();
  }
  return {};
}

}  // namespace flyt::cluster
