// MongoDB as a source of requirements: a collection in the form that an earlier Flyt had.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "control/cluster/requirements/source.h"

namespace flyt::cluster::requirements {

struct MongoSettings {
  std::string uri;  // With TLS and all else by its options.
  std::string database;
  std::string collection;
  std::string password_file;  // The password of the URI's user; read for each connection.
};

// The library makes counters in shared memory as soon as it is loaded, and would leave them where
// the process is killed: from now on they have no name. For the begin of a program.
void forget_counters();

// kInvalid: the settings cannot be; kUnsupported: this build has no MongoDB. Nobody is asked yet.
// Errors have no password.
Result<std::unique_ptr<Source>> make_mongodb(const MongoSettings& settings);

// A document as a row. kInvalid: these bytes are none.
Result<Row> row_of(std::span<const std::byte> document);

}  // namespace flyt::cluster::requirements
