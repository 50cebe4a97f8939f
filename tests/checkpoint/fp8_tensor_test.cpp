// FP8 tensors with scales, compared with torch (tests/fixtures/checkpoint/make_fp8.py).
#include "checkpoint/fp8_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "core/float8.h"
#include "support/paths.h"

namespace hone::test {
namespace {

std::vector<std::byte> all_bytes(const StoredTensor& tensor) { return {tensor.bytes.begin(), tensor.bytes.end()}; }

TEST(Fp8Tensor, IsReadAsTorchDequantizesIt) {
  const SafetensorsFile file(fixture("checkpoint") / "fp8.safetensors");
  const ScaledTensor tensor(file.at("weight"), &file.at("weight_scale_inv"));
  const StoredTensor& expected = file.at("weight.dequantized");
  const auto count = static_cast<std::size_t>(tensor.element_count());
  std::vector<BFloat16> values(count);
  read_as(tensor, DType::kBf16, 0, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(std::memcmp(values.data(), expected.bytes.data(), expected.bytes.size()), 0);
  std::vector<float> wide(count);
  read_as(tensor, DType::kF32, 0, std::as_writable_bytes(std::span(wide)));
  EXPECT_EQ(wide, read_values<float>(expected));
  // Ranges that begin and end inside of rows and blocks.
  for (const auto& [first, size] :
       {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {127, 3}, {139, 300}, {17900, 300}}) {
    std::vector<BFloat16> part(size);
    read_as(tensor, DType::kBf16, first, std::as_writable_bytes(std::span(part)));
    const std::span expected_part(values.data() + first, size);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(part)), std::as_bytes(expected_part)))
        << first << ", " << size;
  }
}

TEST(Fp8Tensor, IsQuantizedAsTorchRounds) {
  const SafetensorsFile file(fixture("checkpoint") / "fp8.safetensors");
  const StoredTensor& source = file.at("source");
  const std::vector<BFloat16> values = read_values<BFloat16>(source);
  std::vector<std::uint8_t> bytes(values.size());
  std::vector<float> scales(4);
  ASSERT_TRUE(quantize_e4m3_blocks(values.data(), source.shape[0], source.shape[1], bytes.data(), scales.data()));
  EXPECT_EQ(scales, read_values<float>(file.at("source.scales")));
  const std::vector<std::byte> expected = all_bytes(file.at("source.quantized"));
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0);
}

}  // namespace
}  // namespace hone::test
