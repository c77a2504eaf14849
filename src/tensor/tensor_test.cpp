#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/half.h"

namespace inferno {
namespace {

TEST(DType, NamesAndGgufIdsLeadBackToTheType) {
  for (const DTypeInfo& info : kDTypes) {
    EXPECT_EQ(dtype_from_name(info.name), info.dtype);
    EXPECT_EQ(dtype_from_gguf(info.gguf_id), info.dtype);
  }
  EXPECT_EQ(dtype_from_name("q4_k"), DType::q4_k);
  EXPECT_EQ(dtype_from_name("q9"), std::nullopt);
  EXPECT_EQ(dtype_from_gguf(-1), std::nullopt);
}

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<f16>(bits);
    const float value = to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(value))));
    } else {
      ASSERT_EQ(to_f16(value), half) << bits;
    }
    const auto brain = static_cast<bf16>(bits);
    if (!std::isnan(to_float(brain))) {
      ASSERT_EQ(to_bf16(to_float(brain)), brain) << bits;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(to_f16(1.0F + 0x1p-11F), to_f16(1.0F));                  // tie, down to even
  EXPECT_EQ(to_f16(1.0F + 3 * 0x1p-11F), static_cast<f16>(0x3c02));  // tie, up to even
  EXPECT_EQ(to_f16(65519.0F), static_cast<f16>(0x7bff));
  EXPECT_EQ(to_f16(65520.0F), static_cast<f16>(0x7c00));
  EXPECT_EQ(to_f16(0x1p-25F), static_cast<f16>(0));
  EXPECT_EQ(to_f16(0x1.8p-25F), static_cast<f16>(1));
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), to_bf16(1.0F));
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), static_cast<bf16>(0x7f80));
}

TEST(Tensor, PrintsTypeAndShape) {
  EXPECT_EQ(to_string(Tensor{nullptr, Shape(2, 1024), DType::q8_0}), "q8_0[2,1024]");
  EXPECT_EQ(Shape(2, 3, 4).rows(), 6);
  EXPECT_EQ(Shape(2, 3, 4).cols(), 4);
}

}  // namespace
}  // namespace inferno
