#include "control/sqlite/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/fd.h"

namespace flyt::control {
namespace {

constexpr const char* kLogEnding = "-wal";

Error failure_of(const std::string& path, int code, std::string_view detail) {
  std::string message = path + ": " + std::string(detail);
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
      message += "; the state cannot be written: is the disk full?";
      return {ErrorCode::kSystem, std::move(message)};
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return {ErrorCode::kSystem, std::move(message)};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT:
      return {ErrorCode::kInvalid, std::move(message)};
    default:
      return {ErrorCode::kSystem, std::move(message)};
  }
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  ::sqlite3_finalize(statement);
}

void Database::Close::operator()(sqlite3* database) const { ::sqlite3_close(database); }

Statement& Statement::bind(int index, std::int64_t value) {
  ::sqlite3_bind_int64(statement_.get(), index, value);
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  ::sqlite3_bind_text(statement_.get(), index, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::bind_bytes(int index, std::string_view value) {
  ::sqlite3_bind_blob(statement_.get(), index, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  return *this;
}

Result<bool> Statement::step() {
  const int code = ::sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  sqlite3* database = ::sqlite3_db_handle(statement_.get());
  const char* path = ::sqlite3_db_filename(database, nullptr);
  return failure_of(path == nullptr ? "" : path, code, ::sqlite3_errmsg(database));
}

void Statement::reset() { ::sqlite3_reset(statement_.get()); }

Status Statement::run() {
  while (true) {
    const Result<bool> row = step();
    if (!row) return row.error();
    if (!*row) return {};
  }
}

std::int64_t Statement::number(int column) const {
  return ::sqlite3_column_int64(statement_.get(), column);
}

std::string Statement::text(int column) const {
  const int size = ::sqlite3_column_bytes(statement_.get(), column);
  const void* data = ::sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

Error Database::failure(int code) const {
  return failure_of(path_, code, ::sqlite3_errmsg(database_.get()));
}

Result<Database> Database::open_file(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code =
      ::sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, nullptr);
  Database database(path, raw);
  if (code != SQLITE_OK) return database.failure(code);
  ::sqlite3_busy_timeout(raw, 2000);
  return database;
}

// Before SQLite opens it: an empty file it takes for a new database.
Result<Database> Database::open(const std::string& path, std::span<const std::string_view> tables) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) {
    const int failure = errno;
    if (failure == ENOENT) return Error{ErrorCode::kNotFound, "there is no " + path};
    return system_error("cannot open " + path, failure);
  }
  if (found.st_size == 0) return Error{ErrorCode::kInvalid, "it is empty"};
  auto database = open_file(path);
  if (!database) return database;
  if (Status status = database->check_tables(tables); !status) return status.error();
  for (const char* pragma :
       {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON"}) {
    if (Status status = database->execute(pragma); !status) return status.error();
  }
  return database;
}

Status Database::make(const std::string& path, const std::string& tables, std::int64_t version) {
  if (::access((path + kLogEnding).c_str(), F_OK) == 0) {
    return Error{ErrorCode::kInvalid, "it is missing, and what was written to it last, " + path +
                                          kLogEnding + ", is there"};
  }
  const std::string fresh = path + ".new";
  for (const char* ending : {"", "-journal", kLogEnding}) ::unlink((fresh + ending).c_str());
  {
    // SQLite would make the file readable for others.
    const Fd file(::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.valid()) return system_error("cannot make " + fresh, errno);
  }
  {
    auto database = open_file(fresh);
    if (!database) return std::move(database).error();
    Transaction transaction(*database);
    if (Status status = transaction.begin(); !status) return status;
    const std::string all = tables + "PRAGMA user_version = " + std::to_string(version);
    if (Status status = database->execute(all); !status) return status;
    if (Status status = transaction.commit(); !status) return status;
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return system_error("rename " + fresh, errno);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const Fd there(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!there.valid() || ::fsync(there.get()) != 0) return system_error("fsync " + folder, errno);
  return {};
}

Status Database::check_tables(std::span<const std::string_view> tables) {
  for (const std::string_view table : tables) {
    auto row = prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?");
    if (!row) return std::move(row).error();
    const Result<bool> found = row->bind(1, table).step();
    if (!found) return found.error();
    if (!*found) return Error{ErrorCode::kInvalid, "it has no table " + std::string(table)};
  }
  return {};
}

Status Database::execute(const std::string& sql) {
  const int code = ::sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Status(failure(code));
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = ::sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                        &statement, nullptr);
  if (code != SQLITE_OK) return failure(code);
  return Statement(statement);
}

Result<std::int64_t> Database::number(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement) return std::move(statement).error();
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return *row ? statement->number(0) : 0;
}

Status Database::check_integrity() {
  auto statement = prepare("PRAGMA integrity_check(3)");
  if (!statement) return std::move(statement).error();
  std::string problems;
  while (true) {
    const Result<bool> row = statement->step();
    if (!row) return row.error();
    if (!*row) break;
    problems += (problems.empty() ? "" : "; ") + statement->text(0);
  }
  std::replace(problems.begin(), problems.end(), '\n', ' ');
  if (problems == "ok") return {};
  return Error{ErrorCode::kInvalid, path_ + ": " + problems};
}

Transaction::~Transaction() {
  // A failed statement may have rolled it back already.
  if (open_) static_cast<void>(database_.execute("ROLLBACK").ok());
}

Status Transaction::begin() {
  Status status = database_.execute("BEGIN IMMEDIATE");
  open_ = status.ok();
  return status;
}

Status Transaction::commit() {
  Status status = database_.execute("COMMIT");
  if (status) open_ = false;
  return status;
}

}  // namespace flyt::control
