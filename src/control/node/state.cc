#include "control/node/state.h"

#include <algorithm>
#include <array>

namespace flyt::node {
namespace {

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
              ". Put a backup of it there; or move it away, with the files -wal and -shm beside it,"
              " to start without leases: servers of the old ones are then ended. Nothing was"
              " changed."};
}

}  // namespace

Result<State> State::open(const std::string& path, std::uint64_t events_max) {
  auto database = Database::open(path);
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
  if (*version == 0) {
    if (Status status = state.make_tables(); !status) return status.error();
  } else if (*version > 0 && *version < kSchemaVersion) {
    if (Status status = state.migrate(*version); !status) return status.error();
  } else if (*version != kSchemaVersion) {
    return unusable(path, "it has schema version " + std::to_string(*version) +
                              ", and this program knows " + std::to_string(kSchemaVersion));
  }
  return state;
}

Status State::make_tables() {
  Transaction transaction(database_);
  if (Status status = transaction.begin(); !status) return status;
  if (Status status = database_.execute(kTables); !status) {
    return unusable(database_.path(), status.error().message);
  }
  if (Status status = database_.execute("PRAGMA user_version = " + std::to_string(kSchemaVersion));
      !status) {
    return status;
  }
  return transaction.commit();
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
    Lease lease{.id = rows->text(0), .name = rows->text(1), .gpu_uuid = rows->text(3)};
    lease.grant.gpu = static_cast<std::uint32_t>(rows->number(2));
    const auto mode = mode_of(rows->text(4));
    if (!mode) return unusable(database_.path(), "lease " + lease.id + " has an unknown mode");
    lease.grant.mode = *mode;
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
  auto groups = database_.prepare("SELECT lease, number FROM lease_groups ORDER BY number");
  if (!groups) return std::move(groups).error();
  auto labels = database_.prepare("SELECT lease, key, value FROM labels");
  if (!labels) return std::move(labels).error();
  while (true) {
    const Result<bool> row = groups->step();
    if (!row) return row.error();
    if (!*row) break;
    if (Lease* lease = find(groups->text(0))) {
      lease->grant.groups.push_back(static_cast<std::uint32_t>(groups->number(1)));
    }
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
