#include "backend/op_cost.h"

#include <gtest/gtest.h>

#include "backend/factory.h"
#include "backend/op_image.h"

namespace inferno {
namespace {

OpCost cost_of(const OpImage& image) {
  return op_cost(image.record(), *create_backend("scalar"));
}

TEST(OpCost, LinearReadsItsWeightsAsTheyAreInTheFile) {
  OpImage image;
  LinearArgs args{.x = image.tensor({3, 64})};
  args.w[0] = image.weight("w", DType::q8_0, Shape(10, 64), std::vector<std::byte>(10 * 68));
  args.bias[0] = image.weight("b", DType::f32, Shape(10), std::vector<std::byte>(40));
  args.out[0] = image.tensor({3, 10});
  image.add(args);
  const OpCost cost = cost_of(image);
  EXPECT_EQ(cost.weight_bytes, 10 * 68 + 40);
  EXPECT_EQ(cost.activation_bytes, 3 * 64 * 4 + 3 * 10 * 4);
  EXPECT_EQ(cost.operations, 2 * 3 * 64 * 10);
  EXPECT_EQ(cost.multiply, Multiply::int8);
}

TEST(OpCost, EmbedReadsOnlyTheRowsItLooksUp) {
  OpImage image;
  image.add(EmbedArgs{.table = image.weight("t", DType::f16, Shape(100, 64), std::vector<std::byte>(100 * 128)),
                      .ids = image.tensor({2}, DType::i32),
                      .out = image.tensor({2, 64})});
  EXPECT_EQ(cost_of(image).weight_bytes, 2 * 128);
}

TEST(OpCost, AttentionReadsEachSequencesCacheOnce) {
  OpImage image;
  HostBatch host({.max_tokens = 4, .max_sequences = 2, .max_logit_rows = 1, .max_pages = 2});
  const std::vector<int32_t> pages = {0, 1};
  host.begin_sequence(20, pages.data(), 2);
  host.add_token(0, 19, 19, true);
  host.begin_sequence(2, pages.data(), 1);
  host.add_token(0, 0, 0, false);
  host.add_token(0, 1, 1, false);
  KvLayerView view{.pages = 2, .page_size = 16, .kv_heads = 2, .head_dim = 8, .dtype = DType::bf16};
  view.k = image.tensor({2, 2, 16, 8}, DType::bf16).data;
  view.v = image.tensor({2, 2, 16, 8}, DType::bf16).data;
  const Tensor block = image.tensor({static_cast<int64_t>(host.block().size())}, DType::i32);
  std::copy(host.block().begin(), host.block().end(), block.as<int32_t>());
  image.add(AttentionArgs{
      .q = image.tensor({3, 32}), .kv = view, .batch = host.view(block.as<int32_t>()), .out = image.tensor({3, 32})});
  const OpCost cost = cost_of(image);
  EXPECT_EQ(cost.kv_bytes, (20 + 2) * 2 * 2 * 8 * 2);
  EXPECT_EQ(cost.operations, 4 * (20 + 1 + 2) * 32);
  EXPECT_EQ(cost.activation_bytes, 2 * 3 * 32 * 4);
}

}  // namespace
}  // namespace inferno
