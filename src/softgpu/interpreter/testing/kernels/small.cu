// Kernels of programs_test.cc. The .ptx files beside it were made by nvcc 13.0 and are committed,
// so that the test needs no toolkit:
//   nvcc -ptx -arch=sm_80 -O3 small.cu -o optimized.ptx
//   nvcc -ptx -arch=sm_90 -G  small.cu -o debug.ptx
#include <cuda_fp16.h>

#include <cstdio>

__device__ int table[4] = {1, 2, 3, 4};
__constant__ float weights[2] = {0.5f, 2.0f};
__device__ int twice(int x) { return 2 * x; }
__device__ int thrice(int x) { return 3 * x; }
__device__ int (*chosen[2])(int) = {twice, thrice};

extern "C" __global__ void pick(int* out) {
  const int i = threadIdx.x;
  out[i] = chosen[i & 1](i) + table[i & 3];
}

extern "C" __global__ void warp_sum(const int* in, int* out) {
  __shared__ int parts[32];
  int v = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int d = 16; d != 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) sum += parts[i];
    atomicAdd(out, sum);
  }
}

extern "C" __global__ void halves(const __half2* a, __half2* b, float* c) {
  const int i = threadIdx.x;
  b[i] = __hfma2(a[i], a[i], b[i]);
  c[i] = weights[i & 1] * __low2float(b[i]) / (1.0f + expf(__high2float(b[i])));
}

extern "C" __global__ void cases(int* d) {
  int r;
  switch (d[threadIdx.x]) {
    case 0:
      r = 4;
      break;
    case 1:
      r = 9;
      break;
    case 2:
      r = -7;
      break;
    case 3:
      r = d[threadIdx.x] * 3;
      break;
    case 4:
      r = 11;
      break;
    case 5:
      r = threadIdx.x;
      break;
    default:
      r = 1;
  }
  d[threadIdx.x] = r;
}

extern "C" __global__ void speak(int n) {
  if (threadIdx.x == 0) printf("%d %s %5.2f\n", n, "words", n * 0.25);
}

extern "C" __global__ void spill(int* out, int n) {
  int a[32];
  for (int i = 0; i < 32; ++i) a[i] = i * n;
  for (int i = 0; i < n; ++i) a[(i * 7) & 31] += a[(i * 3) & 31];
  int s = 0;
  for (int i = 0; i < 32; ++i) s ^= a[i];
  out[threadIdx.x] = s;
}

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recurse(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x); }

struct Shape {
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Box : Shape {
  float width, height;
  __device__ Box(float w, float h) : width(w), height(h) {}
  __device__ float area() const override { return width * height; }
};

extern "C" __global__ void shapes(float* out) {
  // lint: allow(memory): what a kernel allocates and frees is what the test is about.
  Shape* shape = threadIdx.x % 2 == 0 ? static_cast<Shape*>(new Square(threadIdx.x))
                                      // lint: allow(memory): as above, the other class.
                                      : static_cast<Shape*>(new Box(threadIdx.x, 3));
  out[threadIdx.x] = shape->area();
  // lint: allow(memory): freed on the device, by its own heap.
  delete shape;
}

extern "C" __global__ void tile(const float* a, const float* b, float* c, int n) {
  __shared__ float left[16][16], right[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0;
  for (int t = 0; t < n / 16; ++t) {
    left[y][x] = a[row * n + t * 16 + x];
    right[y][x] = b[(t * 16 + y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
