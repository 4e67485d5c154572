#include "control/node/state.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "control/node/planner.h"

namespace flyt::node {
namespace {

namespace fs = std::filesystem;
using control::Statement;
using control::Transaction;

constexpr const char* kTables = R"(
CREATE TABLE leases (
  id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, gpu INTEGER NOT NULL, gpu_uuid TEXT NOT NULL,
  mode TEXT NOT NULL, sms_asked INTEGER NOT NULL, sms INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL, overhead_bytes INTEGER NOT NULL, priority INTEGER NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, port INTEGER NOT NULL,
  server_pid INTEGER NOT NULL, server_start INTEGER NOT NULL, restarts INTEGER NOT NULL,
  memory_pending INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE lease_groups (
  gpu INTEGER NOT NULL, number INTEGER NOT NULL, layer INTEGER NOT NULL,
  lease TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE,
  PRIMARY KEY (gpu, number, layer)
) STRICT, WITHOUT ROWID;
CREATE TABLE labels (
  lease TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE,
  key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (lease, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,
  lease TEXT NOT NULL, lease_name TEXT NOT NULL, text TEXT NOT NULL
) STRICT;
CREATE TABLE processes (
  name TEXT PRIMARY KEY, pid INTEGER NOT NULL, start INTEGER NOT NULL
) STRICT;
CREATE TABLE settings (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE failed_gpus (
  uuid TEXT PRIMARY KEY, boot TEXT NOT NULL, why TEXT NOT NULL
) STRICT;
)";

// Those of the first version, which every later one has.
constexpr std::array<std::string_view, 6> kFirstTables = {"leases", "lease_groups", "labels",
                                                          "events", "processes",    "settings"};
constexpr std::array<std::string_view, 1> kLaterTables = {"failed_gpus"};

// What each version added to the one before it; the first one is version 2.
constexpr std::array<const char*, State::kSchemaVersion - 1> kMigrations = {
    "ALTER TABLE leases ADD COLUMN memory_pending INTEGER NOT NULL DEFAULT 0",
    R"(
CREATE TABLE lease_groups_3 (
  gpu INTEGER NOT NULL, number INTEGER NOT NULL, layer INTEGER NOT NULL,
  lease TEXT NOT NULL REFERENCES leases(id) ON DELETE CASCADE,
  PRIMARY KEY (gpu, number, layer)
) STRICT, WITHOUT ROWID;
INSERT INTO lease_groups_3 SELECT gpu, number, 0, lease FROM lease_groups;
DROP TABLE lease_groups;
ALTER TABLE lease_groups_3 RENAME TO lease_groups;
)",
    "CREATE TABLE failed_gpus ("
    " uuid TEXT PRIMARY KEY, boot TEXT NOT NULL, why TEXT NOT NULL) STRICT",
};

Error unusable(const std::string& path, const std::string& why) {
  return {ErrorCode::kInvalid,
          path + " cannot be used: " + why +
              ". Put a backup of it there; or move it away, with the files -wal and -shm beside it"
              " and the folders \"leases\" of node.state and node.run, to start without leases:"
              " servers of the old ones are then ended. Nothing was changed."};
}

// What numbers of a lease can be, by their columns.
struct Range {
  int column;
  std::string_view name;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kAny32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kAny64 = std::numeric_limits<std::int64_t>::max();
constexpr std::array kRanges = {
    Range{2, "gpu", 0, kGpusMax - 1},
    Range{5, "sms_asked", 1, kSmsMax},
    Range{6, "sms", 1, kSmsMax},
    Range{7, "memory_bytes", static_cast<std::int64_t>(kMemoryQuotaMin), kAny64},
    Range{8, "overhead_bytes", 0, kAny64},
    Range{9, "priority", -kPriorityMax, kPriorityMax},
    Range{10, "created_at", 0, kAny64},
    Range{11, "expires_at", 0, kAny64},
    Range{12, "port", 0, std::numeric_limits<std::uint16_t>::max()},
    Range{13, "server_pid", 0, std::numeric_limits<std::int32_t>::max()},
    Range{14, "server_start", 0, kAny64},
    Range{15, "restarts", 0, kAny32},
    Range{16, "memory_pending", 0, kAny64},
};

// What is wrong with the row; empty: nothing.
std::string fault_of(const Statement& row) {
  const std::string lease = "lease " + row.text(0);
  if (!mode_of(row.text(4))) return lease + " has an unknown mode";
  for (const Range& range : kRanges) {
    const std::int64_t number = row.number(range.column);
    if (number >= range.least && number <= range.most) continue;
    return lease + " cannot have " + std::string(range.name) + " = " + std::to_string(number);
  }
  // It would get more without anybody having looked whether there is so much.
  if (row.number(16) >= row.number(7)) return lease + " waits for no smaller quota";
  return {};
}

// The first of these folders in which there is something.
Result<std::string> first_with_leases(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::directory_iterator first(folder, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      return system_error("cannot look into " + folder, error.value());
    }
    if (!error && first != fs::directory_iterator()) return folder;
  }
  return std::string();
}

Status make_state(const std::string& path, const std::vector<std::string>& lease_folders) {
  const auto folder = first_with_leases(lease_folders);
  if (!folder) return folder.error();
  if (!folder->empty()) {
    return Error{ErrorCode::kInvalid, "it is missing, and there are leases in " + *folder};
  }
  return Database::make(path, kTables, State::kSchemaVersion);
}

}  // namespace

Result<State> State::open(const std::string& path, std::uint64_t events_max,
                          const std::vector<std::string>& lease_folders) {
  auto database = Database::open(path, kFirstTables);
  if (!database && database.error().code == ErrorCode::kNotFound) {
    const Status made = make_state(path, lease_folders);
    database = made ? Database::open(path, kFirstTables) : made.error();
  }
  if (!database) {
    const Error& error = database.error();
    return error.code == ErrorCode::kInvalid ? unusable(path, error.message) : error;
  }
  if (Status status = database->check_integrity(); !status) {
    return unusable(path, status.error().message);
  }
  const auto version = database->number("PRAGMA user_version");
  if (!version) return version.error();
  State state(std::move(*database), events_max);
  if (*version > 0 && *version < kSchemaVersion) {
    if (Status status = state.migrate(*version); !status) return status.error();
  } else if (*version != kSchemaVersion) {
    return unusable(path, "it has schema version " + std::to_string(*version) +
                              ", and this program knows " + std::to_string(kSchemaVersion));
  }
  if (Status status = state.database_.check_tables(kLaterTables); !status) {
    return unusable(path, status.error().message);
  }
  return state;
}

Status State::migrate(std::int64_t version) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  for (auto step = static_cast<std::size_t>(version - 1); step < kMigrations.size(); ++step) {
    if (Status status = database_.execute(kMigrations[step]); !status) return status;
  }
  if (Status status = database_.execute("PRAGMA user_version = " + std::to_string(kSchemaVersion));
      !status) {
    return status;
  }
  return transaction.commit();
}

// Also where they were shared before: who shares goes on.
Status State::share_groups(bool on) {
  const auto layers = database_.number("SELECT coalesce(max(layer), 0) FROM lease_groups");
  if (!layers) return layers.error();
  share_groups_ = on || *layers != 0;
  return {};
}

Result<std::vector<Lease>> State::leases() {
  auto rows = database_.prepare(
      "SELECT id, name, gpu, gpu_uuid, mode, sms_asked, sms, memory_bytes, overhead_bytes,"
      " priority, created_at, expires_at, port, server_pid, server_start, restarts,"
      " memory_pending"
      " FROM leases ORDER BY created_at, id");
  if (!rows) return std::move(rows).error();
  std::vector<Lease> leases;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) break;
    if (const std::string fault = fault_of(*rows); !fault.empty()) {
      return unusable(database_.path(), fault);
    }
    Lease lease{.id = rows->text(0), .name = rows->text(1), .gpu_uuid = rows->text(3)};
    lease.grant.gpu = static_cast<std::uint32_t>(rows->number(2));
    lease.grant.mode = *mode_of(rows->text(4));
    lease.sms_asked = static_cast<std::uint32_t>(rows->number(5));
    lease.grant.sms = static_cast<std::uint32_t>(rows->number(6));
    lease.grant.memory_bytes = static_cast<std::uint64_t>(rows->number(7));
    lease.grant.overhead_bytes = static_cast<std::uint64_t>(rows->number(8));
    lease.priority = static_cast<std::int32_t>(rows->number(9));
    lease.created_at = rows->number(10);
    lease.expires_at = rows->number(11);
    lease.port = static_cast<std::uint16_t>(rows->number(12));
    lease.server = {static_cast<std::int32_t>(rows->number(13)),
                    static_cast<std::uint64_t>(rows->number(14))};
    lease.restarts = static_cast<std::uint32_t>(rows->number(15));
    lease.memory_pending = static_cast<std::uint64_t>(rows->number(16));
    leases.push_back(std::move(lease));
  }
  if (Status status = read_lists(leases); !status) return status.error();
  return leases;
}

Status State::read_lists(std::vector<Lease>& leases) {
  const auto find = [&leases](const std::string& id) -> Lease* {
    const auto found = std::find_if(leases.begin(), leases.end(),
                                    [&id](const Lease& lease) { return lease.id == id; });
    return found == leases.end() ? nullptr : &*found;
  };
  auto groups = database_.prepare("SELECT lease, number, gpu FROM lease_groups ORDER BY number");
  if (!groups) return std::move(groups).error();
  auto labels = database_.prepare("SELECT lease, key, value FROM labels");
  if (!labels) return std::move(labels).error();
  while (true) {
    const Result<bool> row = groups->step();
    if (!row) return row.error();
    if (!*row) break;
    Lease* const lease = find(groups->text(0));
    const std::int64_t number = groups->number(1);
    if (lease == nullptr || groups->number(2) != lease->grant.gpu || number < 0 ||
        number >= std::int64_t{kGroupsMax}) {
      return unusable(database_.path(), "lease " + groups->text(0) + " cannot have group " +
                                            std::to_string(number) + " of GPU " +
                                            std::to_string(groups->number(2)));
    }
    lease->grant.groups.push_back(static_cast<std::uint32_t>(number));
  }
  while (true) {
    const Result<bool> row = labels->step();
    if (!row) return row.error();
    if (!*row) return {};
    if (Lease* lease = find(labels->text(0))) lease->labels[labels->text(1)] = labels->text(2);
  }
}

Status State::add(const Lease& lease, const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  auto row = database_.prepare(
      "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!row) return std::move(row).error();
  row->bind(1, lease.id).bind(2, lease.name).bind(3, std::int64_t{lease.grant.gpu});
  row->bind(4, lease.gpu_uuid).bind(5, to_string(lease.grant.mode));
  row->bind(6, std::int64_t{lease.sms_asked}).bind(7, std::int64_t{lease.grant.sms});
  row->bind(8, static_cast<std::int64_t>(lease.grant.memory_bytes));
  row->bind(9, static_cast<std::int64_t>(lease.grant.overhead_bytes));
  row->bind(10, std::int64_t{lease.priority}).bind(11, lease.created_at);
  row->bind(12, lease.expires_at).bind(13, std::int64_t{lease.port});
  row->bind(14, std::int64_t{lease.server.pid});
  row->bind(15, static_cast<std::int64_t>(lease.server.start));
  row->bind(16, std::int64_t{lease.restarts});
  row->bind(17, static_cast<std::int64_t>(lease.memory_pending));
  if (Status status = row->run(); !status) return status;
  if (Status status = write_groups(lease); !status) return status;
  for (const auto& [key, value] : lease.labels) {
    auto label = database_.prepare("INSERT INTO labels VALUES (?, ?, ?)");
    if (!label) return std::move(label).error();
    if (Status status = label->bind(1, lease.id).bind(2, key).bind(3, value).run(); !status) {
      return status;
    }
  }
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

// Two leases in one layer of a group are refused, whatever they are asked for.
Status State::write_groups(const Lease& lease) {
  for (const std::uint32_t group : lease.grant.groups) {
    auto row = database_.prepare(
        share_groups_ ? "INSERT INTO lease_groups (gpu, number, lease, layer) SELECT ?1, ?2, ?3,"
                        " coalesce(max(layer) + 1, 0) FROM lease_groups"
                        " WHERE gpu = ?1 AND number = ?2"
                      : "INSERT INTO lease_groups (gpu, number, lease, layer) VALUES (?, ?, ?, 0)");
    if (!row) return std::move(row).error();
    row->bind(1, std::int64_t{lease.grant.gpu}).bind(2, std::int64_t{group}).bind(3, lease.id);
    if (Status status = row->run(); !status) return status;
  }
  return {};
}

Status State::update(const Lease& lease, const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  auto row = database_.prepare(
      "UPDATE leases SET sms_asked = ?, sms = ?, memory_bytes = ?, port = ?, server_pid = ?,"
      " server_start = ?, restarts = ?, memory_pending = ? WHERE id = ?");
  if (!row) return std::move(row).error();
  row->bind(1, std::int64_t{lease.sms_asked}).bind(2, std::int64_t{lease.grant.sms});
  row->bind(3, static_cast<std::int64_t>(lease.grant.memory_bytes));
  row->bind(4, std::int64_t{lease.port}).bind(5, std::int64_t{lease.server.pid});
  row->bind(6, static_cast<std::int64_t>(lease.server.start));
  row->bind(7, std::int64_t{lease.restarts});
  row->bind(8, static_cast<std::int64_t>(lease.memory_pending)).bind(9, lease.id);
  if (Status status = row->run(); !status) return status;
  auto old = database_.prepare("DELETE FROM lease_groups WHERE lease = ?");
  if (!old) return std::move(old).error();
  if (Status status = old->bind(1, lease.id).run(); !status) return status;
  if (Status status = write_groups(lease); !status) return status;
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Status State::remove(const std::string& id, const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  auto row = database_.prepare("DELETE FROM leases WHERE id = ?");
  if (!row) return std::move(row).error();
  if (Status status = row->bind(1, id).run(); !status) return status;
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Status State::write_event(const Event& event) {
  auto row = database_.prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)");
  if (!row) return std::move(row).error();
  row->bind(1, static_cast<std::int64_t>(event.number)).bind(2, event.at_ms);
  row->bind(3, event.kind).bind(4, event.lease_id).bind(5, event.lease_name).bind(6, event.text);
  if (Status status = row->run(); !status) return status;
  if (event.number <= events_max_) return {};
  auto old = database_.prepare("DELETE FROM events WHERE number <= ?");
  if (!old) return std::move(old).error();
  return old->bind(1, static_cast<std::int64_t>(event.number - events_max_)).run();
}

Status State::append(const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Result<std::vector<Event>> State::events() {
  auto rows = database_.prepare(
      "SELECT number, at_ms, kind, lease, lease_name, text FROM events ORDER BY number");
  if (!rows) return std::move(rows).error();
  std::vector<Event> events;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) return events;
    events.push_back({static_cast<std::uint64_t>(rows->number(0)), rows->number(1), rows->text(2),
                      rows->text(3), rows->text(4), rows->text(5)});
  }
}

Result<bool> State::draining() {
  const auto value = database_.number("SELECT value FROM settings WHERE key = 'draining'");
  if (!value) return value.error();
  return *value != 0;
}

Status State::set_draining(bool draining, const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  auto row = database_.prepare("INSERT OR REPLACE INTO settings VALUES ('draining', ?)");
  if (!row) return std::move(row).error();
  if (Status status = row->bind(1, std::int64_t{draining}).run(); !status) return status;
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Result<std::map<std::string, std::uint64_t>> State::leaders() {
  auto rows =
      database_.prepare("SELECT substr(key, 8), value FROM settings WHERE key GLOB 'leader/*'");
  if (!rows) return std::move(rows).error();
  std::map<std::string, std::uint64_t> leaders;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) return leaders;
    leaders[rows->text(0)] = static_cast<std::uint64_t>(rows->number(1));
  }
}

Status State::set_leader(const std::string& cluster, std::uint64_t epoch, const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  auto row = database_.prepare("INSERT OR REPLACE INTO settings VALUES ('leader/' || ?, ?)");
  if (!row) return std::move(row).error();
  row->bind(1, cluster).bind(2, static_cast<std::int64_t>(epoch));
  if (Status status = row->run(); !status) return status;
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Status State::forget_leaders(const Event& event) {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  if (Status status = database_.execute("DELETE FROM settings WHERE key GLOB 'leader/*'");
      !status) {
    return status;
  }
  if (Status status = write_event(event); !status) return status;
  return transaction.commit();
}

Result<ProcessId> State::recall(const std::string& name) {
  auto row = database_.prepare("SELECT pid, start FROM processes WHERE name = ?");
  if (!row) return std::move(row).error();
  row->bind(1, name);
  const Result<bool> found = row->step();
  if (!found) return found.error();
  if (!*found) return ProcessId{};
  return ProcessId{static_cast<std::int32_t>(row->number(0)),
                   static_cast<std::uint64_t>(row->number(1))};
}

Status State::remember(const std::string& name, ProcessId id) {
  auto row = database_.prepare("INSERT OR REPLACE INTO processes VALUES (?, ?, ?)");
  if (!row) return std::move(row).error();
  row->bind(1, name).bind(2, std::int64_t{id.pid});
  return row->bind(3, static_cast<std::int64_t>(id.start)).run();
}

Result<std::map<std::string, std::string>> State::failed(const std::string& boot) {
  auto rows = database_.prepare("SELECT uuid, why FROM failed_gpus WHERE boot = ?");
  if (!rows) return std::move(rows).error();
  rows->bind(1, boot);
  std::map<std::string, std::string> failed;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row) return row.error();
    if (!*row) return failed;
    failed[rows->text(0)] = rows->text(1);
  }
}

Status State::keep_failed(const std::string& uuid, const std::string& boot,
                          const std::string& why) {
  auto row = database_.prepare("INSERT OR REPLACE INTO failed_gpus VALUES (?, ?, ?)");
  if (!row) return std::move(row).error();
  return row->bind(1, uuid).bind(2, boot).bind(3, why).run();
}

Status State::forget_failed() { return database_.execute("DELETE FROM failed_gpus"); }

Status State::limit_pages(std::int64_t pages) {
  return database_.execute("PRAGMA max_page_count = " + std::to_string(pages));
}

}  // namespace flyt::node
