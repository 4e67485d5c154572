#include "server/code/code_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace flyt::server {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> code_of(std::size_t size, int seed) {
  std::vector<std::byte> code(size);
  for (std::size_t i = 0; i < size; ++i) {
    code[i] = static_cast<std::byte>((i * 2654435761U + static_cast<unsigned>(seed) * 40503U) >> 7);
  }
  return code;
}

class CodeStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/flyt-store-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<CodeStore> open(const std::string& tenant = "unix-1",
                                  std::uint64_t bytes_max = 1 * kMiB) {
    auto store = CodeStore::open({folder_ + "/modules", bytes_max}, tenant, log_);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  std::string path_of(Bytes code, const std::string& tenant = "unix-1") const {
    return folder_ + "/modules/" + tenant + "/" + to_hex(sha256(code));
  }
  static bool has(CodeStore& store, Bytes code) {
    const auto found = store.find(sha256(code), code.size());
    if (!found) return false;
    EXPECT_EQ(found->size(), code.size() + 1);
    EXPECT_EQ(found->back(), std::byte{0});
    return std::equal(code.begin(), code.end(), found->begin());
  }
  static void keep(CodeStore& store, Bytes code) { store.keep(sha256(code), code); }

  Log log_{"test", LogLevel::kOff};
  std::string folder_;
};

TEST_F(CodeStoreTest, GivesBackWhatItWasGiven) {
  const auto store = open();
  const auto code = code_of(10'000, 1);
  EXPECT_FALSE(has(*store, code));
  keep(*store, code);
  EXPECT_TRUE(has(*store, code));
  EXPECT_TRUE(has(*open(), code));
}

TEST_F(CodeStoreTest, FactsAreKeptWithoutTheCode) {
  const auto store = open();
  const Digest digest = sha256(code_of(10'000, 1));
  const cuda::CodeFacts facts{.loaded_bytes = 123'456'789'012,
                              .may_print = false,
                              .may_remember = true,
                              .has_variables = false};
  EXPECT_FALSE(store->find_facts(digest));
  store->keep_facts(digest, facts);
  EXPECT_EQ(open()->find_facts(digest), facts);
  EXPECT_FALSE(store->find_facts(sha256(code_of(10'000, 2))));
  EXPECT_FALSE(open("unix-2")->find_facts(digest));
  store->keep_facts(
      digest, {.loaded_bytes = 1, .may_print = true, .may_remember = false, .has_variables = true});
  EXPECT_EQ(store->find_facts(digest), (cuda::CodeFacts{1, true, false}));
}

TEST_F(CodeStoreTest, WhatFollowedCodeIsKept) {
  const auto store = open();
  const Digest digest = sha256(code_of(10'000, 1));
  const CodeName next{sha256(code_of(10'000, 2)), 10'000};
  EXPECT_FALSE(store->find_next(digest));
  store->keep_next(digest, next);
  EXPECT_EQ(open()->find_next(digest), next);
  EXPECT_FALSE(store->find_next(next.digest));
  EXPECT_FALSE(open("unix-2")->find_next(digest));
  // A note about another code is no note about this one.
  const std::string path = path_of(code_of(10'000, 1)) + ".next";
  fs::copy_file(path, path_of(code_of(10'000, 2)) + ".next");
  EXPECT_FALSE(store->find_next(next.digest));
  EXPECT_EQ(store->find_next(digest), next);
  fs::resize_file(path, 40);
  EXPECT_FALSE(store->find_next(digest));
  store->keep_next(digest, {digest, 1});
  EXPECT_EQ(store->find_next(digest), (CodeName{digest, 1}));
}

TEST_F(CodeStoreTest, DamagedFactsAreDropped) {
  const auto store = open();
  const auto code = code_of(10'000, 1);
  const std::string path = path_of(code) + ".facts";
  for (const std::streamoff at : {0, 8, 9, 40}) {
    store->keep_facts(sha256(code), {.loaded_bytes = 77, .may_print = true});
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put('\x55');
    }
    EXPECT_FALSE(store->find_facts(sha256(code))) << at;
    EXPECT_FALSE(fs::exists(path)) << at;
  }
  store->keep_facts(sha256(code), {.loaded_bytes = 77, .may_print = true});
  fs::resize_file(path, 20);
  EXPECT_FALSE(store->find_facts(sha256(code)));
}

TEST_F(CodeStoreTest, AWrongSizeFindsNothingAndDropsNothing) {
  const auto store = open();
  const auto code = code_of(10'000, 1);
  keep(*store, code);
  for (const std::uint64_t size : {0, 1, 9'999, 10'001, 1'000'000}) {
    EXPECT_FALSE(store->find(sha256(code), size)) << size;
    EXPECT_TRUE(has(*store, code)) << size;
  }
}

TEST_F(CodeStoreTest, TenantsMeetNothingOfEachOther) {
  const auto code = code_of(5000, 1);
  keep(*open("unix-1"), code);
  EXPECT_FALSE(has(*open("unix-2"), code));
  EXPECT_TRUE(has(*open("unix-1"), code));
  struct stat status {};
  ASSERT_EQ(::stat((folder_ + "/modules/unix-1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat((folder_ + "/modules").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
}

TEST_F(CodeStoreTest, OneTenantsCodeDoesNotPushOutAnothers) {
  const auto kept = code_of(300'000, 1);
  keep(*open("unix-1"), kept);
  const auto other = open("unix-2");
  for (int i = 2; i < 20; ++i) keep(*other, code_of(300'000, i));
  EXPECT_TRUE(has(*open("unix-1"), kept));
}

TEST_F(CodeStoreTest, RefusesNamesThatAreNoTenants) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "A", ".lock", "a b"}) {
    EXPECT_FALSE(CodeStore::open({folder_ + "/modules", 1 * kMiB}, name, log_).ok()) << name;
  }
}

TEST_F(CodeStoreTest, WhatWasUsedLongestAgoMakesRoom) {
  const auto store = open();
  std::vector<std::vector<std::byte>> codes;
  for (int i = 0; i < 4; ++i) codes.push_back(code_of(300'000, i));
  for (int i = 0; i < 3; ++i) keep(*store, codes[static_cast<std::size_t>(i)]);
  // The times of a file system are coarse.
  for (std::size_t i = 0; i < 3; ++i) {
    fs::last_write_time(path_of(codes[i]),
                        fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  EXPECT_TRUE(has(*store, codes[0]));
  keep(*store, codes[3]);
  EXPECT_TRUE(has(*store, codes[0]));
  EXPECT_FALSE(has(*store, codes[1]));
  EXPECT_TRUE(has(*store, codes[2]));
  EXPECT_TRUE(has(*store, codes[3]));
}

TEST_F(CodeStoreTest, KeepsNothingThatIsLargerThanItself) {
  const auto store = open();
  const auto small = code_of(1000, 1);
  keep(*store, small);
  keep(*store, code_of(2 * kMiB, 2));
  EXPECT_TRUE(has(*store, small));
  EXPECT_FALSE(fs::exists(path_of(code_of(2 * kMiB, 2))));
}

TEST_F(CodeStoreTest, WhatIsTooLargeIsToldOnce) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  const Log log("test", LogLevel::kInfo, writing.get());
  auto store = CodeStore::open({folder_ + "/modules", 1 * kMiB}, "unix-1", log);
  ASSERT_TRUE(store.ok());
  keep(**store, code_of(2 * kMiB, 2));
  keep(**store, code_of(3 * kMiB, 3));
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(
      std::max<ssize_t>(::read(reading.get(), text.data(), text.size()), 0)));
  EXPECT_NE(text.find("2097152 bytes are more than --module-cache-bytes allows"), std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(CodeStoreTest, DropsADamagedEntry) {
  const auto store = open();
  const auto code = code_of(5000, 1);
  keep(*store, code);
  {
    std::fstream file(path_of(code), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1234);
    file.put('\xff');
    file.put('\x00');
    file.put('\xff');
  }
  EXPECT_FALSE(has(*store, code));
  EXPECT_FALSE(fs::exists(path_of(code)));
  keep(*store, code);
  fs::resize_file(path_of(code), 4999);
  EXPECT_FALSE(has(*store, code));
  keep(*store, code);
  EXPECT_TRUE(has(*store, code));
}

TEST_F(CodeStoreTest, FollowsNoLinks) {
  const auto store = open();
  const auto code = code_of(5000, 1);
  std::ofstream(folder_ + "/secret", std::ios::binary) << text_of(code);
  fs::create_symlink(folder_ + "/secret", path_of(code));
  EXPECT_FALSE(has(*store, code));
  fs::create_directory_symlink(folder_, folder_ + "/modules/unix-9");
  EXPECT_FALSE(CodeStore::open({folder_ + "/modules", 1 * kMiB}, "unix-9", log_).ok());
}

TEST_F(CodeStoreTest, APipeInAnEntrysPlaceKeepsNobodyWaiting) {
  const auto store = open();
  const auto code = code_of(5000, 1);
  ASSERT_EQ(::mkfifo(path_of(code).c_str(), 0600), 0);
  EXPECT_FALSE(has(*store, code));
  keep(*store, code);
  EXPECT_TRUE(has(*store, code));
}

TEST_F(CodeStoreTest, AFolderInItIsNotInTheWayOfWhatMustGo) {
  const auto store = open();
  const std::string folder = folder_ + "/modules/unix-1/folder";
  fs::create_directory(folder);
  fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(100));
  for (int i = 0; i < 5; ++i) keep(*store, code_of(300'000, i));
  EXPECT_TRUE(has(*store, code_of(300'000, 4)));
  EXPECT_TRUE(fs::exists(folder));
}

// A file system that is smaller than what a tenant may have; without the right to make one the
// test has nothing to look at.
TEST_F(CodeStoreTest, OnAFullDiskWhatWasUsedLongestAgoMakesRoom) {
  const std::string disk = folder_ + "/modules";
  fs::create_directory(disk);
  fs::permissions(disk, fs::perms::owner_all);
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) {
    GTEST_SKIP() << "no file system can be mounted";
  }
  {
    const auto store = open("unix-1", 1 * kGiB);
    for (int i = 0; i < 8; ++i) {
      keep(*store, code_of(300'000, i));
      EXPECT_TRUE(has(*store, code_of(300'000, i))) << i;
    }
    // What does not fit at all costs nobody his place.
    keep(*store, code_of(5'000'000, 9));
    EXPECT_TRUE(has(*store, code_of(300'000, 6)));
    EXPECT_TRUE(has(*store, code_of(300'000, 7)));
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(CodeStoreTest, WritersThatAreKilledLeaveNothingThatIsWrong) {
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto mine = open("unix-1", 500'000);
      for (int i = 0;; ++i) keep(*mine, code_of(50'000, i % 20));
    }
    // Somewhere in the middle of it: others work at the folder until then.
    const auto store = open("unix-1", 500'000);
    for (int i = 0; i < 4; ++i) keep(*store, code_of(50'000, (round + i) % 20));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (int i = 0; i < 20; ++i) static_cast<void>(has(*store, code_of(50'000, i)));
    keep(*store, code_of(50'000, round % 20));
    EXPECT_TRUE(has(*store, code_of(50'000, round % 20)));
    std::uint64_t total = 0;
    for (const auto& entry : fs::directory_iterator(folder_ + "/modules/unix-1")) {
      total += entry.file_size();
      EXPECT_FALSE(entry.path().filename().string().starts_with(".new-"));
    }
    EXPECT_LE(total, 500'000U);
  }
}

TEST_F(CodeStoreTest, RemovesWhatACrashLeftOver) {
  const auto store = open();
  const std::string left_over = folder_ + "/modules/unix-1/.new-4711";
  std::ofstream(left_over) << "half";
  keep(*store, code_of(100, 1));
  EXPECT_FALSE(fs::exists(left_over));
}

TEST_F(CodeStoreTest, RefusesAFolderThatOthersMayWriteTo) {
  fs::create_directory(folder_ + "/modules");
  ASSERT_EQ(::chmod((folder_ + "/modules").c_str(), 0777), 0);
  EXPECT_FALSE(CodeStore::open({folder_ + "/modules", 1 * kMiB}, "unix-1", log_).ok());
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FALSE(CodeStore::open({folder_ + "/file", 1 * kMiB}, "unix-1", log_).ok());
}

// As on a full or read-only disk: the folder is gone.
TEST_F(CodeStoreTest, GoesOnWhereNothingCanBeWritten) {
  const auto store = open();
  fs::remove_all(folder_ + "/modules");
  const auto code = code_of(100, 1);
  keep(*store, code);
  EXPECT_FALSE(has(*store, code));
}

TEST_F(CodeStoreTest, TheTenantThatCameLongestAgoMakesRoom) {
  for (std::size_t i = 0; i < CodeStore::kTenantsMax; ++i) {
    const std::string tenant = "tcp-10.0.0." + std::to_string(i);
    keep(*open(tenant), code_of(100, 1));
    fs::last_write_time(folder_ + "/modules/" + tenant,
                        fs::file_time_type::clock::now() - std::chrono::hours(100 - i));
  }
  open("tcp-10.0.0.0");
  open("unix-1");
  EXPECT_TRUE(fs::exists(folder_ + "/modules/tcp-10.0.0.0"));
  EXPECT_FALSE(fs::exists(folder_ + "/modules/tcp-10.0.0.1"));
  EXPECT_TRUE(fs::exists(folder_ + "/modules/tcp-10.0.0.2"));
}

// As where somebody names his home to it.
TEST_F(CodeStoreTest, FoldersThatAreNoTenantsAreLeftAlone) {
  fs::create_directory(folder_ + "/modules");
  fs::permissions(folder_ + "/modules", fs::perms::owner_all);
  for (std::size_t i = 0; i < CodeStore::kTenantsMax + 6; ++i) {
    const std::string other = folder_ + "/modules/documents-" + std::to_string(i);
    fs::create_directory(other);
    std::ofstream(other + "/letter") << "x";
    fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(100 + i));
  }
  keep(*open("unix-1"), code_of(100, 1));
  for (std::size_t i = 0; i < CodeStore::kTenantsMax + 6; ++i) {
    EXPECT_TRUE(fs::exists(folder_ + "/modules/documents-" + std::to_string(i) + "/letter")) << i;
  }
  EXPECT_TRUE(has(*open("unix-1"), code_of(100, 1)));
}

TEST_F(CodeStoreTest, ManyThreadsAndProcessesShareIt) {
  const auto store = open("unix-1", 200'000);
  const auto work = [&](CodeStore& mine) {
    for (int i = 0; i < 60; ++i) {
      const auto code = code_of(20'000, i % 15);
      const auto found = mine.find(sha256(code), code.size());
      if (found && !std::equal(code.begin(), code.end(), found->begin())) return false;
      if (!found) keep(mine, code);
    }
    return true;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work(*open("unix-1", 200'000)) ? 0 : 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { EXPECT_TRUE(work(*store)); });
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::uint64_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder_ + "/modules/unix-1")) {
    total += entry.file_size();
  }
  EXPECT_LE(total, 200'000U);
}

}  // namespace
}  // namespace flyt::server
