// Kernels that Apple's compiler compiled, on the emulator's threads: they agree with loops of double precision.
#include "judged.h"

namespace judges {
namespace {

TEST(AppleKernels, RmsNorm) {
  const uint32_t n = 1000;
  const uint32_t rows = 3;
  const uint32_t stride = 1;
  const float epsilon = 1e-5F;
  const std::vector<float> x = random_values(size_t{n} * rows, 1);
  const std::vector<float> weight = random_values(n, 2);
  std::vector<double> want;
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (size_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(x[row * n + i]), 2.0);
    for (size_t i = 0; i < n; ++i) want.push_back(x[row * n + i] * weight[i] / std::sqrt(sum / n + epsilon));
  }
  in_every_order([&](emulator::Order order) {
    std::vector<float> y(x.size(), NAN);
    emulator::dispatch({.kernel = "rmsfloat32", .groups = {rows}, .threads = {256}, .order = order},
                       {{0, buffer_of(x)},
                        {1, buffer_of(weight)},
                        {2, buffer_of(y)},
                        {3, buffer_of(epsilon)},
                        {4, buffer_of(n)},
                        {5, buffer_of(stride)}});
    expect_close("rmsfloat32", y, want, 1e-6);
  });
}

// Weights of 4 bits, in groups of 64 with a scale and a bias; 13 rows, of which a threadgroup makes 8.
TEST(AppleKernels, QuantizedMatrixVector) {
  const int k = 1024;
  const int n = 13;
  const size_t tokens = 2;
  std::mt19937 random(3);
  std::vector<uint32_t> weight(size_t{n} * k / 8);
  for (uint32_t& eight : weight) eight = static_cast<uint32_t>(random());
  const std::vector<float> scales = random_values(size_t{n} * k / 64, 4);
  const std::vector<float> biases = random_values(scales.size(), 5);
  const std::vector<float> x = random_values(tokens * k, 6);
  std::vector<double> want;
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t row = 0; row < n; ++row) {
      double sum = 0.0;
      for (size_t i = 0; i < k; ++i) {
        const size_t at = row * k + i;
        const double level = weight[at / 8] >> (at % 8 * 4) & 15U;
        sum += (scales[at / 64] * level + biases[at / 64]) * x[token * k + i];
      }
      want.push_back(sum);
    }
  }
  const std::string kernel = "affine_qmv_fast_float_gs_64_b_4_batch_0_pr_1_hgs_0_r_4";
  in_every_order([&](emulator::Order order) {
    std::vector<float> y(want.size(), NAN);
    emulator::dispatch({.kernel = kernel, .groups = {tokens, 2}, .threads = {32, 2}, .order = order},
                       {{0, buffer_of(weight)},
                        {1, buffer_of(scales)},
                        {2, buffer_of(biases)},
                        {3, buffer_of(x)},
                        {4, buffer_of(y)},
                        {5, buffer_of(k)},
                        {6, buffer_of(n)}});
    expect_close(kernel, y, want, 1e-6);
  });
}

// Parameters of MLX's matrix product.
struct ProductArgs {
  int32_t rows, cols, inner;
  int32_t row_of_a, row_of_b, row_of_out;  // in elements
  int32_t tiles_of_cols, tiles_of_rows;
  int64_t batch_of_a, batch_of_b, batch_of_out;
  int32_t swizzle;
  int32_t whole_steps;  // of 16 along `inner`
  int32_t batch_dims;
};

// out [70, 37] = a [70, 43] x b [37, 43]^T in tiles of 64 x 64 x 16, all edges cut, on simdgroup matrices. It addresses
// a lane's elements itself: this judges in which lane an element is.
TEST(AppleKernels, MatrixMatrix) {
  const ProductArgs args = {.rows = 70,
                            .cols = 37,
                            .inner = 43,
                            .row_of_a = 43,
                            .row_of_b = 43,
                            .row_of_out = 37,
                            .tiles_of_cols = 1,
                            .tiles_of_rows = 2,
                            .batch_of_a = 0,
                            .batch_of_b = 0,
                            .batch_of_out = 0,
                            .swizzle = 0,
                            .whole_steps = 2,
                            .batch_dims = 1};
  const std::vector<float> a = random_values(size_t{70} * 43, 31);
  const std::vector<float> b = random_values(size_t{37} * 43, 32);
  const std::vector<int32_t> batch_shape = {1};
  const std::vector<int64_t> batch_strides = {0, 0};
  std::vector<double> want;
  for (size_t row = 0; row < 70; ++row) {
    for (size_t col = 0; col < 37; ++col) {
      double sum = 0.0;
      for (size_t i = 0; i < 43; ++i) sum += static_cast<double>(a[row * 43 + i]) * b[col * 43 + i];
      want.push_back(sum);
    }
  }
  const std::string kernel = "steel_gemm_fused_nt_float32_float32_bm64_bn64_bk16_wm2_wn2";
  in_every_order([&](emulator::Order order) {
    std::vector<float> out(want.size(), NAN);
    emulator::dispatch({.kernel = kernel, .groups = {1, 2}, .threads = {32, 2, 2}, .order = order},
                       {{0, buffer_of(a)},
                        {1, buffer_of(b)},
                        {3, buffer_of(out)},
                        {4, buffer_of(args)},
                        {6, buffer_of(batch_shape)},
                        {7, buffer_of(batch_strides)}});
    expect_close(kernel, out, want, 1e-6);
  });
}

// 4 heads on 2 of keys and values, 3 queries that end the 50 keys, a sink per head.
TEST(AppleKernels, Attention) {
  const int count = 50;
  const size_t width = 64;
  const size_t queries = 3;
  const int heads = 4;
  const int shared = 2;
  const size_t head_stride = count * width;
  const size_t key_stride = width;
  const float scale = 0.3F;
  const std::vector<float> q = random_values(heads * queries * width, 7);
  const std::vector<float> keys = random_values(heads / shared * head_stride, 8);
  const std::vector<float> values = random_values(keys.size(), 9);
  const std::vector<float> sinks = random_values(heads, 10);
  std::vector<double> want;
  for (size_t head = 0; head < heads; ++head) {
    for (size_t query = 0; query < queries; ++query) {
      const size_t kv = head / shared * head_stride;
      const std::vector<double> one =
          attend({.scale = scale, .has_sink = true, .sink = sinks[head]}, &q[(head * queries + query) * width],
                 &keys[kv], &values[kv], count - queries + query + 1, width);
      want.insert(want.end(), one.begin(), one.end());
    }
  }
  in_every_order([&](emulator::Order order) {
    std::vector<float> out(want.size(), NAN);
    emulator::dispatch(
        {.kernel = "sdpa_vector_float_64_64", .groups = {heads, queries}, .threads = {1024}, .order = order},
        {{0, buffer_of(q)},
         {1, buffer_of(keys)},
         {2, buffer_of(values)},
         {3, buffer_of(out)},
         {4, buffer_of(shared)},
         {5, buffer_of(count)},
         {6, buffer_of(head_stride)},
         {7, buffer_of(key_stride)},
         {8, buffer_of(head_stride)},
         {9, buffer_of(key_stride)},
         {10, buffer_of(scale)},
         {16, buffer_of(sinks)},
         {17, buffer_of(heads)}});
    expect_close("sdpa_vector_float_64_64", out, want, 1e-6);
  });
}

}  // namespace
}  // namespace judges
