#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/activation.h"
#include "quant/quant.h"
#include "quant/test_rows.h"

namespace inferno {
namespace {

// One activation row with its memory.
class Activations {
 public:
  Activations(int block, const std::vector<float>& x)
      : buffer_(static_cast<size_t>(activation_row_bytes(block, static_cast<int64_t>(x.size())) / 8)),
        block_(block),
        k_(static_cast<int64_t>(x.size())),
        row_(activation_row(block, buffer_.data(), k_)) {
    (block == 32 ? quantize_activation_32 : quantize_activation_256)(x.data(), k_, row_);
  }
  [[nodiscard]] ActivationView view() const { return row_; }
  [[nodiscard]] double value(int64_t i) const { return double{row_.d[i / block_]} * row_.q[i]; }

 private:
  std::vector<uint64_t> buffer_;
  int block_;
  int64_t k_;
  ActivationRow row_;
};

TEST(Activation, ScalesByTheLargestMagnitude) {
  std::vector<float> x(256, 0.5F);
  x[3] = -2.0F;
  x[200] = 1.0F;
  const Activations by_32(32, x);
  EXPECT_EQ(by_32.view().d[0], 2.0F / 127.0F);
  EXPECT_EQ(by_32.view().q[3], -127);
  EXPECT_EQ(by_32.view().q[0], 32);  // 31.75
  EXPECT_EQ(by_32.view().d[1], 0.5F / 127.0F);
  EXPECT_EQ(by_32.view().q[32], 127);
  EXPECT_EQ(by_32.view().d[6], 1.0F / 127.0F);
  const Activations by_256(256, x);
  EXPECT_EQ(by_256.view().d[0], 2.0F / 127.0F);
  EXPECT_EQ(by_256.view().q[32], 32);
}

TEST(Activation, FollowsItsFormulaBitForBit) {
  constexpr int64_t kLength = 64 * 256;
  const std::vector<float> x = test::normal_row(37, kLength);
  for (const int block : {32, 256}) {
    const Activations row(block, x);
    for (int64_t b = 0; b < kLength / block; ++b) {
      const float* values = x.data() + b * block;
      float amax = 0.0F;
      for (int i = 0; i < block; ++i) amax = std::max(amax, std::fabs(values[i]));
      const float d = amax / 127.0F;
      ASSERT_EQ(row.view().d[b], d);
      const float inverse = 1.0F / d;
      for (int i = 0; i < block; ++i) ASSERT_EQ(row.view().q[b * block + i], std::nearbyint(values[i] * inverse));
    }
  }
}

TEST(Activation, RoundsTiesToEven) {
  std::vector<float> x(32, 0.0F);
  const float values[] = {127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F, -126.5F};
  for (size_t i = 0; i < std::size(values); ++i) x[i] = values[i];
  const Activations row(32, x);
  ASSERT_EQ(row.view().d[0], 1.0F);
  const int expected[] = {127, 0, 2, 2, 0, -2, -2, 126, -126};
  for (size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(row.view().q[i], expected[i]) << values[i];
}

TEST(Activation, SumsCoverTheirSpans) {
  const std::vector<float> x = test::normal_row(1, 512);
  for (const int block : {32, 256}) {
    const int span = block == 32 ? 32 : 16;
    const Activations row(block, x);
    for (int s = 0; s < 512 / span; ++s) {
      int sum = 0;
      for (int i = 0; i < span; ++i) sum += row.view().q[s * span + i];
      EXPECT_EQ(row.view().sums[s], sum) << block << " " << s;
    }
  }
}

TEST(Activation, ZeroAndVanishingBlocksAreZero) {
  for (const int block : {32, 256}) {
    for (const float size : {0.0F, -0.0F, 1e-45F, 1e-38F}) {
      const Activations row(block, std::vector<float>(256, size));
      EXPECT_EQ(row.view().d[0], 0.0F) << size;
      EXPECT_EQ(row.view().q[255], 0) << size;
      EXPECT_EQ(row.view().sums[0], 0) << size;
    }
  }
}

TEST(Activation, SmallestScalesThatHaveAnInverseStayInRange) {
  // Around the smallest amax whose scale has a finite inverse; no level may leave -127..127.
  for (float amax = 3.0e-37F; amax < 5.0e-37F; amax *= 1.001F) {
    const std::vector<float> x(32, -amax);
    const Activations row(32, x);
    if (row.view().d[0] == 0.0F) continue;
    EXPECT_EQ(row.view().q[0], -127) << amax;
  }
  const Activations largest(32, std::vector<float>(32, std::numeric_limits<float>::max()));
  EXPECT_EQ(largest.view().q[0], 127);
}

TEST(Activation, NanOrInfinityPoisonsItsBlockOnly) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = test::normal_row(2, 512);
    x[40] = bad;
    const Activations by_32(32, x);
    EXPECT_FALSE(std::isnan(by_32.view().d[0]));
    EXPECT_TRUE(std::isnan(by_32.view().d[1]));
    EXPECT_EQ(by_32.view().q[33], 0);
    const Activations by_256(256, x);
    EXPECT_TRUE(std::isnan(by_256.view().d[0]));
    EXPECT_FALSE(std::isnan(by_256.view().d[1]));
    for (const test::Golden& golden : test::kGolden) {
      const Activations& row = is_k_format(golden.dtype) ? by_256 : by_32;
      EXPECT_TRUE(std::isnan(dot_row(golden.dtype, test::golden_row(golden).data(), row.view(), 512)));
    }
  }
}

TEST(Dot, GivesTheStatedBits) {
  for (const test::Golden& golden : test::kGolden) {
    SCOPED_TRACE(dtype_name(golden.dtype));
    const Activations row(activation_block(golden.dtype), test::golden_activations());
    const float result = dot_row(golden.dtype, test::golden_row(golden).data(), row.view(), test::kGoldenLength);
    EXPECT_EQ(std::bit_cast<uint32_t>(result), golden.dot_bits) << result;
  }
}

TEST(Dot, AgreesWithDoublePrecision) {
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const int64_t k : {int64_t{256}, int64_t{1024}, int64_t{4096}}) {
      for (uint32_t seed = 100; seed < 110; ++seed) {
        std::vector<uint8_t> weights(static_cast<size_t>(row_bytes(dtype, k)));
        quantize_row(dtype, test::normal_row(seed, k).data(), weights.data(), k);
        std::vector<float> w(static_cast<size_t>(k));
        dequantize_row(dtype, weights.data(), w.data(), k);
        const Activations row(activation_block(dtype), test::normal_row(seed + 1000, k));
        double sum = 0.0;
        double magnitude = 0.0;
        for (int64_t i = 0; i < k; ++i) {
          const double product = w[static_cast<size_t>(i)] * row.value(i);
          sum += product;
          magnitude += std::fabs(product);
        }
        EXPECT_NEAR(dot_row(dtype, weights.data(), row.view(), k), sum, 2e-7 * magnitude) << k << " " << seed;
      }
    }
  }
}

TEST(Dot, LargestSumsDoNotOverflow) {
  // Every level, scale and activation at its extreme: integer sums must stay exact in 32 bits.
  for (const DType dtype : kQuantizedTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> weights(static_cast<size_t>(row_bytes(dtype, 256)), static_cast<uint8_t>(fill));
      for (int b = 0; b < 256 / dtype_info(dtype).block_size; ++b) {
        test::set_scales(dtype, weights.data() + b * dtype_info(dtype).block_bytes, 0x3c80, 0x3c80);  // around 1
      }
      std::vector<float> w(256);
      dequantize_row(dtype, weights.data(), w.data(), 256);
      const Activations row(activation_block(dtype), std::vector<float>(256, -127.0F));
      double sum = 0.0;
      double magnitude = 1.0;
      for (int64_t i = 0; i < 256; ++i) {
        sum += w[static_cast<size_t>(i)] * row.value(i);
        magnitude += 127.0 * 128.0 * 32.0;
      }
      EXPECT_NEAR(dot_row(dtype, weights.data(), row.view(), 256), sum, 2e-7 * magnitude) << fill;
    }
  }
}

}  // namespace
}  // namespace inferno
