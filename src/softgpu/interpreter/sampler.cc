// Sampling: addressing, filtering and conversion of texels.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/texture.h"

namespace flyt::ptx {
namespace {

using Color = std::array<float, 4>;

constexpr std::int64_t kOutside = -1;
// Filter weights are fixed-point numbers with 8 bits behind the point; 256 is one.
constexpr std::int64_t kOne = 256;
// The same of three axes together.
constexpr unsigned kBitsOfAll = 24;
constexpr std::int64_t kOneOfAll = 1 << kBitsOfAll;
static_assert(kOneOfAll == kOne * kOne * kOne);

float norm(std::uint32_t raw, const TexelFormat& format) {
  const unsigned bits = format.channel_bytes * 8u;
  if (format.kind == TexelKind::kUnsigned) {
    return static_cast<float>(raw) / static_cast<float>((std::uint64_t{1} << bits) - 1);
  }
  const auto value = static_cast<float>(static_cast<std::int32_t>(raw));
  return std::max(value / static_cast<float>((std::uint64_t{1} << (bits - 1)) - 1), -1.0f);
}

float linear_of_srgb(float value) {
  if (value <= 0.04045f) return value / 12.92f;
  return std::pow((value + 0.055f) / 1.055f, 2.4f);
}

// One channel, sign-extended where it is signed; halves become floats.
std::uint32_t raw_channel(const TexelFormat& format, const std::byte* texel, unsigned channel) {
  std::uint32_t raw = 0;
  std::memcpy(&raw, texel + std::size_t{channel} * format.channel_bytes, format.channel_bytes);
  if (format.kind == TexelKind::kSigned && format.channel_bytes < 4) {
    const unsigned shift = 32 - format.channel_bytes * 8u;
    raw = static_cast<std::uint32_t>(static_cast<std::int32_t>(raw << shift) >> shift);
  }
  if (format.kind == TexelKind::kFloat && format.channel_bytes == 2) {
    raw = bits_of(to_float(Half{static_cast<std::uint16_t>(raw)}));
  }
  return raw;
}

// The index of a texel along an axis of `count` texels.
std::int64_t resolve(std::int64_t index, std::uint32_t count, AddressMode mode) {
  const std::int64_t n = count;
  switch (mode) {
    case AddressMode::kClamp:
      return std::clamp<std::int64_t>(index, 0, n - 1);
    case AddressMode::kBorder:
      return index < 0 || index >= n ? kOutside : index;
    case AddressMode::kWrap:
      return ((index % n) + n) % n;
    case AddressMode::kMirror: {
      const std::int64_t place = ((index % (2 * n)) + 2 * n) % (2 * n);
      return place < n ? place : 2 * n - 1 - place;
    }
  }
  return kOutside;
}

// Coordinates that are no numbers, or further away than any texel, count as the nearest number.
double tame(double value) {
  constexpr double kFar = 1 << 30;
  if (!(value == value)) return 0;
  return std::clamp(value, -kFar, kFar);
}

// The two texels along an axis that a coordinate lies between, and the weight of the second one.
struct Span {
  std::int64_t first = 0;
  std::int64_t second = 0;
  std::int64_t weight = 0;  // Of kOne.
};

class TexelReader {
 public:
  TexelReader(const Texture& texture, const MemoryMap& memory, const TextureRequest& request)
      : texture_(texture), memory_(memory), request_(request) {}

  bool ok() const { return ok_; }

  // All of one level: filtered, or the nearest texel.
  Color color(const ImageLevel& level) {
    Place place = locate(level);
    if (!filters())
      return texel(level, place,
                   {place.spans[0].first, place.spans[1].first, place.spans[2].first});
    Color sum = {0, 0, 0, 0};
    visit_corners(place, [&](const std::array<std::int64_t, 3>& at, std::int64_t weight) {
      const Color each = texel(level, place, at);
      const float part = static_cast<float>(weight) / static_cast<float>(kOneOfAll);
      for (unsigned i = 0; i < 4; ++i) sum[i] += part * each[i];
    });
    return sum;
  }

  // The same of integers, which stay integers. CUDA promises no filter for them; an H100 rounds
  // unsigned ones of 8 bits and cuts those of 32, and no others were tried.
  TexelBits bits(const ImageLevel& level) {
    const Place place = locate(level);
    if (!filters())
      return texel_bits(level, place,
                        {place.spans[0].first, place.spans[1].first, place.spans[2].first});
    const bool has_sign = texture_.format.kind == TexelKind::kSigned;
    std::array<std::int64_t, 4> sum{};
    visit_corners(place, [&](const std::array<std::int64_t, 3>& at, std::int64_t weight) {
      const TexelBits each = texel_bits(level, place, at);
      for (unsigned i = 0; i < 4; ++i) {
        sum[i] += weight * (has_sign ? std::int64_t{static_cast<std::int32_t>(each[i])}
                                     : std::int64_t{each[i]});
      }
    });
    TexelBits out{};
    for (unsigned i = 0; i < 4; ++i) {
      const std::int64_t whole = texture_.format.channel_bytes == 4
                                     ? sum[i] / kOneOfAll
                                     : (sum[i] + kOneOfAll / 2) >> kBitsOfAll;
      out[i] = static_cast<std::uint32_t>(whole);
    }
    return out;
  }

  // The four texels of the x-y plane that linear filtering would take: of the second row first and
  // second, of the first row second and first.
  std::array<TexelBits, 4> corners(const ImageLevel& level) {
    const Place place = locate(level, true);
    const auto at = [&](bool second_x, bool second_y) {
      const Span& x = place.spans[0];
      const Span& y = place.spans[1];
      return texel_bits(
          level, place,
          {second_x ? x.second : x.first, second_y ? y.second : y.first, place.spans[2].first});
    };
    return {at(false, true), at(true, true), at(true, false), at(false, false)};
  }

 private:
  struct Place {
    std::array<Span, 3> spans;
    std::uint32_t slice = 0;  // Of a layer or face.
    unsigned face = 0;
  };

  bool filters() const {
    return texture_.sampler.linear && !request_.integer && texture_.place != TexelPlace::kLinear;
  }

  // The texels around a place that is filtered, each with its weight, of kOneOfAll; not those
  // without any.
  template <class Visit>
  static void visit_corners(const Place& place, Visit visit) {
    for (unsigned corner = 0; corner < 8; ++corner) {
      std::int64_t weight = 1;
      std::array<std::int64_t, 3> at{};
      for (unsigned axis = 0; axis < 3; ++axis) {
        const Span& span = place.spans[axis];
        const bool second = (corner >> axis & 1) != 0;
        at[axis] = second ? span.second : span.first;
        weight *= second ? span.weight : kOne - span.weight;
      }
      if (weight != 0) visit(at, weight);
    }
  }

  unsigned axes() const {
    switch (texture_.shape) {
      case ImageShape::k1D:
      case ImageShape::k1DLayered:
        return 1;
      case ImageShape::k3D:
        return 3;
      case ImageShape::k2D:
      case ImageShape::k2DLayered:
      case ImageShape::kCube:
      case ImageShape::kCubeLayered:
        break;
    }
    return 2;
  }

  Place locate(const ImageLevel& level, bool gathers = false) const {
    Place place;
    std::array<float, 3> at = request_.at;
    if (is_layered(texture_.shape)) {
      place.slice = std::min(request_.layer, texture_.layers() - 1);
    }
    if (is_cube(texture_.shape)) {
      place.face = face_of(at);
      place.slice = place.slice * 6 + place.face;
    }
    const std::array<std::uint32_t, 3> extents = {level.width, level.height, level.slices};
    for (unsigned axis = 0; axis < axes(); ++axis) {
      place.spans[axis] = request_.integer
                              ? whole(axis)
                              : between(at[axis], extents[axis], axis, gathers || filters());
    }
    return place;
  }

  Span whole(unsigned axis) const {
    const std::int64_t index =
        std::int64_t{request_.texel[axis]} + std::int64_t{request_.offset[axis]};
    return {index, index, 0};
  }

  Span between(float coordinate, std::uint32_t extent, unsigned axis, bool two) const {
    const bool scaled = texture_.sampler.normalized || is_cube(texture_.shape);
    const double at = tame(scaled ? static_cast<double>(coordinate) * extent : coordinate);
    const std::int64_t offset = request_.offset[axis];
    if (!two) {
      const auto index = static_cast<std::int64_t>(std::floor(at)) + offset;
      return {index, index, 0};
    }
    const auto fixed =
        static_cast<std::int64_t>(std::floor((at - 0.5) * static_cast<double>(kOne) + 0.5));
    const std::int64_t first = (fixed >> 8) + offset;
    return {first, first + 1, fixed & (kOne - 1)};
  }

  // The face that a direction meets; `at` becomes the place on it, in [0, 1].
  static unsigned face_of(std::array<float, 3>& at) {
    const auto [x, y, z] = at;
    const float ax = std::fabs(x);
    const float ay = std::fabs(y);
    const float az = std::fabs(z);
    unsigned face = 0;
    float m = ax;
    float s = 0;
    float t = 0;
    if (ax >= ay && ax >= az) {
      face = x < 0 ? 1 : 0;
      s = x < 0 ? z : -z;
      t = -y;
    } else if (ay >= az) {
      face = y < 0 ? 3 : 2;
      m = ay;
      s = x;
      t = y < 0 ? -z : z;
    } else {
      face = z < 0 ? 5 : 4;
      m = az;
      s = z < 0 ? -x : x;
      t = -y;
    }
    if (m == 0) m = 1;
    at = {(s / m + 1) / 2, (t / m + 1) / 2, 0};
    return face;
  }

  // The direction of a place on the plane of a face; s and t are in [-1, 1] on the face itself.
  static std::array<float, 3> direction_of(unsigned face, float s, float t) {
    switch (face) {
      case 0:
        return {1, -t, -s};
      case 1:
        return {-1, -t, s};
      case 2:
        return {s, 1, t};
      case 3:
        return {s, -1, -t};
      case 4:
        return {s, -t, 1};
    }
    return {-s, -t, -1};
  }

  AddressMode mode(unsigned axis) const {
    const AddressMode given = texture_.sampler.modes[axis];
    if (texture_.place == TexelPlace::kLinear) return AddressMode::kBorder;
    if (is_cube(texture_.shape)) return AddressMode::kClamp;
    const bool repeats = given == AddressMode::kWrap || given == AddressMode::kMirror;
    // Coordinates in texels do not repeat.
    const bool can_repeat = texture_.sampler.normalized && !request_.integer;
    return repeats && !can_repeat ? AddressMode::kClamp : given;
  }

  // The memory of a texel; null for one of the border.
  const std::byte* find(const ImageLevel& level, Place place, std::array<std::int64_t, 3> at) {
    if (is_cube(texture_.shape) && texture_.sampler.seamless) cross_edge(level, place, at);
    const std::array<std::uint32_t, 3> extents = {level.width, level.height, level.slices};
    for (unsigned axis = 0; axis < axes(); ++axis) {
      at[axis] = resolve(at[axis], extents[axis], mode(axis));
      if (at[axis] == kOutside) return nullptr;
    }
    const std::uint64_t slice =
        axes() == 3 ? static_cast<std::uint64_t>(at[2]) : std::uint64_t{place.slice};
    const std::uint64_t row = axes() > 1 ? static_cast<std::uint64_t>(at[1]) : 0;
    const unsigned bytes = texture_.format.bytes();
    const std::uint64_t address = level.row(row, slice) + static_cast<std::uint64_t>(at[0]) * bytes;
    if (texture_.place != TexelPlace::kArray && !memory_.valid_range(address, bytes, false)) {
      ok_ = false;
      return nullptr;
    }
    return static_cast<const std::byte*>(pointer_at(address));
  }

  // A texel beside a face is the nearest one of the neighbour.
  void cross_edge(const ImageLevel& level, Place& place, std::array<std::int64_t, 3>& at) const {
    const std::int64_t n = level.width;
    if (at[0] >= 0 && at[0] < n && at[1] >= 0 && at[1] < n) return;
    const auto scaled = [n](std::int64_t index) {
      return (2 * static_cast<float>(index) + 1) / static_cast<float>(n) - 1;
    };
    std::array<float, 3> direction = direction_of(place.face, scaled(at[0]), scaled(at[1]));
    const unsigned face = face_of(direction);
    place.slice = place.slice - place.face + face;
    place.face = face;
    for (unsigned axis = 0; axis < 2; ++axis) {
      at[axis] = static_cast<std::int64_t>(std::floor(direction[axis] * static_cast<float>(n)));
    }
  }

  Color texel(const ImageLevel& level, const Place& place, std::array<std::int64_t, 3> at) {
    const TexelBits bits = texel_bits(level, place, at);
    return {float_of(bits[0]), float_of(bits[1]), float_of(bits[2]), float_of(bits[3])};
  }

  TexelBits texel_bits(const ImageLevel& level, const Place& place,
                       std::array<std::int64_t, 3> at) {
    const bool integers = texture_.gives_integers();
    const std::byte* memory = find(level, place, at);
    if (memory != nullptr) {
      return decode_texel(texture_.format, memory, integers, texture_.sampler.srgb);
    }
    TexelBits border{};
    if (texture_.place == TexelPlace::kLinear) return border;
    for (unsigned i = 0; i < 4; ++i) {
      const float color = texture_.sampler.border[i];
      border[i] = !integers ? bits_of(color)
                            : static_cast<std::uint32_t>(static_cast<std::int64_t>(tame(color)));
    }
    return border;
  }

  const Texture& texture_;
  const MemoryMap& memory_;
  const TextureRequest& request_;
  bool ok_ = true;
};

// The level of detail that a request asks for, before it is clamped.
float level_of(const Texture& texture, const TextureRequest& request) {
  switch (request.mip) {
    case TextureRequest::Mip::kBase:
      return 0;
    case TextureRequest::Mip::kLevel:
      return request.level + texture.sampler.mip_bias;
    case TextureRequest::Mip::kGradient:
      break;
  }
  const ImageLevel& base = texture.levels[0];
  const bool scaled = texture.sampler.normalized || is_cube(texture.shape);
  const std::array<float, 3> scale = {
      scaled ? static_cast<float>(base.width) : 1.0f,
      scaled ? static_cast<float>(is_cube(texture.shape) ? base.width : base.height) : 1.0f,
      scaled ? static_cast<float>(is_cube(texture.shape) ? base.width : base.slices) : 1.0f};
  const bool flat = texture.shape == ImageShape::k1D || texture.shape == ImageShape::k1DLayered;
  const bool deep = texture.shape == ImageShape::k3D || is_cube(texture.shape);
  const unsigned axes = flat ? 1 : deep ? 3 : 2;
  const auto length = [&](const std::array<float, 3>& gradient) {
    float sum = 0;
    for (unsigned axis = 0; axis < axes; ++axis) {
      const float step = gradient[axis] * scale[axis];
      sum += step * step;
    }
    // On a face a direction's components run over [-1, 1].
    return std::sqrt(sum) / (is_cube(texture.shape) ? 2 : 1);
  };
  return std::log2(std::max(length(request.dx), length(request.dy))) + texture.sampler.mip_bias;
}

float clamped_level(const Texture& texture, const TextureRequest& request) {
  if (texture.levels.size() == 1) return 0;
  float level = level_of(texture, request);
  if (!(level == level)) level = 0;
  level = std::min(std::max(level, texture.sampler.mip_min), texture.sampler.mip_max);
  return std::clamp(level, 0.0f, static_cast<float>(texture.levels.size() - 1));
}

TexelBits as_bits(const Color& color) {
  return {bits_of(color[0]), bits_of(color[1]), bits_of(color[2]), bits_of(color[3])};
}

}  // namespace

TexelBits decode_texel(const TexelFormat& format, const std::byte* texel, bool integers,
                       bool srgb) {
  const bool floats = format.kind == TexelKind::kFloat;
  TexelBits out = {0, 0, 0, integers ? 1 : bits_of(1.0f)};
  for (unsigned i = 0; i < format.channels; ++i) {
    const std::uint32_t raw = raw_channel(format, texel, i);
    if (floats || integers) {
      out[i] = raw;
      continue;
    }
    float value = norm(raw, format);
    const bool color = srgb && i < 3 && format.channel_bytes == 1;
    if (color && format.kind == TexelKind::kUnsigned) value = linear_of_srgb(value);
    out[i] = bits_of(value);
  }
  return out;
}

void encode_texel(const TexelFormat& format, const TexelBits& bits, std::byte* texel) {
  for (unsigned i = 0; i < format.channels; ++i) {
    std::uint32_t raw = bits[i];
    const float value = float_of(raw);
    const unsigned width = format.channel_bytes * 8u;
    if (format.kind == TexelKind::kFloat) {
      if (format.channel_bytes == 2) raw = to_half(value).bits;
    } else if (format.normalized) {
      const bool sign = format.kind == TexelKind::kSigned;
      const auto most = static_cast<float>((1u << (width - (sign ? 1 : 0))) - 1);
      const float tamed = value == value ? std::clamp(value, sign ? -1.0f : 0.0f, 1.0f) : 0.0f;
      raw = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::nearbyint(tamed * most)));
    } else if (width < 32 && format.kind == TexelKind::kSigned) {
      const std::int32_t most = (1 << (width - 1)) - 1;
      raw = static_cast<std::uint32_t>(std::clamp(static_cast<std::int32_t>(raw), -most - 1, most));
    } else if (width < 32) {
      raw = std::min(raw, (1u << width) - 1);
    }
    std::memcpy(texel + std::size_t{i} * format.channel_bytes, &raw, format.channel_bytes);
  }
}

bool sample(const Texture& texture, const MemoryMap& memory, const TextureRequest& request,
            TexelBits& out) {
  TexelReader reader(texture, memory, request);
  const float level = clamped_level(texture, request);
  const bool blends = texture.sampler.mip_linear && !texture.gives_integers();
  const auto first = static_cast<std::size_t>(blends ? level : std::floor(level + 0.5f));
  if (texture.gives_integers()) {
    out = reader.bits(texture.levels[first]);
    return reader.ok();
  }
  Color color = reader.color(texture.levels[first]);
  const float part = level - static_cast<float>(first);
  const float weight = std::floor(part * 256 + 0.5f) / 256;
  if (blends && weight > 0 && first + 1 < texture.levels.size()) {
    const Color next = reader.color(texture.levels[first + 1]);
    for (unsigned i = 0; i < 4; ++i) color[i] = (1 - weight) * color[i] + weight * next[i];
  }
  out = as_bits(color);
  return reader.ok();
}

bool gather(const Texture& texture, const MemoryMap& memory, const TextureRequest& request,
            unsigned component, TexelBits& out) {
  TexelReader reader(texture, memory, request);
  const auto corners = reader.corners(texture.levels[0]);
  for (unsigned i = 0; i < 4; ++i) out[i] = corners[i][component];
  return reader.ok();
}

}  // namespace flyt::ptx
