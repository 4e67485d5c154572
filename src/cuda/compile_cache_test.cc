#include "cuda/compile_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace flyt::cuda {
namespace {

namespace fs = std::filesystem;

CompileRequest request_of(std::string_view program) {
  return {.kind = 1,
          .program = bytes_of(program),
          .options = "-arch=sm_90",
          .host = "host",
          .compiler = "13.0",
          .first = 90,
          .second = 0};
}

class CompileCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/flyt-compiled-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  CompileCacheOptions options() const { return {.on = true, .folder = folder_ + "/user/nvrtc"}; }
  std::string path_of(const Digest& key) const { return folder_ + "/user/nvrtc/" + to_hex(key); }

  static std::string found(CompileCache& cache, const Digest& key) {
    const auto code = cache.find(key);
    return code ? std::string(text_of(*code)) : "nothing";
  }

  std::string folder_;
};

TEST_F(CompileCacheTest, AnotherProcessFindsWhatOneHasCompiled) {
  const Digest key = key_of(request_of("a"));
  {
    CompileCache cache(options());
    EXPECT_FALSE(fs::exists(folder_ + "/user"));
    EXPECT_EQ(found(cache, key), "nothing");
    EXPECT_TRUE(cache.insert(key, bytes_of("code")));
    EXPECT_EQ(found(cache, key), "code");
  }
  CompileCache cache(options());
  EXPECT_EQ(found(cache, key), "code");
  EXPECT_EQ(found(cache, key_of(request_of("b"))), "nothing");
  struct stat status {};
  ASSERT_EQ(::stat(path_of(key).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(CompileCacheTest, EveryArgumentIsInTheKey) {
  const CompileRequest base = request_of("a");
  std::vector<CompileRequest> others(7, base);
  others[0].kind = 2;
  others[1].program = bytes_of("b");
  others[2].options = "-arch=sm_80";
  others[3].host = "hos";
  others[4].compiler = "t13.0";
  others[5].first = 80;
  others[6].second = 1;
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_NE(key_of(others[i]), key_of(base)) << i;
  // Where one ends and the next begins matters, too.
  CompileRequest moved = base;
  moved.host = "hos";
  moved.compiler = "t13.0";
  EXPECT_NE(key_of(moved), key_of(base));
  EXPECT_EQ(key_of(request_of("a")), key_of(base));
}

TEST_F(CompileCacheTest, DamagedEntriesAreDroppedAndMadeAgain) {
  const Digest key = key_of(request_of("a"));
  const Digest other = key_of(request_of("b"));
  CompileCache cache(options());
  for (const std::string_view damage : {"", "short", "x"}) {
    ASSERT_TRUE(cache.insert(key, bytes_of("code")));
    if (damage == "x") {
      std::fstream(path_of(key), std::ios::in | std::ios::out).seekp(-1, std::ios::end) << 'x';
    } else {
      std::ofstream(path_of(key)) << damage;
    }
    EXPECT_EQ(found(cache, key), "nothing") << damage;
    EXPECT_FALSE(fs::exists(path_of(key)));
  }
  // Nor does an entry answer for another key.
  ASSERT_TRUE(cache.insert(key, bytes_of("code")));
  fs::copy(path_of(key), path_of(other));
  EXPECT_EQ(found(cache, other), "nothing");
  EXPECT_EQ(found(cache, key), "code");
}

TEST_F(CompileCacheTest, TheFolderStaysSmall) {
  CompileCacheOptions small = options();
  small.bytes_max = 3 * CacheFolder::kEntryBytesMin;
  CompileCache cache(small);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(cache.insert(key_of(request_of(std::to_string(i))), bytes_of("code")));
  }
  std::size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(small.folder)) {
    if (!entry.path().filename().string().starts_with('.')) ++entries;
  }
  EXPECT_EQ(entries, 3U);
  EXPECT_FALSE(
      cache.insert(key_of(request_of("large")), std::vector<std::byte>(small.bytes_max + 1)));
}

TEST_F(CompileCacheTest, WhereThereIsNoFolderTheProcessRemembers) {
  const Digest key = key_of(request_of("a"));
  // Somebody else's, or open to others.
  ASSERT_TRUE(fs::create_directories(folder_ + "/user/nvrtc"));
  ASSERT_EQ(::chmod((folder_ + "/user/nvrtc").c_str(), 0777), 0);
  for (const std::string& folder :
       {folder_ + "/user/nvrtc", std::string("/proc/none/at/all"), std::string()}) {
    CompileCache cache({.on = true, .folder = folder});
    EXPECT_TRUE(cache.insert(key, bytes_of("code")));
    EXPECT_EQ(found(cache, key), "code");
    EXPECT_TRUE(cache.insert(key_of(request_of("large")),
                             std::vector<std::byte>(CompileCache::kEntryBytesMax)));
    EXPECT_EQ(found(cache, key), "nothing");
  }
  EXPECT_TRUE(fs::is_empty(folder_ + "/user/nvrtc"));
}

TEST_F(CompileCacheTest, SwitchedOffNothingIsKept) {
  CompileCacheOptions off = options();
  off.on = false;
  CompileCache cache(off);
  const Digest key = key_of(request_of("a"));
  EXPECT_FALSE(cache.insert(key, bytes_of("code")));
  EXPECT_EQ(found(cache, key), "nothing");
  EXPECT_FALSE(fs::exists(folder_ + "/user"));
}

TEST_F(CompileCacheTest, TheDriversVariablesSetIt) {
  const auto with = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    const CompileCacheOptions options = compile_cache_options();
    ::unsetenv(name);
    return options;
  };
  for (const char* name : {"CUDA_CACHE_DISABLE", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE"}) {
    ::unsetenv(name);
  }
  EXPECT_TRUE(compile_cache_options().on);
  EXPECT_EQ(compile_cache_options().bytes_max, 1 * kGiB);
  EXPECT_TRUE(with("CUDA_CACHE_DISABLE", "0").on);
  EXPECT_FALSE(with("CUDA_CACHE_DISABLE", "1").on);
  EXPECT_EQ(with("CUDA_CACHE_PATH", "/there").folder, "/there/flyt");
  EXPECT_EQ(with("CUDA_CACHE_MAXSIZE", "123").bytes_max, 123U);
  EXPECT_EQ(with("CUDA_CACHE_MAXSIZE", "many").bytes_max, 1 * kGiB);
}

}  // namespace
}  // namespace flyt::cuda
