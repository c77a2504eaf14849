// The kernels of recurrent layers of every table this CPU can run, against the scalar table.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/kernels/select.h"
#include "quant/test_rows.h"

namespace inferno {
namespace {

// Widths of heads around those of vectors, and the widths of models.
constexpr int64_t kHeadWidths[] = {4, 12, 16, 44, 64, 68, 112, 128};
constexpr int64_t kPassingTokens = 9;
// Of each token: what is kept of the state, and how much of the token goes into it.
constexpr std::array<float, kPassingTokens> kDecays = {0.9F, 0.5F, 1, 0.99F, 0.1F, 0.7F, 0.95F, 0.3F, 0.8F};
constexpr std::array<float, kPassingTokens> kSteps = {0.5F, 0.9F, 0.1F, 1, 0.7F, 0.2F, 0.6F, 0.4F, 0.3F};

class RecurrentParity : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table_ = *GetParam();
  const KernelTable& scalar_ = scalar_kernels();
};
INSTANTIATE_TEST_SUITE_P(Tables, RecurrentParity, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

// What tokens leave behind.
struct Passed {
  std::vector<float> out;
  std::vector<float> state;
  bool operator==(const Passed&) const = default;
};

std::vector<float> scaled_normals(uint32_t seed, int64_t count, float factor) {
  std::vector<float> values = test::normal_row(seed, count);
  for (float& value : values) value *= factor;
  return values;
}

Passed run_delta(const KernelTable& table, int64_t d, int64_t chunk) {
  const auto length = 1 / std::sqrt(static_cast<float>(d));
  const std::vector<float> q = scaled_normals(1, kPassingTokens * d, length);
  const std::vector<float> k = scaled_normals(2, kPassingTokens * d, length);
  const std::vector<float> v = scaled_normals(3, kPassingTokens * d, 1);
  Passed result{std::vector<float>(static_cast<size_t>(kPassingTokens * d)), scaled_normals(4, d * d, 1)};
  const AlignedMemory scratch = aligned_memory(static_cast<size_t>(d * kMaxStateColumns) * sizeof(float));
  for (int64_t t = 0; t < kPassingTokens; t += chunk) {
    table.delta_rule({.tokens = std::min(chunk, kPassingTokens - t),
                      .head_dim = d,
                      .q = q.data() + t * d,
                      .k = k.data() + t * d,
                      .decay = kDecays.data() + t,
                      .beta = kSteps.data() + t,
                      .v = v.data() + t * d,
                      .v_stride = d,
                      .out = result.out.data() + t * d,
                      .out_stride = d,
                      .state = result.state.data(),
                      .scratch = reinterpret_cast<float*>(scratch.get())});
  }
  return result;
}

Passed run_scan(const KernelTable& table, int64_t d, int64_t state_size, int64_t chunk) {
  const std::vector<float> x = scaled_normals(5, kPassingTokens * d, 1);
  const std::vector<float> b = scaled_normals(6, kPassingTokens * d + state_size, 0.3F);
  const std::vector<float> c = scaled_normals(7, kPassingTokens * d + state_size, 0.3F);
  Passed result{std::vector<float>(static_cast<size_t>(kPassingTokens * d)), scaled_normals(8, state_size * d, 1)};
  const AlignedMemory scratch = aligned_memory(static_cast<size_t>(state_size * kMaxStateColumns) * sizeof(float));
  for (int64_t t = 0; t < kPassingTokens; t += chunk) {
    table.state_scan({.tokens = std::min(chunk, kPassingTokens - t),
                      .head_dim = d,
                      .state_size = state_size,
                      .x = x.data() + t * d,
                      .b = b.data() + t * d,
                      .c = c.data() + t * d,
                      .stride = d,
                      .decay = kDecays.data() + t,
                      .step = kSteps.data() + t,
                      .skip = 0.4F,
                      .out = result.out.data() + t * d,
                      .out_stride = d,
                      .state = result.state.data(),
                      .scratch = reinterpret_cast<float*>(scratch.get())});
  }
  return result;
}

TEST_P(RecurrentParity, DeltaRuleIsBitEqual) {
  for (const int64_t d : kHeadWidths) {
    EXPECT_EQ(run_delta(table_, d, kPassingTokens), run_delta(scalar_, d, kPassingTokens)) << d << " wide";
  }
}

TEST_P(RecurrentParity, DeltaRuleHasTheSameBitsHoweverTokensAreCut) {
  for (const int64_t d : kHeadWidths) {
    const Passed whole = run_delta(table_, d, kPassingTokens);
    EXPECT_EQ(run_delta(table_, d, 1), whole) << d << " wide, one by one";
    EXPECT_EQ(run_delta(table_, d, 4), whole) << d << " wide, in fours";
  }
}

TEST_P(RecurrentParity, ScanIsBitEqual) {
  for (const int64_t d : kHeadWidths) {
    for (const int64_t state_size : {1, 7, 16}) {
      EXPECT_EQ(run_scan(table_, d, state_size, kPassingTokens), run_scan(scalar_, d, state_size, kPassingTokens))
          << state_size << " of " << d;
    }
  }
}

TEST_P(RecurrentParity, ScanHasTheSameBitsHoweverTokensAreCut) {
  for (const int64_t d : kHeadWidths) {
    const Passed whole = run_scan(table_, d, 50, kPassingTokens);
    EXPECT_EQ(run_scan(table_, d, 50, 1), whole) << d << " wide, one by one";
    EXPECT_EQ(run_scan(table_, d, 50, 4), whole) << d << " wide, in fours";
  }
}

TEST_P(RecurrentParity, ConvolutionIsBitEqual) {
  constexpr int64_t kTaps = 4;
  for (const int64_t n : {1, 3, 5, 16, 63, 64, 203, 512}) {
    const std::vector<float> weight = test::normal_row(9, kTaps * n);
    std::vector<std::vector<float>> inputs;
    std::vector<const float*> pointers;
    for (uint32_t tap = 0; tap < kTaps; ++tap) inputs.push_back(test::normal_row(10 + tap, n));
    for (const auto& input : inputs) pointers.push_back(input.data());
    std::vector<float> got(static_cast<size_t>(n));
    std::vector<float> want(static_cast<size_t>(n));
    table_.convolve(pointers.data(), weight.data(), kTaps, got.data(), n);
    scalar_.convolve(pointers.data(), weight.data(), kTaps, want.data(), n);
    EXPECT_EQ(got, want) << n << " channels";
  }
}

}  // namespace
}  // namespace inferno
