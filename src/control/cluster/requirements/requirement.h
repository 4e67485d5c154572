// Requirement: what a VM shall get, as somebody else's database says it: rows, checked, and what
// has changed. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace flyt::cluster::requirements {

inline constexpr std::size_t kRowsMax = 100000;
inline constexpr std::size_t kRowBytesMax = 16 << 10;
inline constexpr std::size_t kSkippedNamedMax = 100;

// A database's value; monostate: of a kind that no requirement has.
using Value = std::variant<std::monostate, std::string, std::int64_t, double>;

struct Row {
  std::string id;  // As the database calls it.
  std::map<std::string, Value, std::less<>> fields;
};

struct Requirement {
  std::string vm;  // A VM's address or name.
  std::string host;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  bool operator==(const Requirement&) const = default;
};

// Fields vm_ip, host_ip, compute_units and memory, in MiB; others are ignored. Numbers may be of
// any kind, but are whole. What makes no VM is found by who makes one of it.
Result<Requirement> requirement_of(const Row& row);

struct Skipped {
  std::string row;
  std::string why;
  auto operator<=>(const Skipped&) const = default;
};

// Everything that a database said at one moment.
class Answer {
 public:
  // In the database's order: of two rows of one VM the first holds. What is too many is not taken.
  void add(const Row& row);
  // A row that cannot even be read.
  void skip(std::string_view row, std::string why);
  bool full() const { return rows_ >= kRowsMax; }
  // True: somebody knows that there are more rows, which are not here.
  void cut() { cut_ = true; }

  std::size_t rows() const { return rows_; }
  const std::map<std::string, Requirement, std::less<>>& vms() const { return vms_; }
  // The first kSkippedNamedMax of them.
  const std::vector<Skipped>& skipped() const { return skipped_; }
  std::size_t skipped_count() const { return skipped_count_; }
  // True: some row names it, although perhaps none that can be used.
  bool names(std::string_view vm) const { return vms_.contains(vm) || named_.contains(vm); }
  // Who is not named is not there.
  bool complete() const { return rows_ != 0 && !cut_; }

 private:
  void note(std::string row, std::string why);

  std::map<std::string, Requirement, std::less<>> vms_;
  std::set<std::string, std::less<>> named_;  // By rows that cannot be used.
  std::vector<Skipped> skipped_;
  std::size_t skipped_count_ = 0;
  std::size_t rows_ = 0;
  bool cut_ = false;
};

// A VM as it is known.
struct Known {
  std::string name;
  std::string address;
  bool listed = false;  // Its requirements came from the database.
  std::string host;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
};

struct Difference {
  std::vector<Requirement> changed;  // And new ones.
  std::vector<std::string> gone;     // Names of VMs that came from the database.
  std::vector<Skipped> refused;      // One row names a VM, another one its address.
};

// Nobody is gone by an answer that is not complete, or has no row at all: a database that is being
// restored, or the wrong one, takes no VM away.
Difference difference(const std::vector<Known>& known, const Answer& answer);

// "mongodb://HOSTS" of a URI: no user, no password, no options, which may be secret, too.
std::string shown_uri(std::string_view uri);
// Whether it can be one; which options it may have, its library knows.
Status check_uri(std::string_view uri);
// What a library says, without the secret, should it repeat that.
std::string without_secret(std::string text, std::string_view secret);

}  // namespace flyt::cluster::requirements
