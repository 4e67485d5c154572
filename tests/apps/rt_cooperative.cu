// Cooperative groups: tiles, and a grid that meets in the middle of its kernel.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;

__global__ void sum_all(const int* in, int n, int* partial, int* out) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<32>(block);
  __shared__ int warps[32];
  int sum = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += in[i];
  sum = cg::reduce(tile, sum, cg::plus<int>());
  if (tile.thread_rank() == 0) warps[tile.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) {
    int total = 0;
    for (unsigned w = 0; w < tile.meta_group_size(); ++w) total += warps[w];
    partial[blockIdx.x] = total;
  }
  grid.sync();
  if (grid.thread_rank() == 0) {
    int total = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
    *out = total;
  }
}

int main() {
  const int n = 10000;
  std::vector<int> values(n);
  int wanted = 0;
  for (int i = 0; i < n; ++i) wanted += values[i] = i % 1000 - 300;
  int *in, *partial, *out;
  cudaMalloc(&in, n * sizeof(int));
  cudaMalloc(&partial, 4 * sizeof(int));
  cudaMalloc(&out, sizeof(int));
  cudaMemcpy(in, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  int count = n;
  void* arguments[] = {&in, &count, &partial, &out};
  const cudaError_t launched =
      cudaLaunchCooperativeKernel(reinterpret_cast<void*>(sum_all), 4, 128, arguments);
  int sum = 0;
  cudaMemcpy(&sum, out, sizeof(int), cudaMemcpyDeviceToHost);
  const bool right = launched == cudaSuccess && sum == wanted;
  std::printf("rt_cooperative: %s grid-wide sum %d (%s)\n", right ? "verified" : "WRONG", sum,
              cudaGetErrorString(launched));
  return right ? 0 : 1;
}
