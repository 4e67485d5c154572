#include "server/code/foresight.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace flyt::server {
namespace {

// What the driver has loaded, as its only caller sees it.
struct Driver {
  std::set<const void*> libraries;
  int loads = 0;
  int refused_byte = -1;  // The first byte of what it refuses.
};
Driver& driver() {
  static Driver driver;
  return driver;
}

CUresult load_data(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned int,
                   CUlibraryOption*, void**, unsigned int) {
  ++driver().loads;
  if (*static_cast<const unsigned char*>(code) == driver().refused_byte) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  // The code itself stands for its library: it must stay where it is.
  *library = static_cast<CUlibrary>(const_cast<void*>(code));
  driver().libraries.insert(code);
  return CUDA_SUCCESS;
}

CUresult unload(CUlibrary library) {
  return driver().libraries.erase(library) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

class ForesightTest : public testing::Test {
 protected:
  void SetUp() override {
    driver() = {};
    char folder[] = "/tmp/flyt-foresight-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    table_.cuLibraryLoadData = &load_data;
    table_.cuLibraryUnload = &unload;
    auto store = CodeStore::open({folder_ + "/modules", 1 * kGiB}, "unix-1", log_);
    ASSERT_TRUE(store.ok());
    store_ = std::move(*store);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Code number `n`, which the store has.
  CodeName code(int n, std::size_t bytes = 1000) {
    const std::vector<std::byte> made(bytes, static_cast<std::byte>(n));
    const CodeName name{sha256(made), made.size()};
    store_->keep(name.digest, made);
    return name;
  }
  // A program that loads these, one after the other, in a session of its own.
  void run(const std::vector<CodeName>& names) {
    Foresight foresight(table_, store_.get(), log_);
    for (const CodeName& name : names) {
      foresight.take(name);
      foresight.on_load(name);
    }
    while (foresight.step()) {
    }
  }
  static int look_ahead(Foresight& foresight) {
    const int before = driver().loads;
    while (foresight.step()) {
    }
    return driver().loads - before;
  }

  Log log_{"test", LogLevel::kOff};
  std::string folder_;
  driver::Table table_;
  std::unique_ptr<CodeStore> store_;
};

TEST_F(ForesightTest, WhatFollowedLastTimeIsLoadedAhead) {
  run({code(1), code(2), code(3), code(4)});
  Foresight foresight(table_, store_.get(), log_);
  EXPECT_EQ(look_ahead(foresight), 0);
  EXPECT_FALSE(foresight.take(code(1)));
  foresight.on_load(code(1));
  EXPECT_EQ(look_ahead(foresight), 3);
  const auto second = foresight.take(code(2));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->code.data(), static_cast<void*>(second->native));
  EXPECT_EQ(second->code.size(), 1001U);
  EXPECT_EQ(second->code.front(), std::byte{2});
  EXPECT_EQ(second->code.back(), std::byte{0});
  foresight.on_load(code(2));
  EXPECT_EQ(look_ahead(foresight), 0);
  EXPECT_FALSE(foresight.take(code(2)));
  EXPECT_TRUE(foresight.take(code(4)));
  EXPECT_TRUE(foresight.take(code(3)));
  EXPECT_EQ(foresight.taken(), 3U);
  // Whoever took them has them.
  EXPECT_EQ(driver().libraries.size(), 3U);
}

TEST_F(ForesightTest, ANameWithAnotherSizeIsAnotherOne) {
  run({code(1), code(2)});
  Foresight foresight(table_, store_.get(), log_);
  foresight.on_load(code(1));
  EXPECT_EQ(look_ahead(foresight), 1);
  CodeName other = code(2);
  ++other.bytes;
  EXPECT_FALSE(foresight.take(other));
}

TEST_F(ForesightTest, TheLastProgramIsWhatCounts) {
  run({code(1), code(2), code(3)});
  run({code(1), code(7), code(3)});
  Foresight foresight(table_, store_.get(), log_);
  foresight.on_load(code(1));
  EXPECT_EQ(look_ahead(foresight), 2);
  EXPECT_FALSE(foresight.take(code(2)));
  EXPECT_TRUE(foresight.take(code(7)));
  EXPECT_TRUE(foresight.take(code(3)));
}

TEST_F(ForesightTest, AWayOfItsOwnIsPickedUpWhereItIsKnown) {
  run({code(1), code(2), code(3)});
  run({code(5), code(6)});
  Foresight foresight(table_, store_.get(), log_);
  foresight.on_load(code(1));
  EXPECT_EQ(look_ahead(foresight), 2);
  foresight.on_load(code(5));
  EXPECT_EQ(look_ahead(foresight), 1);
  EXPECT_TRUE(foresight.take(code(6)));
}

TEST_F(ForesightTest, ACircleEnds) {
  run({code(1), code(2), code(1), code(2)});
  Foresight foresight(table_, store_.get(), log_);
  foresight.on_load(code(1));
  EXPECT_EQ(look_ahead(foresight), 1);
}

TEST_F(ForesightTest, WhatIsRefusedOrGoneIsSkipped) {
  run({code(1), code(2), code(3), code(4)});
  driver().refused_byte = 2;
  std::filesystem::remove(folder_ + "/modules/unix-1/" + to_hex(code(3).digest));
  Foresight foresight(table_, store_.get(), log_);
  foresight.on_load(code(1));
  look_ahead(foresight);
  EXPECT_FALSE(foresight.take(code(2)));
  EXPECT_TRUE(foresight.take(code(4)));
}

TEST_F(ForesightTest, WhatNobodyAskedForMakesRoom) {
  std::vector<CodeName> names;
  for (int i = 0; i < 8; ++i) names.push_back(code(i));
  run(names);
  driver() = {};
  Foresight foresight(table_, store_.get(), log_, {.ahead = 64, .bytes = 4500});
  foresight.on_load(names[0]);
  EXPECT_EQ(look_ahead(foresight), 7);
  EXPECT_EQ(driver().libraries.size(), 4U);
  EXPECT_FALSE(foresight.take(names[1]));
  EXPECT_TRUE(foresight.take(names[7]));
}

TEST_F(ForesightTest, NeverMoreThanSoManyAtOnce) {
  std::vector<CodeName> names;
  for (int i = 0; i < 30; ++i) names.push_back(code(i));
  run(names);
  driver() = {};
  Foresight foresight(table_, store_.get(), log_, {.ahead = 10, .bytes = 1 * kMiB});
  foresight.on_load(names[0]);
  EXPECT_EQ(look_ahead(foresight), 10);
  EXPECT_EQ(driver().libraries.size(), 10U);
  // Each that is asked for makes room for the next.
  EXPECT_TRUE(foresight.take(names[1]));
  foresight.on_load(names[1]);
  EXPECT_EQ(look_ahead(foresight), 1);
}

TEST_F(ForesightTest, WithoutAStoreNothingIsForeseen) {
  Foresight foresight(table_, nullptr, log_);
  foresight.on_load(code(1));
  foresight.on_load(code(2));
  EXPECT_EQ(look_ahead(foresight), 0);
  EXPECT_FALSE(foresight.take(code(2)));
}

}  // namespace
}  // namespace flyt::server
