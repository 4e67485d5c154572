#include "nvml/gpu.h"

#include <gtest/gtest.h>

namespace flyt::nvml {
namespace {

Gpu sample() {
  Gpu gpu;
  gpu.name = "NVIDIA H200";
  for (std::size_t i = 0; i < gpu.uuid.size(); ++i) gpu.uuid[i] = static_cast<std::uint8_t>(i * 17);
  gpu.pci_bus = 0x9b;
  gpu.pci_device = 3;
  gpu.memory_bytes = 1ULL << 37;
  gpu.capability_major = 9;
  return gpu;
}

TEST(Gpu, SurvivesTheWire) {
  const std::vector<Gpu> gpus = {sample(), Gpu{}};
  const auto decoded = decode_gpus(encode(gpus));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value(), gpus);
}

TEST(Gpu, RefusesEveryTruncationAndWhatIsLeftOver) {
  std::vector<std::byte> bytes = encode({sample()});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_gpus(Bytes(bytes).first(size)).ok()) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_gpus(bytes).ok());
}

TEST(Gpu, RefusesMoreGpusThanTheLimit) {
  const std::vector<std::byte> bytes(4, std::byte{0xff});
  EXPECT_FALSE(decode_gpus(bytes).ok());
}

TEST(Gpu, CutsWhatIsOverALimit) {
  std::vector<Gpu> gpus(kGpusMax + 3, sample());
  gpus[0].name = std::string(300, 'x');
  const auto decoded = decode_gpus(encode(gpus));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value().size(), kGpusMax);
  EXPECT_EQ(decoded.value()[0].name.size(), kNameBytesMax);
}

TEST(Gpu, IsWrittenAsNvmlWritesIt) {
  EXPECT_EQ(uuid_text(sample()), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(pci_text(sample(), 8), "00000000:9B:03.0");
  EXPECT_EQ(pci_text(sample(), 4), "0000:9B:03.0");
}

TEST(Gpu, FindsItsPciAddressInWhatProgramsWrite) {
  std::uint32_t domain = 1;
  std::uint32_t bus = 0;
  std::uint32_t device = 0;
  for (const char* text : {"00000000:9B:03.0", "0000:9b:03.0", "0:9B:3", "9B:03.0"}) {
    EXPECT_TRUE(parse_pci(text, domain, bus, device)) << text;
    EXPECT_EQ(domain, 0U) << text;
    EXPECT_EQ(bus, 0x9bU) << text;
    EXPECT_EQ(device, 3U) << text;
  }
  for (const char* text :
       {"", ":", "::", "9B", "0:9B:03.1", "0:9B:", "x:9B:03.0", "0:0:9B:03.0", "0:9B:03.0 "}) {
    EXPECT_FALSE(parse_pci(text, domain, bus, device)) << text;
  }
}

TEST(Handle, NamesItsGpuAndNothingElse) {
  for (std::uint32_t index = 0; index < 4; ++index) {
    EXPECT_EQ(index_of(handle_of(index), 4), index);
  }
  EXPECT_EQ(index_of(handle_of(4), 4), 4U);
  EXPECT_EQ(index_of(nullptr, 4), 4U);
  int value = 0;
  EXPECT_EQ(index_of(static_cast<nvmlDevice_t>(static_cast<void*>(&value)), 4), 4U);
}

}  // namespace
}  // namespace flyt::nvml
