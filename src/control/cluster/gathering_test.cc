#include "control/cluster/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace flyt::cluster {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;

TEST(Gathering, OneAloneIsDoneAtOnce) {
  Gathering<int> gathering;
  int item = 7;
  gathering.join(item, 8, [](const std::vector<int*>& all) {
    for (int* one : all) *one += 1;
  });
  EXPECT_EQ(item, 8);
}

// The first one is held until the others stand there: only then is there somebody to gather.
TEST(Gathering, WhoCameMeanwhileIsDoneTogether) {
  Gathering<int> gathering;
  std::vector<std::size_t> sizes;
  std::vector<int> items(6, 0);
  std::vector<std::thread> threads;
  const auto add = [&](const std::vector<int*>& all) {
    sizes.push_back(all.size());
    for (int* one : all) *one += 1;
  };
  gathering.join(items[0], 8, [&](const std::vector<int*>& all) {
    add(all);
    for (std::size_t i = 1; i < items.size(); ++i) {
      threads.emplace_back([&, i] { gathering.join(items[i], 8, add); });
    }
    while (gathering.waiting() != items.size() - 1) std::this_thread::yield();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(items, Each(1));
  EXPECT_THAT(sizes, ElementsAre(1, 5));
}

TEST(Gathering, NobodyDoesMoreThanTheMostAtOnceAndAllAreDone) {
  Gathering<int> gathering;
  std::atomic<int> inside = 0;
  std::vector<std::size_t> sizes;
  std::vector<int> items(64, 0);
  std::vector<std::thread> threads;
  for (int& item : items) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 100; ++turn) {
        gathering.join(item, 3, [&](const std::vector<int*>& all) {
          EXPECT_EQ(++inside, 1);
          sizes.push_back(all.size());
          for (int* one : all) *one += 1;
          --inside;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(items, Each(100));
  EXPECT_THAT(sizes, Each(Le(3u)));
}

}  // namespace
}  // namespace flyt::cluster
