#include "control/cluster/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <array>
#include <cerrno>

namespace flyt::cluster {
namespace {

using control::Database;
using control::Transaction;

constexpr const char* kTables = R"(
CREATE TABLE entries (
  key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE revisions (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL) STRICT;
INSERT INTO revisions VALUES (1, 0);
)";
constexpr std::array<std::string_view, 2> kNames = {"entries", "revisions"};

Result<Fd> lock_of(const std::string& path) {
  Fd lock(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return system_error("cannot open " + path + ".lock", errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return Error{ErrorCode::kDenied, "another cluster manager runs with the state of " + path +
                                       "; stop it, or set cluster.state"};
}

}  // namespace

Error unusable_store(const std::string& path, const std::string& why) {
  return {
      ErrorCode::kInvalid,
      path + " cannot be used: " + why +
          ". Put a backup of it there; or move it away, with the files -wal and -shm beside it,"
          " and set the VMs anew: leases that nodes still have are then shown as foreign, and go"
          " on until they are released. Nothing was changed."};
}

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& path) {
  auto lock = lock_of(path);
  if (!lock) return std::move(lock).error();
  auto database = Database::open(path, kNames);
  if (!database && database.error().code == ErrorCode::kNotFound) {
    const Status made = Database::make(path, kTables, kSchemaVersion);
    database = made ? Database::open(path, kNames) : made.error();
  }
  if (!database) {
    const Error& error = database.error();
    return error.code == ErrorCode::kInvalid ? unusable_store(path, error.message) : error;
  }
  if (Status status = database->check_integrity(); !status) {
    return unusable_store(path, status.error().message);
  }
  const auto version = database->number("PRAGMA user_version");
  if (!version) return version.error();
  std::unique_ptr<SqliteStore> store(new SqliteStore(std::move(*database), std::move(*lock)));
  if (*version != kSchemaVersion) {
    return unusable_store(path, "it has schema version " + std::to_string(*version) +
                                    ", and this program knows " + std::to_string(kSchemaVersion));
  }
  const auto revision = store->database_.number("SELECT revision FROM revisions");
  if (!revision) return unusable_store(path, revision.error().message);
  store->revision_ = static_cast<std::uint64_t>(*revision);
  return store;
}

Result<std::vector<StoreEntry>> SqliteStore::list(std::string_view prefix) {
  auto rows = database_.prepare(
      "SELECT key, value, revision FROM entries WHERE key >= ? AND key < ? ORDER BY key");
  if (!rows) return std::move(rows).error();
  // Keys are ASCII, so that this comes behind all of them.
  rows->bind(1, prefix).bind(2, std::string(prefix) + '\x7f');
  std::vector<StoreEntry> entries;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) return entries;
    entries.push_back({rows->text(0), rows->text(1), static_cast<std::uint64_t>(rows->number(2))});
  }
}

Status SqliteStore::check(std::span<const StoreCondition> conditions) {
  auto row = database_.prepare("SELECT revision FROM entries WHERE key = ?");
  if (!row) return std::move(row).error();
  for (const StoreCondition& condition : conditions) {
    row->reset();
    row->bind(1, condition.key);
    const Result<bool> found = row->step();
    if (!found) return found.error();
    const std::uint64_t revision = *found ? static_cast<std::uint64_t>(row->number(0)) : 0;
    if (revision == condition.revision) continue;
    return Error{ErrorCode::kDenied, condition.key + " was changed by somebody else"};
  }
  return {};
}

Status SqliteStore::write(std::span<const StoreChange> changes, std::uint64_t revision) {
  auto put = database_.prepare(
      "INSERT INTO entries VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET value = ?2,"
      " revision = ?3");
  if (!put) return std::move(put).error();
  auto remove = database_.prepare("DELETE FROM entries WHERE key = ?");
  if (!remove) return std::move(remove).error();
  for (const StoreChange& change : changes) {
    control::Statement& statement = change.value ? *put : *remove;
    statement.reset();
    statement.bind(1, change.key);
    if (change.value) {
      statement.bind_bytes(2, *change.value).bind(3, static_cast<std::int64_t>(revision));
    }
    if (Status status = statement.run(); !status) return status;
  }
  auto last = database_.prepare("UPDATE revisions SET revision = ?");
  if (!last) return std::move(last).error();
  return last->bind(1, static_cast<std::int64_t>(revision)).run();
}

Result<std::uint64_t> SqliteStore::commit(std::span<const StoreCondition> conditions,
                                          std::span<const StoreChange> changes) {
  const std::uint64_t revision = revision_ + 1;
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status.error();
  if (Status status = check(conditions); !status) return status.error();
  if (Status status = write(changes, revision); !status) return status.error();
  if (Status status = transaction.commit(); !status) return status.error();
  revision_ = revision;
  return revision;
}

}  // namespace flyt::cluster
