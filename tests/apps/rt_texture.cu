// Arrays, textures and surfaces with the runtime API: filtering, layers, levels, compared with the
// processor's own arithmetic.
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

int wrong = 0;

void check(bool good, const char* what) {
  if (good) return;
  ++wrong;
  std::printf("rt_texture: WRONG %s\n", what);
}

bool close(float a, float b, float allowed) { return std::fabs(a - b) <= allowed; }

__global__ void enlarge(cudaTextureObject_t picture, float* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  out[y * width + x] = tex2D<float>(picture, (x + 0.5f) / width, (y + 0.5f) / height);
}

__global__ void invert(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  uchar4 color;
  surf2Dread(&color, from, x * 4, y);
  color.x = 255 - color.x;
  color.y = 255 - color.y;
  color.z = 255 - color.z;
  surf2Dwrite(color, to, x * 4, y);
}

__global__ void add_layers(cudaTextureObject_t layers, float* out, int width, int height,
                           int count) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float sum = 0;
  for (int layer = 0; layer < count; ++layer) {
    sum += tex2DLayered<float>(layers, x + 0.5f, y + 0.5f, layer);
  }
  out[y * width + x] = sum;
}

__global__ void read_levels(cudaTextureObject_t pyramid, float* out, int count) {
  const int i = threadIdx.x;
  if (i < count) out[i] = tex2DLod<float>(pyramid, 0.5f, 0.5f, static_cast<float>(i));
}

__global__ void read_volume(cudaTextureObject_t volume, float* out) {
  out[threadIdx.x] = tex3D<float>(volume, 1.5f, 2.5f, threadIdx.x + 0.5f);
}

__global__ void read_linear(cudaTextureObject_t numbers, int* out, int count) {
  const int i = threadIdx.x;
  if (i < count) out[i] = tex1Dfetch<int>(numbers, count - 1 - i);
}

cudaTextureDesc described(cudaTextureFilterMode filter, bool normalized) {
  cudaTextureDesc description = {};
  for (cudaTextureAddressMode& mode : description.addressMode) mode = cudaAddressModeClamp;
  description.filterMode = filter;
  description.readMode = cudaReadModeElementType;
  description.normalizedCoords = normalized;
  return description;
}

cudaResourceDesc of(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}

const dim3 kBlock(16, 16);

dim3 blocks(int width, int height) { return dim3((width + 15) / 16, (height + 15) / 16); }

void filtering() {
  const int width = 37, height = 23, wide = 100, high = 60;
  std::vector<float> picture(width * height);
  for (int i = 0; i < width * height; ++i) picture[i] = static_cast<float>(i * 7 % 101);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  cudaMallocArray(&array, &format, width, height);
  cudaMemcpy2DToArray(array, 0, 0, picture.data(), width * 4, width * 4, height,
                      cudaMemcpyHostToDevice);
  const cudaResourceDesc resource = of(array);
  const cudaTextureDesc description = described(cudaFilterModeLinear, true);
  cudaTextureObject_t texture;
  check(cudaCreateTextureObject(&texture, &resource, &description, nullptr) == cudaSuccess,
        "cudaCreateTextureObject");
  float* out;
  cudaMalloc(&out, wide * high * 4);
  enlarge<<<blocks(wide, high), kBlock>>>(texture, out, wide, high);
  std::vector<float> got(wide * high);
  cudaMemcpy(got.data(), out, wide * high * 4, cudaMemcpyDeviceToHost);
  bool good = true;
  const auto at = [&](int x, int y) {
    x = x < 0 ? 0 : x >= width ? width - 1 : x;
    y = y < 0 ? 0 : y >= height ? height - 1 : y;
    return picture[y * width + x];
  };
  for (int y = 0; y < high; ++y) {
    for (int x = 0; x < wide; ++x) {
      const float u = (x + 0.5f) / wide * width - 0.5f, v = (y + 0.5f) / high * height - 0.5f;
      const int i = static_cast<int>(std::floor(u)), j = static_cast<int>(std::floor(v));
      const float a = u - i, b = v - j;
      const float wanted = (1 - a) * (1 - b) * at(i, j) + a * (1 - b) * at(i + 1, j) +
                           (1 - a) * b * at(i, j + 1) + a * b * at(i + 1, j + 1);
      good = good && close(got[y * wide + x], wanted, 0.6f);
    }
  }
  check(good, "bilinear filtering");
  cudaDestroyTextureObject(texture);
  cudaFree(out);
  cudaFreeArray(array);
}

void surfaces() {
  const int width = 50, height = 20;
  std::vector<uchar4> picture(width * height), got(width * height);
  for (int i = 0; i < width * height; ++i) {
    picture[i] = make_uchar4(i % 256, i / 3 % 256, 255 - i % 200, 9);
  }
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
  cudaArray_t from, to;
  cudaMallocArray(&from, &format, width, height, cudaArraySurfaceLoadStore);
  cudaMallocArray(&to, &format, width, height, cudaArraySurfaceLoadStore);
  cudaMemcpy2DToArray(from, 0, 0, picture.data(), width * 4, width * 4, height,
                      cudaMemcpyHostToDevice);
  const cudaResourceDesc first = of(from), second = of(to);
  cudaSurfaceObject_t read, write;
  cudaCreateSurfaceObject(&read, &first);
  cudaCreateSurfaceObject(&write, &second);
  invert<<<blocks(width, height), kBlock>>>(read, write, width, height);
  cudaMemcpy2DFromArray(got.data(), width * 4, to, 0, 0, width * 4, height, cudaMemcpyDeviceToHost);
  bool good = true;
  for (int i = 0; i < width * height; ++i) {
    good = good && got[i].x == 255 - picture[i].x && got[i].y == 255 - picture[i].y &&
           got[i].z == 255 - picture[i].z && got[i].w == 9;
  }
  check(good, "surface reads and writes");
  cudaDestroySurfaceObject(read);
  cudaDestroySurfaceObject(write);
  cudaFreeArray(from);
  cudaFreeArray(to);
}

void layers() {
  const int width = 16, height = 8, count = 5;
  std::vector<float> texels(width * height * count), got(width * height);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i % 97);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, count), cudaArrayLayered);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), width * 4, width, height);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(width, height, count);
  copy.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3D(&copy);
  const cudaResourceDesc resource = of(array);
  const cudaTextureDesc description = described(cudaFilterModePoint, false);
  cudaTextureObject_t texture;
  cudaCreateTextureObject(&texture, &resource, &description, nullptr);
  float* out;
  cudaMalloc(&out, width * height * 4);
  add_layers<<<blocks(width, height), kBlock>>>(texture, out, width, height, count);
  cudaMemcpy(got.data(), out, width * height * 4, cudaMemcpyDeviceToHost);
  bool good = true;
  for (int i = 0; i < width * height; ++i) {
    float sum = 0;
    for (int layer = 0; layer < count; ++layer) sum += texels[layer * width * height + i];
    good = good && got[i] == sum;
  }
  check(good, "layers");
  cudaDestroyTextureObject(texture);
  cudaFree(out);
  cudaFreeArray(array);
}

void levels() {
  const int edge = 32, count = 6;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaMipmappedArray_t pyramid;
  cudaMallocMipmappedArray(&pyramid, &format, make_cudaExtent(edge, edge, 0), count);
  for (int level = 0; level < count; ++level) {
    cudaArray_t array;
    cudaGetMipmappedArrayLevel(&array, pyramid, level);
    const int size = edge >> level;
    const std::vector<float> texels(size * size, 100.0f + level);
    cudaMemcpy2DToArray(array, 0, 0, texels.data(), size * 4, size * 4, size,
                        cudaMemcpyHostToDevice);
  }
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = pyramid;
  cudaTextureDesc description = described(cudaFilterModeLinear, true);
  description.mipmapFilterMode = cudaFilterModePoint;
  description.maxMipmapLevelClamp = count - 1;
  cudaTextureObject_t texture;
  cudaCreateTextureObject(&texture, &resource, &description, nullptr);
  float* out;
  cudaMalloc(&out, count * 4);
  read_levels<<<1, 32>>>(texture, out, count);
  std::vector<float> got(count);
  cudaMemcpy(got.data(), out, count * 4, cudaMemcpyDeviceToHost);
  for (int level = 0; level < count; ++level) check(got[level] == 100.0f + level, "levels");
  cudaDestroyTextureObject(texture);
  cudaFree(out);
  cudaFreeMipmappedArray(pyramid);
}

void volumes_and_memory() {
  const int edge = 4;
  std::vector<float> texels(edge * edge * edge);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  cudaMalloc3DArray(&array, &format, make_cudaExtent(edge, edge, edge));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), edge * 4, edge, edge);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(edge, edge, edge);
  copy.kind = cudaMemcpyHostToDevice;
  cudaMemcpy3D(&copy);
  cudaResourceDesc resource = of(array);
  const cudaTextureDesc description = described(cudaFilterModePoint, false);
  cudaTextureObject_t volume;
  cudaCreateTextureObject(&volume, &resource, &description, nullptr);
  float* out;
  cudaMalloc(&out, edge * 4);
  read_volume<<<1, edge>>>(volume, out);
  std::vector<float> got(edge);
  cudaMemcpy(got.data(), out, edge * 4, cudaMemcpyDeviceToHost);
  for (int z = 0; z < edge; ++z) check(got[z] == texels[z * 16 + 2 * 4 + 1], "volumes");
  const int count = 20;
  std::vector<int> numbers(count), reversed(count);
  for (int i = 0; i < count; ++i) numbers[i] = i * i;
  int *device, *result;
  cudaMalloc(&device, count * 4);
  cudaMalloc(&result, count * 4);
  cudaMemcpy(device, numbers.data(), count * 4, cudaMemcpyHostToDevice);
  resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device;
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = count * 4;
  cudaTextureObject_t linear;
  cudaCreateTextureObject(&linear, &resource, &description, nullptr);
  read_linear<<<1, 32>>>(linear, result, count);
  cudaMemcpy(reversed.data(), result, count * 4, cudaMemcpyDeviceToHost);
  for (int i = 0; i < count; ++i) check(reversed[i] == numbers[count - 1 - i], "linear memory");
  cudaDestroyTextureObject(volume);
  cudaDestroyTextureObject(linear);
  cudaFree(out);
  cudaFree(device);
  cudaFree(result);
  cudaFreeArray(array);
}

}  // namespace

int main() {
  filtering();
  surfaces();
  layers();
  levels();
  volumes_and_memory();
  const cudaError_t error = cudaGetLastError();
  const bool right = wrong == 0 && error == cudaSuccess;
  std::printf("rt_texture: %s filtering, surfaces, layers, levels, volumes, memory (%s)\n",
              right ? "verified" : "WRONG", cudaGetErrorString(error));
  return right ? 0 : 1;
}
