// What goes wrong is reported as the runtime promises: at once, or at the next wait.
#include <cstdio>

__global__ void nothing() {}
__global__ void wild() { *reinterpret_cast<volatile int*>(16) = 1; }

int main() {
  bool right = true;
  nothing<<<1, 2048>>>();
  right = right && cudaGetLastError() == cudaErrorInvalidValue;
  right = right && cudaGetLastError() == cudaSuccess;
  void* pointer = nullptr;
  right = right && cudaMalloc(&pointer, ~size_t{0} / 2) == cudaErrorMemoryAllocation;
  cudaGetLastError();
  right = right && cudaMemcpy(nullptr, &right, 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue;
  cudaGetLastError();
  nothing<<<1, 1>>>();
  right = right && cudaDeviceSynchronize() == cudaSuccess;
  wild<<<1, 1>>>();
  const cudaError_t fault = cudaDeviceSynchronize();
  right = right && fault == cudaErrorIllegalAddress;
  right = right && cudaMalloc(&pointer, 16) == cudaErrorIllegalAddress;
  std::printf("rt_errors: %s %s\n", right ? "verified" : "WRONG", cudaGetErrorString(fault));
  return right ? 0 : 1;
}
