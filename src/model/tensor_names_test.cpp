#include "model/tensor_names.h"

#include <gtest/gtest.h>

namespace inferno {
namespace {

TEST(TensorNames, ALayersNumberComesBackFromItsTensors) {
  EXPECT_EQ(layer_tensor_name(12, "attn_q.weight"), "blk.12.attn_q.weight");
  for (const int32_t layer : {0, 7, 12, kMaxLayers - 1}) {
    EXPECT_EQ(layer_of_tensor(layer_tensor_name(layer, "ffn_down.weight")), layer);
  }
}

TEST(TensorNames, OtherNamesHaveNoLayer) {
  for (const char* name :
       {"", "token_embd.weight", "blk.", "blk..w", "blk.3", "blk.x.w", "blk.-1.w", "blk.3x.w", "blk.4096.w",
        "blk.2147483648.w", "blk.9223372036854775807.w", "blk.9223372036854775808.w", "blk.99999999999999999999.w"}) {
    EXPECT_EQ(layer_of_tensor(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace inferno
