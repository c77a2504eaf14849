// Every Metal kernel, dispatched by the backend and run by the emulator, against the definition of the ops it is for:
// the cases of the parity tests with their odd sizes, all weight types, all cache types and every optional argument.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "backend/factory.h"
#include "backend/metal/metal_backend.h"
#include "emulated_device.h"
#include "support/sanitized.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

using emulator::Order;

bool at_length() {
  return std::getenv("INFERNO_METAL_ORDERS") != nullptr;
}

class MetalKernels : public testing::TestWithParam<std::tuple<OpId, Order>> {};

TEST_P(MetalKernels, GiveWhatTheDefinitionGives) {
  const auto [op, order] = GetParam();
  const auto scalar = create_backend("scalar", {.fused = false});
  // Sanitized, every third one: tools/check_metal has them all.
  size_t turn = 0;
  const size_t turns = kSanitized && !at_length() ? 3 : 1;
  for (const OpCase& c : op_cases(op)) {
    if (turn++ % turns != 0) continue;
    SCOPED_TRACE(c.name);
    metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>(order));
    ASSERT_TRUE(backend.supports(c.image.record()));
    const OpImage tested = run_on(backend, c.image);
    const double limit = nmse_limit(c.image.record(), Numerics::definition);
    for (const FieldDifference& d : compare_written(c.image, run_on(*scalar, c.image), tested)) {
      EXPECT_FALSE(d.beyond(limit)) << d.field << ": nmse " << d.nmse << " of " << limit << ", largest difference "
                                    << d.max_abs << " at " << d.worst << ": " << d.worst_tested << " instead of "
                                    << d.worst_reference;
    }
  }
}

constexpr OpId kOps[] = {OpId::embed,       OpId::rms_norm,  OpId::layer_norm,  OpId::add,
                         OpId::activate,    OpId::linear,    OpId::kv_store,    OpId::qkv_rope_store,
                         OpId::attention,   OpId::gated_mlp, OpId::moe_mlp,     OpId::short_conv,
                         OpId::delta_net,   OpId::mamba2,    OpId::layer_input, OpId::latent_store,
                         OpId::head_linear, OpId::logits,    OpId::sample,      OpId::matmul};

std::string name_of(const testing::TestParamInfo<MetalKernels::ParamType>& info) {
  constexpr const char* kOrders[] = {"forward", "reverse", "shuffled"};
  return std::string(op_name(std::get<0>(info.param))) + "_" + kOrders[static_cast<int>(std::get<1>(info.param))];
}

// The order in which threads run changes nothing. tools/check_metal tries them all.
std::vector<Order> orders() {
  if (!at_length()) return {Order::shuffled};
  return {Order::forward, Order::reverse, Order::shuffled};
}

INSTANTIATE_TEST_SUITE_P(Ops, MetalKernels, testing::Combine(testing::ValuesIn(kOps), testing::ValuesIn(orders())),
                         name_of);

TEST(MetalKernels, TilesOfQueriesTakeHeadsOfEveryWidth) {
  const auto scalar = create_backend("scalar", {.fused = false});
  for (const auto& [keys, values] : {std::pair{8, 8}, {20, 36}, {128, 132}, {256, 256}, {192, 128}}) {
    SCOPED_TRACE(keys);
    metal::MetalBackend backend(std::make_unique<test::EmulatedDevice>(Order::shuffled));
    const OpImage image = attention_case({.sequences = {{.cached = 40, .queries = 9}, {.cached = 0, .queries = 10}},
                                          .q_heads = 2,
                                          .kv_heads = 1,
                                          .head_dim = keys,
                                          .kv = DType::f16,
                                          .v_head_dim = values},
                                         7);
    for (const FieldDifference& d : compare_written(image, run_on(*scalar, image), run_on(backend, image))) {
      EXPECT_FALSE(d.beyond(nmse_limit(image.record(), Numerics::definition))) << values << " wide: nmse " << d.nmse;
    }
  }
}

TEST(MetalKernels, EveryWeightTypeHasKernels) {
  for (const DType dtype : kWeightTypes) {
    for (const metal::Kernel kernel : {metal::Kernel::linear, metal::Kernel::linear_few, metal::Kernel::linear_many,
                                       metal::Kernel::linear_pair, metal::Kernel::linear_pairs, metal::Kernel::embed}) {
      const std::string name = metal::KernelId{kernel, dtype}.name();
      EXPECT_TRUE(emulator::has_kernel(name)) << name;
    }
  }
}

}  // namespace
}  // namespace inferno
