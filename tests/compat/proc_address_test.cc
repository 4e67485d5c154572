// Our cuGetProcAddress against what NVIDIA's driver was seen to answer (proc_address_580.txt).
#include "cuda/proc_address.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/functions.h"

namespace flyt::cuda {
namespace {

// From which version on which export is found.
using Versions = std::map<int, std::string>;

struct Observed {
  Versions plain;
  Versions per_thread;
};

Versions parse_versions(const std::string& text) {
  Versions versions;
  std::istringstream rows(text);
  for (std::string row; std::getline(rows, row, ',');) {
    const std::size_t colon = row.find(':');
    versions[std::stoi(row.substr(0, colon))] = row.substr(colon + 1);
  }
  return versions;
}

std::map<std::string, Observed> observed() {
  std::map<std::string, Observed> found;
  std::ifstream file(FLYT_PROC_ADDRESS_FILE);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, plain, bar, per_thread;
    words >> name >> plain >> bar >> per_thread;
    found[name] = {parse_versions(plain), parse_versions(bar.empty() ? plain : per_thread)};
  }
  return found;
}

// Every version at which some answer changes, and its neighbours.
std::vector<int> interesting_versions(const std::map<std::string, Observed>& all) {
  std::map<int, bool> versions{{0, true}, {1, true}, {CUDA_VERSION, true}};
  for (const auto& [name, rows] : all) {
    for (const auto& [version, symbol] : rows.plain)
      versions[version] = versions[version - 1] = true;
    for (const auto& [version, symbol] : rows.per_thread) versions[version] = true;
  }
  std::vector<int> list;
  for (const auto& [version, used] : versions) list.push_back(version);
  return list;
}

void* expected_function(const Versions& versions, int version) {
  auto after = versions.upper_bound(version);
  if (after == versions.begin()) return nullptr;
  return dlsym(RTLD_DEFAULT, std::prev(after)->second.c_str());
}

TEST(ProcAddress, EqualsTheRealDriverForEveryNameVersionAndFlag) {
  const std::map<std::string, Observed> all = observed();
  ASSERT_EQ(all.size(), 477U);
  const std::vector<int> versions = interesting_versions(all);
  for (const auto& [name, rows] : all) {
    for (const cuuint64_t flags : {0, 1, 2, 3}) {
      for (const int version : versions) {
        const Versions& row = flags >= 2 ? rows.per_thread : rows.plain;
        void* const expected = expected_function(row, version);
        void* found = &found;
        CUdriverProcAddressQueryResult status{};
        ASSERT_EQ(
            find_proc_address(proc_address_rows(), name.c_str(), &found, version, flags, &status),
            CUDA_SUCCESS);
        EXPECT_EQ(found, expected) << name << " " << version << " flags " << flags;
        EXPECT_EQ(status, expected != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                                              : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
      }
    }
  }
}

TEST(ProcAddress, FindsNoExportUnderANameWithAVersionOrASuffix) {
  const std::map<std::string, Observed> all = observed();
  std::ifstream exports(FLYT_EXPORTS_FILE);
  int refused = 0;
  for (std::string name; std::getline(exports, name);) {
    if (all.contains(name)) continue;
    ++refused;
    void* found = &found;
    CUdriverProcAddressQueryResult status{};
    EXPECT_EQ(find_proc_address(proc_address_rows(), name.c_str(), &found, 12000, 0, &status),
              CUDA_SUCCESS);
    EXPECT_EQ(found, nullptr) << name;
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  }
  EXPECT_EQ(refused, 194);
}

TEST(ProcAddress, RefusesVersionsOfTheFutureAndUnknownFlags) {
  void* found = &found;
  CUdriverProcAddressQueryResult status{};
  const auto rows = proc_address_rows();
  EXPECT_EQ(find_proc_address(rows, "cuInit", &found, 13010, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find_proc_address(rows, "cuInit", &found, 12000, 4, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find_proc_address(rows, nullptr, &found, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find_proc_address(rows, "cuInit", nullptr, 12000, 0, &status),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(found, static_cast<void*>(&found));
}

TEST(ProcAddress, OfBeforeVersion12FailsForAMissingNameAndLeavesThePointer) {
  void* found = &found;
  const auto rows = proc_address_rows();
  EXPECT_EQ(find_proc_address_v1(rows, "cuNope", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find_proc_address_v1(rows, "cuCtxGetId", &found, 11000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(found, static_cast<void*>(&found));
  EXPECT_EQ(find_proc_address_v1(rows, "cuInit", &found, 12000, 0), CUDA_SUCCESS);
  EXPECT_EQ(found, dlsym(RTLD_DEFAULT, "cuInit"));
}

}  // namespace
}  // namespace flyt::cuda
