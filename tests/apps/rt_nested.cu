// nvcc: -rdc=true
// Kernels that launch kernels: a quicksort by halves, sums that meet in a tail, and a refusal.
#include <algorithm>
#include <cstdio>
#include <vector>

constexpr int kSmall = 32;

__device__ void sort_few(int* values, int first, int last) {
  for (int i = first + 1; i <= last; ++i) {
    const int value = values[i];
    int at = i;
    for (; at > first && values[at - 1] > value; --at) values[at] = values[at - 1];
    values[at] = value;
  }
}

__global__ void quicksort(int* values, int first, int last, int depth) {
  if (last - first < kSmall || depth > 14) {
    sort_few(values, first, last);
    return;
  }
  const int pivot = values[(first + last) / 2];
  int low = first;
  int high = last;
  while (low <= high) {
    while (values[low] < pivot) ++low;
    while (values[high] > pivot) --high;
    if (low > high) break;
    const int kept = values[low];
    values[low++] = values[high];
    values[high--] = kept;
  }
  cudaStream_t left;
  cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking);
  if (first < high) quicksort<<<1, 1, 0, left>>>(values, first, high, depth + 1);
  cudaStreamDestroy(left);
  if (low < last) quicksort<<<1, 1, 0, cudaStreamFireAndForget>>>(values, low, last, depth + 1);
}

__device__ unsigned total;
__device__ unsigned seen_by_tail;
__device__ int refused;

__global__ void add(unsigned weight) { atomicAdd(&total, weight * (threadIdx.x + 1)); }
__global__ void look() { seen_by_tail = total; }

__global__ void sum() {
  if (threadIdx.x == 0) look<<<1, 1, 0, cudaStreamTailLaunch>>>();
  add<<<2, 64>>>(threadIdx.x);
  if (threadIdx.x == 0) {
    add<<<1, 4096>>>(1);
    refused = cudaGetLastError();
  }
}

int main() {
  std::vector<int> values(3000);
  unsigned state = 12345;
  for (int& value : values) value = static_cast<int>((state = state * 1664525 + 1013904223) >> 8);
  int* device = nullptr;
  cudaMalloc(&device, values.size() * sizeof(int));
  cudaMemcpy(device, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice);
  quicksort<<<1, 1>>>(device, 0, static_cast<int>(values.size()) - 1, 0);
  std::vector<int> sorted(values.size());
  cudaMemcpy(sorted.data(), device, values.size() * sizeof(int), cudaMemcpyDeviceToHost);
  std::sort(values.begin(), values.end());
  sum<<<1, 8>>>();
  unsigned seen = 0;
  int why = 0;
  cudaMemcpyFromSymbol(&seen, seen_by_tail, sizeof(seen));
  cudaMemcpyFromSymbol(&why, refused, sizeof(why));
  const cudaError_t error = cudaDeviceSynchronize();
  // 28 is the sum of the weights, 2080 that of the threads of one of two blocks.
  const bool right = error == cudaSuccess && sorted == values && seen == 28u * 2080 * 2 && why != 0;
  std::printf("rt_nested: %s, %zu values sorted, %u summed, %s (%s)\n",
              right ? "verified" : "WRONG", values.size(), seen,
              cudaGetErrorName(static_cast<cudaError_t>(why)), cudaGetErrorString(error));
  cudaFree(device);
  return right ? 0 : 1;
}
