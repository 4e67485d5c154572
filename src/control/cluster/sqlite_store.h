// SqliteStore: a cluster manager's memory in one file.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "control/cluster/store.h"
#include "control/sqlite/sqlite.h"

namespace flyt::cluster {

class SqliteStore final : public Store {
 public:
  static constexpr std::int64_t kSchemaVersion = 1;

  // Makes what is not there. kDenied: another manager has it open. A file that is damaged, empty,
  // of a newer version or none of ours is refused with what to do, and left as it is.
  static Result<std::unique_ptr<SqliteStore>> open(const std::string& path);

  Result<std::vector<StoreEntry>> list(std::string_view prefix) override;
  Result<std::uint64_t> commit(std::span<const StoreCondition> conditions,
                               std::span<const StoreChange> changes) override;

 private:
  SqliteStore(control::Database database, Fd lock)
      : lock_(std::move(lock)), database_(std::move(database)) {}
  Status check(std::span<const StoreCondition> conditions);
  Status write(std::span<const StoreChange> changes, std::uint64_t revision);

  Fd lock_;
  control::Database database_;
  std::uint64_t revision_ = 0;
};

// What is told of a store that cannot be used.
Error unusable_store(const std::string& path, const std::string& why);

}  // namespace flyt::cluster
