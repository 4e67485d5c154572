// A picture of a graph, in the language of Graphviz.
#include <fstream>
#include <string>

#include "softgpu/abi/graph_enter.h"

namespace flyt::softgpu {
namespace {

const char* name_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return "EXT_SEMAS_SIGNAL";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "EXT_SEMAS_WAIT";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
  }
  return "?";
}

std::string hex(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value % 16]);
    value /= 16;
  } while (value != 0);
  return "0x" + text;
}

std::string shape(const std::array<unsigned, 3>& of) {
  return std::to_string(of[0]) + "x" + std::to_string(of[1]) + "x" + std::to_string(of[2]);
}

// Text between quotes of a label.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// Draws one graph after the other, each in a cluster of its own.
class Picture {
 public:
  Picture(std::ostream& out, unsigned flags) : out_(out), flags_(flags) {}

  void draw(const Graph& graph) {
    out_ << "digraph dot {\n";
    draw_cluster(graph);
    out_ << "}\n";
  }

 private:
  bool wants(unsigned flag) const {
    return (flags_ & (flag | unsigned{CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE})) != 0;
  }

  void draw_cluster(const Graph& graph) {
    const std::string name = "graph_" + std::to_string(++graphs_);
    out_ << "subgraph cluster_" << graphs_ << " {\n";
    out_ << "label=\"" << name;
    if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) out_ << "\\n" << hex(graph.handle());
    out_ << "\";\n";
    std::map<const GraphNode*, std::string> names;
    for (const auto& node : graph.nodes()) {
      const std::string own = name + "_node_" + std::to_string(names.size());
      names[node.get()] = own;
      out_ << "\"" << own << "\"[shape=\"rectangle\" label=\"" << label(*node) << "\"];\n";
    }
    for (const auto& node : graph.nodes()) {
      for (const Edge& edge : node->dependents) {
        out_ << "\"" << names[node.get()] << "\" -> \"" << names[edge.node] << "\"";
        if (!plain(edge.data)) out_ << "[style=\"dashed\"]";
        out_ << ";\n";
      }
    }
    for (const auto& node : graph.nodes()) draw_inner(node->work);
    out_ << "}\n";
  }

  void draw_inner(const Work& work) {
    if (const auto* child = std::get_if<ChildWork>(&work)) draw_cluster(*child->graph);
    if (const auto* conditional = std::get_if<ConditionalWork>(&work)) {
      for (const auto& body : conditional->bodies) draw_cluster(*body);
    }
  }

  std::string label(const GraphNode& node) const {
    std::string text = name_of(type_of(node.work));
    if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) text += "\\n" + hex(node.handle);
    if (const auto* kernel = std::get_if<KernelWork>(&node.work)) {
      text += "\\n" + quoted(kernel->function->code().name);
      if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) {
        text += "\\n" + shape(kernel->request.grid) + " blocks of " + shape(kernel->request.block) +
                ", " + std::to_string(kernel->request.shared_bytes) + " bytes shared";
      }
    }
    const auto* copy = std::get_if<CopyWork>(&node.work);
    if (copy != nullptr && wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) {
      text += "\\n" + hex(copy->request.from.address) + " to " + hex(copy->request.to.address) +
              ", " + std::to_string(copy->request.extent.width) + " bytes, " +
              std::to_string(copy->request.extent.height) + " rows, " +
              std::to_string(copy->request.extent.depth) + " slices";
    }
    const auto* fill = std::get_if<FillWork>(&node.work);
    if (fill != nullptr && wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) {
      text += "\\n" + hex(fill->params.value) + " to " + hex(fill->params.dst) + ", " +
              std::to_string(fill->params.width) + " elements of " +
              std::to_string(fill->params.elementSize) + " bytes, " +
              std::to_string(fill->params.height) + " rows";
    }
    const auto* alloc = std::get_if<AllocWork>(&node.work);
    if (alloc != nullptr && wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS)) {
      text +=
          "\\n" + std::to_string(alloc->params.bytesize) + " bytes at " + hex(alloc->params.dptr);
    }
    const auto* free = std::get_if<FreeWork>(&node.work);
    if (free != nullptr && wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS)) {
      text += "\\n" + hex(free->address);
    }
    return text;
  }

  std::ostream& out_;
  const unsigned flags_;
  unsigned graphs_ = 0;
};

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  return with_graph(hGraph, [&](Driver&, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::ofstream file(path, std::ios::trunc);
    Picture(file, flags).draw(*graph);
    file.close();
    return file.good() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}

}  // extern "C"
