#include "server/graphs/graph_image.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

std::shared_ptr<NodeImage> node(CUgraphNodeType type, std::size_t data_bytes = 0) {
  auto made = std::make_shared<NodeImage>();
  made->params.type = type;
  made->data.assign(data_bytes, std::byte{0x5a});
  return made;
}

CUgraphNode native(std::uint64_t number) { return static_cast<CUgraphNode>(pointer_at(number)); }

// Kernel, child (fill, kernel), empty.
std::shared_ptr<GraphImage> sample() {
  auto inner = std::make_shared<GraphImage>();
  inner->native = static_cast<CUgraph>(pointer_at(0x500));
  inner->nodes = {node(CU_GRAPH_NODE_TYPE_MEMSET), node(CU_GRAPH_NODE_TYPE_KERNEL, 12)};
  inner->natives = {native(0x20), native(0x21)};
  inner->edges = {{0, 1, {}}};
  auto child = node(CU_GRAPH_NODE_TYPE_GRAPH);
  child->child = inner;
  auto image = std::make_shared<GraphImage>();
  auto kernel = node(CU_GRAPH_NODE_TYPE_KERNEL, 5);
  kernel->attributes_known = 0x11;
  kernel->attributes.emplace_back(4, CUkernelNodeAttrValue{});
  kernel->attributes[0].second.priority = -3;
  image->nodes = {kernel, child, node(CU_GRAPH_NODE_TYPE_EMPTY)};
  image->natives = {native(0x10), native(0x11), native(0x12)};
  image->edges = {{2, 0, {}}, {0, 1, {}}};
  image->edges[1].data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  return image;
}

ImageNames numbers() {
  return {[](CUgraphNode of, std::uint64_t) { return address_of(of) + 1000; },
          [](CUgraph of, std::uint64_t around) { return address_of(of) + around; }};
}

std::vector<std::byte> written(const GraphImage& image, const GraphImage* naming) {
  std::vector<std::byte> bytes;
  write_image(image, naming, 77, numbers(), bytes);
  return bytes;
}

TEST(GraphImage, IsReadAsItWasWritten) {
  const auto image = sample();
  const std::vector<std::byte> bytes = written(*image, image.get());
  EXPECT_EQ(0U, bytes.size() % 8);
  Reader reader(bytes);
  const auto read = read_image(reader);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(reader.finished());
  const GraphImage& now = **read;
  EXPECT_EQ(77U, now.name);
  EXPECT_EQ((std::vector<std::uint64_t>{0x10 + 1000, 0x11 + 1000, 0x12 + 1000}), now.names);
  EXPECT_TRUE(same_shape(*image, now));
  EXPECT_EQ(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, now.edges[1].data.type);
  EXPECT_EQ(image->nodes[0]->data, now.nodes[0]->data);
  EXPECT_EQ(0x11U, now.nodes[0]->attributes_known);
  ASSERT_EQ(1U, now.nodes[0]->attributes.size());
  EXPECT_EQ(4U, now.nodes[0]->attributes[0].first);
  EXPECT_EQ(-3, now.nodes[0]->attributes[0].second.priority);
  const GraphImage& inner = *now.nodes[1]->child;
  EXPECT_EQ(0x500U + 0x11 + 1000, inner.name);
  EXPECT_EQ((std::vector<std::uint64_t>{0x20 + 1000, 0x21 + 1000}), inner.names);
  // By nobody's names it has none.
  const std::vector<std::byte> nameless = written(*image, nullptr);
  Reader again(nameless);
  EXPECT_EQ((std::vector<std::uint64_t>{0, 0, 0}), (*read_image(again))->names);
}

TEST(GraphImage, IsNotTrusted) {
  const auto image = sample();
  const std::vector<std::byte> bytes = written(*image, image.get());
  for (std::size_t size = 0; size < bytes.size(); size += 4) {
    Reader reader(Bytes(bytes).first(size));
    EXPECT_FALSE(read_image(reader).ok()) << size;
  }
  // Any word may be anything: read, or refused.
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::vector<std::byte> wrong = bytes;
    std::fill_n(wrong.begin() + static_cast<std::ptrdiff_t>(at), 8, std::byte{0xff});
    Reader reader(wrong);
    static_cast<void>(read_image(reader));
  }
}

TEST(GraphImage, HasPlacesForNodesOfChildren) {
  const auto image = sample();
  EXPECT_EQ(5U, count_nodes(*image));
  EXPECT_EQ(0U, place_of(*image, native(0x10)));
  EXPECT_EQ(1U, place_of(*image, native(0x11)));
  EXPECT_EQ(2U, place_of(*image, native(0x20)));
  EXPECT_EQ(3U, place_of(*image, native(0x21)));
  EXPECT_EQ(4U, place_of(*image, native(0x12)));
  EXPECT_EQ(5U, place_of(*image, native(0x99)));
  EXPECT_EQ(image->nodes[1]->child->nodes[1].get(), node_at(*image, 3));
  EXPECT_EQ(nullptr, node_at(*image, 5));
  const auto changed = with_node(*image, 3, node(CU_GRAPH_NODE_TYPE_EMPTY));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_EMPTY, node_at(*changed, 3)->params.type);
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, node_at(*image, 3)->params.type);
  EXPECT_EQ(node_at(*image, 2), node_at(*changed, 2));
  EXPECT_FALSE(same_shape(*image, *changed));
}

TEST(GraphImage, OfACommandKeepsWhatTheCommandDoesNotName) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  void* pointer = &params;
  params.kernel.kernelParams = &pointer;
  params.kernel.gridDimX = 3;
  const Bytes bytes = bytes_at(&params, sizeof params);
  auto first = image_of_command(bytes, bytes_of("data"), nullptr, 0x77);
  EXPECT_EQ(nullptr, first->params.kernel.kernelParams);
  EXPECT_EQ(0x77U, address_of(first->params.kernel.ctx));
  EXPECT_EQ(4U, first->data.size());
  NodeImage before = *first;
  before.attributes_known = 4;
  const auto second = image_of_command(bytes, {}, &before, 0);
  EXPECT_EQ(0x77U, address_of(second->params.kernel.ctx));
  EXPECT_EQ(4U, second->attributes_known);
  params.kernel.ctx = static_cast<CUcontext>(pointer_at(0x88));
  EXPECT_EQ(0x88U, address_of(image_of_command(bytes, {}, &before, 0)->params.kernel.ctx));
}

TEST(NodeBudget, HasWhatIsLetGoAgain) {
  NodeBudget budget(2 * sizeof(NodeImage) + 100);
  const auto image = [](std::size_t bytes) {
    auto node = std::make_shared<NodeImage>();
    node->data.resize(bytes);
    return node;
  };
  auto first = budget.count(image(100));
  auto second = budget.count(image(0));
  ASSERT_NE(nullptr, first);
  ASSERT_NE(nullptr, second);
  EXPECT_EQ(100U, first->data.size());
  EXPECT_EQ(nullptr, budget.count(image(0)));
  const auto copy = std::exchange(first, nullptr);
  EXPECT_EQ(nullptr, budget.count(image(0)));
  second = nullptr;
  EXPECT_EQ(nullptr, budget.count(image(1)));
  EXPECT_NE(nullptr, budget.count(image(0)));
}

}  // namespace
}  // namespace flyt::server
