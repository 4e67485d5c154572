// Sqlite: a database file, its statements and transactions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace flyt::control {

class Database;

// One prepared statement. Values are numbered from 1, columns from 0. Not thread-safe.
class Statement {
 public:
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, std::string_view value);
  Statement& bind_bytes(int index, std::string_view value);
  // True: there is a row. False: the end.
  Result<bool> step();
  // To its beginning, to be run again with other values.
  void reset();
  // Steps to the end; rows are skipped.
  Status run();
  std::int64_t number(int column) const;
  std::string text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// One file, in WAL mode, every commit synced. Errors name the file, and what to do if the disk is
// full. Not thread-safe.
class Database {
 public:
  // What is there must have these tables. kInvalid: the file is damaged, empty, none of SQLite's or
  // somebody else's; it is left as it is. kNotFound: there is none.
  static Result<Database> open(const std::string& path, std::span<const std::string_view> tables);
  // Makes one, with mode 0600, where there is none: from then on it is there whole, or not at all.
  static Status make(const std::string& path, const std::string& tables, std::int64_t version);
  Status execute(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  Result<std::int64_t> number(std::string_view sql);
  // kInvalid and which is missing, if not all of them are there.
  Status check_tables(std::span<const std::string_view> tables);
  // kInvalid and what is wrong, in one line, if the file is damaged.
  Status check_integrity();
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  Database(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}
  // As it is, whatever that may be.
  static Result<Database> open_file(const std::string& path);
  Error failure(int code) const;

  std::string path_;
  std::unique_ptr<sqlite3, Close> database_;
};

// What is done between its making and commit() is done together or not at all.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  Status begin();
  Status commit();

 private:
  Database& database_;
  bool open_ = false;
};

}  // namespace flyt::control
