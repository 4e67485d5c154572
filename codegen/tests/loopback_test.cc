// Generated client code against generated server code, over the golden description: one call of
// every class and one parameter of every kind really runs, with a driver of a few lines behind it.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/call.h"
#include "client/hooks_sample.h"
#include "client/trace.h"
#include "commands/sample.h"
#include "cuda/default_stream.h"
#include "cuda/functions.h"
#include "driver/table.h"
#include "server/hooks_sample.h"
#include "server/request.h"

namespace {

struct World {
  std::set<Thing> client_things;
  std::map<Thing, Thing> server_things;
  std::vector<float> written;
  std::optional<Point> written_at;
  std::string written_name;
  std::string refused;
  CUresult entered = CUDA_SUCCESS;
  flyt::client::Needs needed{};
  bool per_thread = false;
  bool tracing = false;
  std::vector<std::string> traced;
  unsigned next = 1;
  flyt::driver::Table driver;
};

World& world() {
  static World the_world;
  return the_world;
}

Thing thing_at(std::uint64_t number) { return static_cast<Thing>(flyt::pointer_at(number)); }
std::uint64_t number_of(Thing thing) { return flyt::address_of(thing); }

bool per_thread_scope = false;

}  // namespace

namespace flyt::cuda {

PerThreadDefaultStream::PerThreadDefaultStream() : before_(per_thread_scope) {
  per_thread_scope = true;
}
PerThreadDefaultStream::~PerThreadDefaultStream() { per_thread_scope = before_; }

}  // namespace flyt::cuda

namespace flyt::client {

bool tracing() { return world().tracing; }
std::vector<std::string>& traced_calls() { return world().traced; }

CUresult enter(Needs needs) {
  world().needed = needs;
  return world().entered;
}
CUresult check(Thing thing) {
  return world().client_things.contains(thing) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult make(Thing& thing) {
  thing = thing_at(world().next++ * 16);
  world().client_things.insert(thing);
  return CUDA_SUCCESS;
}
void forget(Thing thing) { world().client_things.erase(thing); }
CUresult refused(const char* name, const char* reason) {
  world().refused = std::string(name) + ": " + reason;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult exchange(std::uint16_t op, Bytes payload, std::vector<std::byte>& fields) {
  const server::HandlerRow* row = server::find_handler(op);
  if (row == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  server::Answer answer;
  row->run(server::Request(payload, answer));
  EXPECT_TRUE(answer.given || answer.malformed) << row->name;
  fields = answer.fields;
  return answer.malformed ? CUDA_ERROR_INVALID_VALUE : answer.result;
}

}  // namespace flyt::client

namespace flyt::client::hooks {

CUresult sampleVersion(int* version) {
  *version = 1000;
  return CUDA_SUCCESS;
}
CUresult sampleFill(ThingAddress, unsigned char value, size_t count, Thing thing) {
  world().per_thread = per_thread_scope;
  return post(commands::Fill{.to = 64, .value = value, .count = count, .thing = thing});
}
CUresult sampleName(char* name, int bytes, Thing thing) {
  commands::ThingName::Reply reply;
  rpc::Reply answer;
  const CUresult result = call(commands::ThingName{.thing = thing}, reply, answer);
  std::string(reply.name).copy(name, static_cast<std::size_t>(bytes));
  return result;
}

}  // namespace flyt::client::hooks

namespace flyt::server {

bool Request::resolve(Thing& thing) const {
  const auto found = world().server_things.find(thing);
  if (found == world().server_things.end()) return false;
  thing = found->second;
  return true;
}
bool Request::take(Thing& thing) {
  const Thing client = thing;
  return resolve(thing) && world().server_things.erase(client) == 1;
}
bool Request::adopt(Thing client, Thing native) {
  return world().server_things.emplace(client, native).second;
}
const driver::Table& Request::driver() const { return world().driver; }

}  // namespace flyt::server

namespace flyt::server::hooks {

CUresult fill(Request&, const commands::Fill& command) {
  return command.count == 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult set_weights(Request&, const commands::SetWeights&) { return CUDA_SUCCESS; }
CUresult find_thing(Request&, const commands::FindThing& command,
                    commands::FindThing::Reply& reply) {
  reply.index = command.name.size();
  reply.at = command.near.value_or(Point{});
  return CUDA_SUCCESS;
}
void thing_name(Request request, const commands::ThingName&) {
  const std::string name = "thing";
  request.reply(CUDA_SUCCESS, commands::ThingName::Reply{.name = name});
}
void wait(Request request, const commands::Wait&) { request.reply(CUDA_SUCCESS); }

}  // namespace flyt::server::hooks

namespace {

// The driver: what a handler calls after it has checked and translated everything.
void* find_function(void*, const char* name) {
  static const std::map<std::string, void*> functions = {
      {"sampleCreate", reinterpret_cast<void*>(+[](Thing* thing, unsigned flags) {
         if (flags == 99) return CUDA_ERROR_INVALID_VALUE;
         *thing = thing_at(1600 + 16 * flags);
         return CUDA_SUCCESS;
       })},
      {"sampleDestroy_v2", reinterpret_cast<void*>(+[](Thing) { return CUDA_SUCCESS; })},
      {"samplePosition", reinterpret_cast<void*>(+[](Point* point, int* axis, Thing thing) {
         point->y = static_cast<double>(number_of(thing));
         *axis = 2;
         return CUDA_SUCCESS;
       })},
      {"sampleRead", reinterpret_cast<void*>(+[](float* values, unsigned count, Thing) {
         for (unsigned i = 0; i < count; ++i) values[i] = static_cast<float>(i);
         return CUDA_SUCCESS;
       })},
      {"sampleWrite",
       reinterpret_cast<void*>(+[](float* values, size_t count, const Point* at, const char* text) {
         world().written.assign(values, values + count);
         world().written_at = at ? std::optional(*at) : std::nullopt;
         world().written_name = text;
         return CUDA_SUCCESS;
       })},
      {"sampleLimit", reinterpret_cast<void*>(+[](size_t* value, Kind kind) {
         *value = static_cast<size_t>(kind) + 41;
         return CUDA_SUCCESS;
       })},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

class Loopback : public testing::Test {
 protected:
  void SetUp() override {
    world() = World{};
    flyt::driver::fill(
        world().driver, find_function, nullptr, [](void*, std::string_view) {}, nullptr);
    ASSERT_EQ(sampleCreate(&thing_, 7), CUDA_SUCCESS);
  }
  Thing thing_ = nullptr;
};

TEST_F(Loopback, MakesHandlesAtTheClientAndBindsThemAtTheServer) {
  EXPECT_EQ(world().server_things.at(thing_), thing_at(1600 + 16 * 7));
  EXPECT_EQ(world().needed, flyt::client::Needs::kContext);
}

TEST_F(Loopback, ATraceSeesEveryExportUnderItsOwnName) {
  world().tracing = true;
  std::size_t limit = 0;
  EXPECT_EQ(sampleFill_ptsz(64, 1, 3, thing_), CUDA_SUCCESS);
  EXPECT_TRUE(world().per_thread);
  EXPECT_EQ(sampleDream(nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(sampleLimit(&limit, Kind{}), CUDA_SUCCESS);
  EXPECT_EQ(world().traced,
            (std::vector<std::string>{"sampleFill_ptsz", "sampleDream", "sampleLimit"}));
}

TEST_F(Loopback, ForgetsAHandleThatTheServerCouldNotMake) {
  Thing other = thing_at(5);
  EXPECT_EQ(sampleCreate(&other, 99), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(other, thing_at(5));
  EXPECT_EQ(world().client_things.size(), 1U);
}

TEST_F(Loopback, EndsHandlesOnBothSides) {
  EXPECT_EQ(sampleOld(thing_), CUDA_SUCCESS);
  EXPECT_TRUE(world().client_things.empty());
  EXPECT_TRUE(world().server_things.empty());
  EXPECT_EQ(sampleDestroy_v2(thing_), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Loopback, RefusesMissingPointersAtOnce) {
  int axis = 0;
  EXPECT_EQ(sampleCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(samplePosition(nullptr, &axis, thing_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sampleRead(nullptr, 1, thing_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sampleWrite(nullptr, 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Loopback, BringsStructsBackAndLeavesOutWhatNobodyWants) {
  Point point{};
  int axis = 0;
  EXPECT_EQ(samplePosition(&point, &axis, thing_), CUDA_SUCCESS);
  EXPECT_EQ(point.y, 1600 + 16 * 7);
  EXPECT_EQ(axis, 2);
  EXPECT_EQ(samplePosition(&point, nullptr, thing_), CUDA_SUCCESS);
}

TEST_F(Loopback, BringsArraysBackAndRefusesThemAboveTheirLimit) {
  std::vector<float> values(17, -1.0F);
  EXPECT_EQ(sampleRead(values.data(), 3, thing_), CUDA_SUCCESS);
  EXPECT_EQ(values[2], 2.0F);
  EXPECT_EQ(values[3], -1.0F);
  EXPECT_EQ(sampleRead(values.data(), 17, thing_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sampleRead(nullptr, 0, thing_), CUDA_SUCCESS);
}

TEST_F(Loopback, SendsArraysTextAndOptionalStructs) {
  float values[] = {1.0F, 2.0F};
  Point at{};
  at.x = 4.0F;
  EXPECT_EQ(sampleWrite(values, 2, &at, "name"), CUDA_SUCCESS);
  EXPECT_EQ(world().written, (std::vector<float>{1.0F, 2.0F}));
  EXPECT_EQ(world().written_at.value().x, 4.0F);
  EXPECT_EQ(world().written_name, "name");
  EXPECT_EQ(sampleWrite(values, 2, nullptr, "name"), CUDA_SUCCESS);
  EXPECT_FALSE(world().written_at.has_value());
  EXPECT_EQ(sampleWrite(values, 2, nullptr, std::string(5000, 'x').c_str()),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Loopback, RefusesAnArrayWhoseLengthDisagreesWithItsCount) {
  const float values[] = {1.0F};
  flyt::commands::Write::Reply reply;
  const flyt::commands::Write command{
      .values = flyt::wire::List<float>(std::span<const float>(values)), .count = 9, .name = "x"};
  EXPECT_EQ(flyt::client::call(command, reply), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(world().written.empty());
}

TEST_F(Loopback, RefusesForgedHandlesAtTheServerToo) {
  flyt::commands::Position::Reply reply;
  const flyt::commands::Position command{.thing = thing_at(4711 * 16)};
  EXPECT_EQ(flyt::client::call(command, reply), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Loopback, RunsHooksOnBothSides) {
  int version = 0;
  EXPECT_EQ(sampleVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(world().needed, flyt::client::Needs::kNothing);
  EXPECT_EQ(version, 1000);
  EXPECT_EQ(sampleFill(1, 2, 3, thing_), CUDA_SUCCESS);
  EXPECT_FALSE(world().per_thread);
  EXPECT_EQ(sampleWait(thing_), CUDA_SUCCESS);
  char name[8] = {};
  EXPECT_EQ(sampleName(name, 8, thing_), CUDA_SUCCESS);
  EXPECT_STREQ(name, "thing");
}

TEST_F(Loopback, RunsVariantsWithinAPerThreadScope) {
  EXPECT_EQ(sampleFill_ptsz(1, 2, 3, thing_), CUDA_SUCCESS);
  EXPECT_TRUE(world().per_thread);
  EXPECT_FALSE(per_thread_scope);
}

TEST_F(Loopback, AnswersCachedLocalAndRefusedCalls) {
  size_t limit = 0;
  EXPECT_EQ(sampleLimit(&limit, KIND_SMALL), CUDA_SUCCESS);
  EXPECT_EQ(limit, 42U);
  EXPECT_EQ(world().needed, flyt::client::Needs::kInit);
  EXPECT_EQ(sampleLuid(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sampleDream(nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(world().refused, "sampleDream: nobody asked for it yet");
}

TEST_F(Loopback, DoesNothingWhereEnteringIsRefused) {
  world().entered = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(sampleDestroy_v2(thing_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(world().server_things.size(), 1U);
}

}  // namespace
