// The kernels of the driver-API samples. kernels.ptx is this file as nvcc 13 compiles it
// (nvcc -ptx -arch=sm_75, comments removed); it is kept, so that samples build without a toolkit.
#include <cstdio>

extern "C" {

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

constexpr int kTile = 16;

__global__ void matmul_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void reduce_sum(const unsigned* in, unsigned long long* out, int n) {
  extern __shared__ unsigned long long partial[];
  unsigned long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, partial[0]);
}

__global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[data[i]], 1u);
  }
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void nbody_step(const float4* from, float4* to, float3* velocity, int n, float dt) {
  extern __shared__ float4 bodies[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 self = from[i];
  float ax = 0;
  float ay = 0;
  float az = 0;
  for (int tile = 0; tile < n; tile += blockDim.x) {
    bodies[threadIdx.x] = from[tile + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < blockDim.x; ++j) {
      const float dx = bodies[j].x - self.x;
      const float dy = bodies[j].y - self.y;
      const float dz = bodies[j].z - self.z;
      const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
      const float pull = bodies[j].w * inverse * inverse * inverse;
      ax += dx * pull;
      ay += dy * pull;
      az += dz * pull;
    }
    __syncthreads();
  }
  float3 v = velocity[i];
  v.x += ax * dt;
  v.y += ay * dt;
  v.z += az * dt;
  velocity[i] = v;
  to[i] = make_float4(self.x + v.x * dt, self.y + v.y * dt, self.z + v.z * dt, self.w);
}

__global__ void mandelbrot(unsigned short* out, int width, int height, int limit) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const double cr = -2.0 + 3.0 * x / width;
  const double ci = -1.0 + 2.0 * y / height;
  double zr = 0;
  double zi = 0;
  int steps = 0;
  while (steps < limit && zr * zr + zi * zi < 4.0) {
    const double next = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = next;
    ++steps;
  }
  out[y * width + x] = steps;
}

__global__ void bitonic_step(int* data, int j, int k) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int partner = i ^ j;
  if (partner <= i) return;
  const int a = data[i];
  const int b = data[partner];
  const bool ascending = (i & k) == 0;
  if ((a > b) == ascending) {
    data[i] = b;
    data[partner] = a;
  }
}

__global__ void scan_blocks(const int* in, int* out, int* totals) {
  __shared__ int warp_sums[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int value = in[i];
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += other;
  }
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  if (warp == 0) {
    int sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, offset);
      if (lane >= offset) sum += other;
    }
    warp_sums[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) value += warp_sums[warp - 1];
  out[i] = value;
  if (threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = value;
}

__global__ void add_offsets(int* data, const int* totals) {
  int before = 0;
  for (int block = 0; block < blockIdx.x; ++block) before += totals[block];
  data[blockIdx.x * blockDim.x + threadIdx.x] += before;
}

__global__ void scale_and_shift(float* data, int n, float scale, float shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * scale + shift;
}

__global__ void say_hello(int number) {
  printf("hello from block %d thread %d: %d, %.3f, %s\n", blockIdx.x, threadIdx.x, number,
         number * 0.5, "text");
}

__global__ void collatz(const unsigned long long* start, unsigned* steps, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long value = start[i];
  unsigned count = 0;
  while (value != 1) {
    value = value % 2 == 0 ? value / 2 : 3 * value + 1;
    ++count;
  }
  steps[i] = count;
}

__global__ void jacobi(const float* from, float* to, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int i = y * width + x;
  const bool edge = x == 0 || y == 0 || x == width - 1 || y == height - 1;
  to[i] = edge ? from[i] : 0.25f * (from[i - 1] + from[i + 1] + from[i - width] + from[i + width]);
}

__global__ void count_up(unsigned* counter) { atomicAdd(counter, 1u); }

__global__ void fourier(const float* in, float2* out, int n) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= n) return;
  float re = 0;
  float im = 0;
  for (int i = 0; i < n; ++i) {
    float s;
    float c;
    sincosf(-6.2831853f * static_cast<float>((k * i) % n) / n, &s, &c);
    re += in[i] * c;
    im += in[i] * s;
  }
  out[k] = make_float2(re, im);
}

}  // extern "C"
