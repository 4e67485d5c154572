// Lobby: who has said a whole hello leaves, who takes too long or is one too many goes.
#include "server/parent/lobby.h"

#include <gtest/gtest.h>

#include "base/testing/hand_clock.h"
#include "wire/hello.h"

namespace flyt::server {
namespace {

class LobbyTest : public ::testing::Test {
 protected:
  // The far end of a connection that is in the lobby, if it was let in.
  std::unique_ptr<transport::Connection> come() {
    auto pair = transport::connection_pair();
    EXPECT_TRUE(pair.ok());
    out = lobby.enter(std::move(pair->first), true);
    return std::move(pair->second);
  }
  static void say(transport::Connection& connection, Bytes bytes) {
    const auto sent = connection.write({&bytes, 1}, transport::Patience::kWait);
    ASSERT_TRUE(sent.ok());
    ASSERT_EQ(*sent, bytes.size());
  }

  HandClock clock;
  Lobby lobby{clock};
  std::unique_ptr<transport::Connection> out;
  const std::vector<std::byte> hello = wire::encode(wire::ClientHello{});
};

TEST_F(LobbyTest, AWholeHelloLeavesAndIsStillThereToRead) {
  const auto client = come();
  say(*client, Bytes(hello).first(10));
  EXPECT_TRUE(lobby.leave().ready.empty());
  say(*client, Bytes(hello).subspan(10, hello.size() - 11));
  EXPECT_TRUE(lobby.leave().ready.empty());
  say(*client, Bytes(hello).last(1));
  const auto leaving = lobby.leave();
  ASSERT_EQ(leaving.ready.size(), 1U);
  EXPECT_TRUE(leaving.ready[0].share);
  EXPECT_EQ(lobby.size(), 0U);
  std::vector<std::byte> read(hello.size());
  const MutableBytes into(read);
  const auto got = leaving.ready[0].connection->read({&into, 1}, transport::Patience::kNow);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, hello.size());
}

TEST_F(LobbyTest, WhatWillNeverBeAHelloLeavesToBeRefused) {
  const auto client = come();
  say(*client, std::vector<std::byte>(wire::kHelloPrefixBytes, std::byte{7}));
  EXPECT_EQ(lobby.leave().ready.size(), 1U);
}

TEST_F(LobbyTest, WhoTakesTooLongGoes) {
  const auto silent = come();
  EXPECT_GT(lobby.timeout_ms(), 9000);
  clock.pass(Lobby::kWaitMax / 2);
  const auto slow = come();
  say(*slow, Bytes(hello).first(hello.size() - 1));
  EXPECT_TRUE(lobby.leave().late.empty());
  EXPECT_LT(lobby.timeout_ms(), 100);
  clock.pass(Lobby::kWaitMax / 2);
  EXPECT_EQ(lobby.leave().late.size(), 1U);
  EXPECT_EQ(lobby.size(), 1U);
  clock.pass(Lobby::kWaitMax);
  EXPECT_EQ(lobby.leave().late.size(), 1U);
  EXPECT_EQ(lobby.timeout_ms(), -1);
}

TEST_F(LobbyTest, WhoWaitsForAPlaceComesBeforeOthers) {
  const auto first = come();
  say(*first, hello);
  auto leaving = lobby.leave();
  ASSERT_EQ(leaving.ready.size(), 1U);
  Lobby::Guest guest = std::move(leaving.ready.front());
  EXPECT_FALSE(guest.held_until);
  guest.held_until = clock.now() + std::chrono::milliseconds(50);
  const transport::Connection* const waits = guest.connection.get();
  EXPECT_TRUE(lobby.hold(guest));
  EXPECT_EQ(lobby.size(), 1U);
  EXPECT_LE(lobby.timeout_ms(), 51);
  std::vector<pollfd> wanted;
  lobby.add_to(wanted);
  EXPECT_TRUE(wanted.empty());
  const auto second = come();
  say(*second, hello);
  leaving = lobby.leave();
  ASSERT_EQ(leaving.ready.size(), 2U);
  EXPECT_EQ(leaving.ready.front().connection.get(), waits);
  EXPECT_TRUE(leaving.ready.front().held_until);
  EXPECT_EQ(lobby.size(), 0U);
}

TEST_F(LobbyTest, SoManyWaitForAPlaceOnly) {
  std::vector<std::unique_ptr<transport::Connection>> clients;
  for (std::size_t i = 0; i <= Lobby::kHeldMax; ++i) {
    clients.push_back(come());
    say(*clients.back(), hello);
    auto leaving = lobby.leave();
    ASSERT_FALSE(leaving.ready.empty());
    for (Lobby::Guest& guest : leaving.ready) {
      guest.held_until = clock.now();
      const bool room = lobby.size() < Lobby::kHeldMax;
      EXPECT_EQ(lobby.hold(guest), room);
    }
  }
}

TEST_F(LobbyTest, OneOfEachSessionThatGoesOnWaitsHoweverManyOthersDo) {
  std::vector<std::unique_ptr<transport::Connection>> clients;
  std::vector<Lobby::Guest> guests;
  for (std::size_t i = 0; i < Lobby::kHeldMax + 3; ++i) {
    clients.push_back(come());
    say(*clients.back(), hello);
    guests.push_back(std::move(lobby.leave().ready.front()));
    guests.back().held_until = clock.now() + Lobby::kWaitMax;
  }
  for (std::size_t i = 0; i < Lobby::kHeldMax; ++i) EXPECT_TRUE(lobby.hold(guests[i]));
  EXPECT_GT(lobby.timeout_ms(), 1000);
  Lobby::Guest* const late = &guests[Lobby::kHeldMax];
  EXPECT_FALSE(lobby.hold(late[0]));
  for (int i = 0; i < 3; ++i) late[i].goes_on = i < 2 ? 7 : 8;
  EXPECT_TRUE(lobby.hold(late[0]));
  EXPECT_TRUE(lobby.holds(7));
  EXPECT_FALSE(lobby.hold(late[1]));
  EXPECT_FALSE(lobby.holds(8));
  EXPECT_TRUE(lobby.hold(late[2]));
  // Whether the process has gone that it had.
  EXPECT_LT(lobby.timeout_ms(), 20);
}

TEST_F(LobbyTest, WhoHasGoneIsForgotten) {
  come().reset();
  const auto leaving = lobby.leave();
  EXPECT_TRUE(leaving.ready.empty());
  EXPECT_TRUE(leaving.late.empty());
  EXPECT_EQ(lobby.size(), 0U);
}

TEST_F(LobbyTest, WhoHasGoneAfterAHelloIsForgottenWholeOrNot) {
  for (const std::size_t said : {std::size_t{1}, hello.size() - 1, hello.size()}) {
    auto client = come();
    say(*client, Bytes(hello).first(said));
    client.reset();
    const auto leaving = lobby.leave();
    EXPECT_TRUE(leaving.ready.empty()) << said;
    EXPECT_EQ(leaving.gone.size(), 1U) << said;
  }
}

TEST_F(LobbyTest, WhoGoesWhileWaitingForAPlaceIsForgotten) {
  auto client = come();
  say(*client, hello);
  Lobby::Guest guest = std::move(lobby.leave().ready.front());
  guest.held_until = clock.now() + Lobby::kWaitMax;
  ASSERT_TRUE(lobby.hold(guest));
  client.reset();
  const auto leaving = lobby.leave();
  EXPECT_TRUE(leaving.ready.empty());
  EXPECT_EQ(leaving.gone.size(), 1U);
  EXPECT_EQ(lobby.size(), 0U);
}

TEST_F(LobbyTest, OnePeerHasRoomForSoManyOnly) {
  std::vector<std::unique_ptr<transport::Connection>> clients;
  for (std::size_t i = 0; i < Lobby::kWaitingOfOneMax; ++i) {
    clients.push_back(come());
    EXPECT_EQ(out, nullptr);
  }
  const auto client = come();
  EXPECT_NE(out, nullptr);
  EXPECT_EQ(lobby.size(), Lobby::kWaitingOfOneMax);
}

TEST_F(LobbyTest, WhoHasWaitedLongestGivesWay) {
  EXPECT_EQ(lobby.give_way(), nullptr);
  const auto first = come();
  const auto second = come();
  lobby.give_way().reset();
  EXPECT_EQ(lobby.size(), 1U);
  EXPECT_NE(first->wait(transport::kHangup, {0}, nullptr) & transport::kHangup, 0);
  EXPECT_EQ(second->wait(transport::kHangup, {0}, nullptr), transport::kNothing);
}

TEST_F(LobbyTest, WhoWaitsForAPlaceGivesWayAfterThoseWhoSayNothing) {
  const auto polite = come();
  say(*polite, hello);
  Lobby::Guest guest = std::move(lobby.leave().ready.front());
  guest.held_until = clock.now() + Lobby::kWaitMax;
  const transport::Connection* const held = guest.connection.get();
  ASSERT_TRUE(lobby.hold(guest));
  const auto silent = come();
  EXPECT_NE(lobby.give_way().get(), held);
  EXPECT_EQ(lobby.give_way().get(), held);
  EXPECT_EQ(lobby.size(), 0U);
}

TEST_F(LobbyTest, ThoseWhoSayNothingDoNotKeepOutTheOthersOfTheirPeer) {
  std::vector<std::unique_ptr<transport::Connection>> silent;
  for (std::size_t i = 0; i < Lobby::kWaitingOfOneMax; ++i) silent.push_back(come());
  const auto client = come();
  say(*client, hello);
  EXPECT_EQ(lobby.leave().ready.size(), 1U);
  // It went for that one: its far end is closed once `out` is.
  out.reset();
  EXPECT_NE(silent.front()->wait(transport::kHangup, {0}, nullptr) & transport::kHangup, 0);
  EXPECT_EQ(silent.back()->wait(transport::kHangup, {0}, nullptr), transport::kNothing);
}

}  // namespace
}  // namespace flyt::server
