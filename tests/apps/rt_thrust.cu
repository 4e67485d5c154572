// Thrust and CUB: sort, scan, reduce by key of nothing but library calls.
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

int main() {
  const int n = 3000;
  std::vector<int> values(n);
  unsigned state = 1;
  for (int& value : values) value = (state = state * 1664525u + 1013904223u) >> 12;
  thrust::device_vector<int> device(values.begin(), values.end());
  thrust::sort(device.begin(), device.end());
  std::vector<int> sorted(n);
  thrust::copy(device.begin(), device.end(), sorted.begin());
  std::sort(values.begin(), values.end());
  bool right = sorted == values;
  for (int& value : values) value %= 100;
  device = values;
  const int sum = thrust::reduce(device.begin(), device.end());
  right = right && sum == std::accumulate(values.begin(), values.end(), 0);
  thrust::inclusive_scan(device.begin(), device.end(), device.begin());
  std::vector<int> scanned(n);
  thrust::copy(device.begin(), device.end(), scanned.begin());
  std::partial_sum(values.begin(), values.end(), values.begin());
  right = right && scanned == values;
  std::printf("rt_thrust: %s sort, reduce and scan of %d\n", right ? "verified" : "WRONG", n);
  return right ? 0 : 1;
}
