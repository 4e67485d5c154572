// Matrix products through cuBLAS in fp32, fp16 and bf16; the result bytes go to a file.
//
//   gemm OUTPUT
//
// Native and remote runs must write the same bytes. A few elements of each product are also
// compared with sums taken on the host, so that equal garbage is not mistaken for success.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                \
  do {                                                                             \
    const auto status = (call);                                                    \
    if (status != 0) {                                                             \
      std::printf("line %d: %s: %d\n", __LINE__, #call, static_cast<int>(status)); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

struct Shape {
  int m, n, k;
};

template <class T>
struct Kind;
template <>
struct Kind<float> {
  static constexpr const char* kName = "fp32";
  static constexpr cudaDataType_t kType = CUDA_R_32F;
  static constexpr double kTolerance = 1e-4;
};
template <>
struct Kind<__half> {
  static constexpr const char* kName = "fp16";
  static constexpr cudaDataType_t kType = CUDA_R_16F;
  static constexpr double kTolerance = 2e-2;
};
template <>
struct Kind<__nv_bfloat16> {
  static constexpr const char* kName = "bf16";
  static constexpr cudaDataType_t kType = CUDA_R_16BF;
  static constexpr double kTolerance = 1e-1;
};

template <class T>
std::vector<T> values(std::size_t count, std::uint32_t seed) {
  std::vector<T> out(count);
  for (auto& value : out) {
    seed = seed * 1664525u + 1013904223u;
    value = T(static_cast<float>((seed >> 16) & 0xff) / 256.0f - 0.5f);
  }
  return out;
}

template <class T>
T* upload(const std::vector<T>& host) {
  void* device = nullptr;
  CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(device);
}

// Column-major C = A * B; some elements checked against the host.
template <class T>
bool near_the_host(const Shape& s, const std::vector<T>& a, const std::vector<T>& b,
                   const std::vector<T>& c) {
  for (int sample = 0; sample < 16; ++sample) {
    const int row = sample * 37 % s.m;
    const int column = sample * 53 % s.n;
    double sum = 0;
    for (int i = 0; i < s.k; ++i) {
      sum += static_cast<double>(float(a[std::size_t(i) * s.m + row])) *
             static_cast<double>(float(b[std::size_t(column) * s.k + i]));
    }
    const double got = float(c[std::size_t(column) * s.m + row]);
    if (std::abs(got - sum) > Kind<T>::kTolerance * (1 + std::abs(sum))) {
      std::printf("%s: C[%d,%d] is %g, the host says %g\n", Kind<T>::kName, row, column, got, sum);
      return false;
    }
  }
  return true;
}

template <class T>
bool run(cublasHandle_t handle, const Shape& s, std::FILE* file) {
  const auto a = values<T>(std::size_t(s.m) * s.k, 1);
  const auto b = values<T>(std::size_t(s.k) * s.n, 2);
  std::vector<T> c(std::size_t(s.m) * s.n, T(0.0f));
  T* device_a = upload(a);
  T* device_b = upload(b);
  T* device_c = upload(c);
  const float one = 1.0f;
  const float zero = 0.0f;
  constexpr int kRepeats = 50;
  CHECK(cudaDeviceSynchronize());
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) {
    CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, s.m, s.n, s.k, &one, device_a,
                       Kind<T>::kType, s.m, device_b, Kind<T>::kType, s.k, &zero, device_c,
                       Kind<T>::kType, s.m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
  CHECK(cudaDeviceSynchronize());
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - started;
  CHECK(cudaMemcpy(c.data(), device_c, c.size() * sizeof(T), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));
  std::fwrite(c.data(), sizeof(T), c.size(), file);
  std::fprintf(stderr, "time %s_%dx%dx%d_us %.2f\n", Kind<T>::kName, s.m, s.n, s.k,
               took.count() / kRepeats);
  const bool good = near_the_host(s, a, b, c);
  std::printf("%s %dx%dx%d: %s\n", Kind<T>::kName, s.m, s.n, s.k, good ? "verified" : "WRONG");
  return good;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::FILE* file = std::fopen(argv[1], "wb");
  if (file == nullptr) return 2;
  cublasHandle_t handle;
  CHECK(cublasCreate(&handle));
  bool good = true;
  for (const Shape& shape : {Shape{64, 64, 64}, Shape{512, 384, 256}, Shape{1024, 1024, 1024},
                             Shape{1000, 77, 333}, Shape{4096, 16, 4096}}) {
    good &= run<float>(handle, shape, file);
    // Tensor-core types want leading dimensions of eight elements; odd ones take another path.
    good &= run<__half>(handle, shape, file);
    good &= run<__nv_bfloat16>(handle, shape, file);
  }
  CHECK(cublasDestroy(handle));
  std::fclose(file);
  return good ? 0 : 1;
}
