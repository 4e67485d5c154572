// Streams, asynchronous copies, stream-ordered allocation, host functions and callbacks.
#include <atomic>
#include <cstdio>

__global__ void scale(float* data, int n, float by) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    data[i] *= by;
  }
}

static std::atomic<int> finished{0};

static void CUDART_CB note(void*) { ++finished; }

int main() {
  const int streams = 3, n = 5000;
  cudaStream_t stream[streams];
  float* host[streams];
  for (int s = 0; s < streams; ++s) {
    cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking);
    cudaMallocHost(&host[s], n * sizeof(float));
    for (int i = 0; i < n; ++i) host[s][i] = i + s;
  }
  for (int s = 0; s < streams; ++s) {
    float* device = nullptr;
    cudaMallocAsync(&device, n * sizeof(float), stream[s]);
    cudaMemcpyAsync(device, host[s], n * sizeof(float), cudaMemcpyHostToDevice, stream[s]);
    scale<<<8, 64, 0, stream[s]>>>(device, n, s + 2.0f);
    cudaMemcpyAsync(host[s], device, n * sizeof(float), cudaMemcpyDeviceToHost, stream[s]);
    cudaFreeAsync(device, stream[s]);
    cudaLaunchHostFunc(stream[s], note, nullptr);
  }
  const cudaError_t error = cudaDeviceSynchronize();
  bool right = error == cudaSuccess && finished == streams;
  for (int s = 0; s < streams; ++s) {
    for (int i = 0; i < n; ++i) right = right && host[s][i] == (i + s) * (s + 2.0f);
    cudaFreeHost(host[s]);
    cudaStreamDestroy(stream[s]);
  }
  std::printf("rt_streams: %s %d streams, %d host functions\n", right ? "verified" : "WRONG",
              streams, finished.load());
  return right ? 0 : 1;
}
