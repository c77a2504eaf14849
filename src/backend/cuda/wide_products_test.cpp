// Quantized weights in wide mode: unpacked before their products.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/cuda.h"
#include "backend/cuda/test_device.h"
#include "backend/factory.h"
#include "base/error.h"
#include "synthetic/model_run.h"
#include "synthetic/synthetic_model.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

// More rows than are unpacked at a time.
TEST(WideProducts, RowsThatAreUnpackedInPartsGiveWhatTheirDefinitionGives) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  const auto exact = create_backend("scalar", {.fused = false});
  for (const DType type : {DType::q5_0, DType::q3_k, DType::iq4_nl, DType::mxfp4,
                           DType::iq4_xs}) {  // types without a kernel for so few tokens
    LogitsShape shape{.tokens = 12, .width = 1024, .vocabulary = 52'003, .weight = type};
    shape.rows.resize(12);
    std::iota(shape.rows.begin(), shape.rows.end(), 0);
    const OpImage image = logits_case(shape, 1);
    ASSERT_TRUE(device->is_wide(image.record()));
    const OpImage expected = run_on(*exact, image);
    for (const FieldDifference& d : compare_written(image, expected, run_on(*device, image))) {
      EXPECT_FALSE(d.beyond(nmse_limit(image.record(), Numerics::wide))) << dtype_name(type) << ", nmse " << d.nmse;
    }
  }
}

// The first steps are launched op by op, later ones are graphs. 16 sequences of 8 heads are also as few as batch
// attention takes.
TEST(WideProducts, StepsOfManySequencesGiveTheSameBitsCapturedOrNot) {
  const auto device = device_or_null();
  if (!device) GTEST_SKIP() << "no GPU";
  for (const char* type : {"Q8_0", "Q4_K_M"}) {
    ModelShape shape = find_model_shape("qwen3-0.6b");
    shape.layers = 3;
    constexpr int32_t kSequences = 16;
    ModelRun model(*device, SyntheticModel(shape, type),
                   {.context = 64, .max_tokens = 64, .max_sequences = kSequences});
    std::vector<std::vector<float>> runs;
    for (int run = 0; run < 3; ++run) {
      model.reset();
      for (int32_t s = 0; s < kSequences; ++s) {
        const std::vector<int32_t> prompt(static_cast<size_t>(9 + s), 100 + s);
        model.prefill(s, prompt);
      }
      std::vector<float> all;
      for (int step = 0; step < 4; ++step) {
        model.decode(kSequences);
        const std::vector<float> logits = model.logits();
        all.insert(all.end(), logits.begin(), logits.end());
      }
      runs.push_back(std::move(all));
    }
    EXPECT_TRUE(runs[0] == runs[1]) << type;
    EXPECT_TRUE(runs[0] == runs[2]) << type;
  }
}

}  // namespace
}  // namespace inferno
