// Half and bfloat16 arithmetic, vote and shuffle.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdio>

__global__ void mix(const float* in, float* out, unsigned* votes) {
  const int i = threadIdx.x;
  const __half h = __float2half(in[i]);
  const __half2 pair = __halves2half2(h, __hadd(h, __float2half(1.0f)));
  const __half2 product = __hmul2(pair, pair);
  const __nv_bfloat16 b = __float2bfloat16(in[i]);
  const float sum = __low2float(product) + __high2float(product) + __bfloat162float(b);
  out[i] = sum + __shfl_xor_sync(0xffffffffu, in[i], 1);
  const unsigned vote = __ballot_sync(0xffffffffu, in[i] > 1.0f);
  if (i == 0) *votes = vote;
}

int main() {
  float in[32], out[32];
  unsigned wanted_votes = 0, votes = 0;
  for (int i = 0; i < 32; ++i) {
    in[i] = (i * 7 % 32) / 16.0f;
    if (in[i] > 1.0f) wanted_votes |= 1u << i;
  }
  float *din, *dout;
  unsigned* dvotes;
  cudaMalloc(&din, sizeof(in));
  cudaMalloc(&dout, sizeof(out));
  cudaMalloc(&dvotes, sizeof(unsigned));
  cudaMemcpy(din, in, sizeof(in), cudaMemcpyHostToDevice);
  mix<<<1, 32>>>(din, dout, dvotes);
  cudaMemcpy(out, dout, sizeof(out), cudaMemcpyDeviceToHost);
  cudaMemcpy(&votes, dvotes, sizeof(votes), cudaMemcpyDeviceToHost);
  bool right = cudaGetLastError() == cudaSuccess && votes == wanted_votes;
  for (int i = 0; i < 32; ++i) {
    const float exact = in[i] * in[i] + (in[i] + 1) * (in[i] + 1) + in[i] + in[i ^ 1];
    right = right && std::fabs(exact - out[i]) < 0.02f;
  }
  std::printf("rt_half: %s 32 lanes\n", right ? "verified" : "WRONG");
  return right ? 0 : 1;
}
