// Products of few tokens, which have kernels of their own: every type of weights and number of tokens against the ops'
// definitions.
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/cuda.h"
#include "backend/factory.h"
#include "base/error.h"
#include "verify/compare.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::f16,    DType::bf16,  DType::q8_0,  DType::q4_0, DType::q4_1,
                            DType::q5_0, DType::q5_1,   DType::q2_k,  DType::q3_k,  DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::iq4_nl, DType::mxfp4, DType::iq4_xs};

class FewTokens : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    try {
      device_ = make_cuda_backend();
    } catch (const Error&) {
      GTEST_SKIP() << "no GPU";
    }
  }

  void expect_definition(const OpImage& image) {
    const OpRecord& record = image.record();
    const OpImage expected = run_on(*exact_, image);
    const double limit = nmse_limit(record, device_->is_wide(record) ? Numerics::wide : Numerics::definition);
    for (const FieldDifference& d : compare_written(image, expected, run_on(*device_, image))) {
      EXPECT_FALSE(d.beyond(limit)) << d.field << ": nmse " << d.nmse << " of " << limit << ", at " << d.worst << " "
                                    << d.worst_tested << " instead of " << d.worst_reference;
    }
  }

  std::unique_ptr<Backend> device_;
  std::unique_ptr<Backend> exact_ = create_backend("scalar", {.fused = false});
};

TEST_P(FewTokens, LinearsGiveWhatTheirDefinitionGives) {
  for (const int64_t k : {256, 1024, 3072}) {
    for (int64_t tokens = 1; tokens <= 9; ++tokens) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << k);
      const LinearShape shape{.tokens = tokens, .k = k, .weight = GetParam()};
      LinearShape three = shape;
      three.n = {520, 72, 65};
      three.bias = true;
      expect_definition(linear_case(three, 1));
      LinearShape adds = shape;
      adds.n = {1031};
      adds.residual = adds.residual_is_out = true;
      expect_definition(linear_case(adds, 2));
      LinearShape swiglu = shape;
      swiglu.n = {777, 777};
      swiglu.swiglu = true;
      expect_definition(linear_case(swiglu, 3));
    }
  }
}

TEST_P(FewTokens, RowsOfTheHeadAreChosenByTheirIndices) {
  for (const size_t rows : {1, 2, 4, 7, 8, 11}) {
    SCOPED_TRACE(rows);
    std::vector<int32_t> ids(rows);
    std::iota(ids.rbegin(), ids.rend(), 2);
    expect_definition(
        logits_case({.tokens = 20, .rows = ids, .width = 512, .vocabulary = 5003, .weight = GetParam()}, 4));
  }
}

// So many rows that every multiprocessor has two blocks, and two tokens a kernel of their own.
TEST_P(FewTokens, VeryManyRowsOfTheHeadGiveWhatTheirDefinitionGives) {
  for (const int64_t width : {1024, 2048}) {
    for (const size_t rows : {1, 2}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << width);
      std::vector<int32_t> ids(rows);
      std::iota(ids.rbegin(), ids.rend(), 1);
      expect_definition(
          logits_case({.tokens = 4, .rows = ids, .width = width, .vocabulary = 17003, .weight = GetParam()}, 8));
    }
  }
}

// Rows so long that few of them fit beside the activations.
TEST_P(FewTokens, LongRowsGiveWhatTheirDefinitionGives) {
  for (const int64_t k : {4096, 12288, 32768}) {
    for (const int64_t tokens : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens of " << k);
      expect_definition(linear_case({.tokens = tokens, .k = k, .n = {136}, .weight = GetParam()}, 5));
    }
  }
}

// Rows of 4, 5, 12 and 17 units of 1,024, of which each block has 16 warps: units that a warp skips, that lie in the
// next chunk, and more units than warps; the last unit is not full.
TEST_P(FewTokens, OneTokenOfManyLongRowsGivesWhatItsDefinitionGives) {
  LinearShape shape{.tokens = 1, .k = 4096, .n = {4099, 72, 65}, .weight = GetParam()};
  shape.bias = true;
  expect_definition(linear_case(shape, 9));
  expect_definition(linear_case({.tokens = 1, .k = 4096, .n = {4101, 4101}, .weight = GetParam(), .swiglu = true}, 10));
  for (const int64_t k : {4864, 12032, 17152}) {
    SCOPED_TRACE(k);
    LinearShape adds{.tokens = 1, .k = k, .n = {4103}, .weight = GetParam()};
    adds.residual = adds.residual_is_out = true;
    expect_definition(linear_case(adds, 11));
  }
}

TEST_P(FewTokens, ATokensResultDoesNotDependOnTheOthers) {
  for (const int64_t tokens : {2, 3, 4, 6, 8}) {
    LogitsShape shape{.tokens = 8, .width = 1024, .vocabulary = 600, .weight = GetParam()};
    shape.rows.resize(static_cast<size_t>(tokens));
    std::iota(shape.rows.begin(), shape.rows.end(), 0);
    const OpImage first = run_on(*device_, logits_case(shape, 6));
    std::fill(shape.rows.begin() + 1, shape.rows.end(), 7);
    const OpImage second = run_on(*device_, logits_case(shape, 6));
    const float* a = first.record().args<LogitsArgs>().out.f32();
    const float* b = second.record().args<LogitsArgs>().out.f32();
    EXPECT_TRUE(std::equal(a, a + shape.vocabulary, b)) << tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FewTokens, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace inferno
