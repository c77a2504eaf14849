// Kernels of llama.cpp on the emulator: they agree with loops of double precision. Sizes are odd where those kernels
// take odd sizes.
#include "function_constants.h"
#include "judged.h"
#include "quant/quant.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
// Needs the above: it includes nothing.
#include <ggml-metal-impl.h>

namespace judges {
namespace {

using emulator::Order;
using emulator::set_function_constant;
using inferno::DType;
using inferno::f16;

std::vector<f16> halves(const std::vector<float>& values) {
  std::vector<f16> to;
  for (const float value : values) to.push_back(inferno::to_f16(value));
  return to;
}
std::vector<float> floats(const std::vector<f16>& values) {
  std::vector<float> to;
  for (const f16 value : values) to.push_back(inferno::to_float(value));
  return to;
}

struct Weights {
  std::vector<uint8_t> blocks;
  std::vector<float> values;  // what they mean
};
Weights quantized(DType dtype, size_t rows, size_t cols) {
  const std::vector<float> from = random_values(rows * cols, 11);
  const size_t row_bytes = inferno::row_bytes(dtype, static_cast<int64_t>(cols));
  Weights weights{std::vector<uint8_t>(rows * row_bytes), std::vector<float>(rows * cols)};
  for (size_t row = 0; row < rows; ++row) {
    inferno::quantize_row(dtype, &from[row * cols], &weights.blocks[row * row_bytes], static_cast<int64_t>(cols));
    inferno::dequantize_row(dtype, &weights.blocks[row * row_bytes], &weights.values[row * cols],
                            static_cast<int64_t>(cols));
  }
  return weights;
}

// [tokens, rows]
std::vector<double> products(const std::vector<float>& weights, const std::vector<float>& x, size_t rows, size_t cols) {
  std::vector<double> to;
  for (size_t token = 0; token < x.size() / cols; ++token) {
    for (size_t row = 0; row < rows; ++row) {
      double sum = 0.0;
      for (size_t i = 0; i < cols; ++i) sum += static_cast<double>(weights[row * cols + i]) * x[token * cols + i];
      to.push_back(sum);
    }
  }
  return to;
}

template <typename Args>
Args product_args(DType dtype, int32_t rows, int32_t cols, int32_t tokens) {
  Args args = {};
  args.ne00 = cols;
  args.ne02 = 1;
  args.nb01 = inferno::row_bytes(dtype, cols);
  args.nb02 = args.nb03 = args.nb01 * static_cast<uint64_t>(rows);
  args.ne12 = 1;
  args.nb10 = sizeof(float);
  args.nb11 = sizeof(float) * static_cast<uint64_t>(cols);
  args.nb12 = args.nb13 = args.nb11 * static_cast<uint64_t>(tokens);
  args.ne0 = rows;
  args.ne1 = tokens;
  args.r2 = args.r3 = 1;
  return args;
}

// rows: a multiple of what a simdgroup makes. With others these kernels read a row that is not there.
void judge_matrix_vector(const std::string& kernel, DType dtype, int16_t simdgroups, uint32_t rows_of_group,
                         std::vector<size_t> threadgroup_bytes) {
  const int32_t rows = 18;
  const int32_t cols = 512;
  const int32_t tokens = 3;
  const Weights weights = quantized(dtype, rows, cols);
  const std::vector<float> x = random_values(size_t{cols} * tokens, 12);
  auto args = product_args<ggml_metal_kargs_mul_mv>(dtype, rows, cols, tokens);
  args.ne01 = rows;
  args.ne10 = cols;
  args.ne11 = tokens;
  set_function_constant<int16_t>(FC_MUL_MV + 0, simdgroups);
  for (const int number : {2, 3, 4}) set_function_constant<int16_t>(FC_MUL_MV + number, 1);
  in_every_order([&](Order order) {
    std::vector<float> y(size_t{rows} * tokens, NAN);
    emulator::dispatch({.kernel = kernel,
                        .groups = {(rows + rows_of_group - 1) / rows_of_group, tokens},
                        .threads = {32, static_cast<uint32_t>(simdgroups)},
                        .order = order,
                        .threadgroup_bytes = threadgroup_bytes},
                       {{0, buffer_of(args)}, {1, buffer_of(weights.blocks)}, {2, buffer_of(x)}, {3, buffer_of(y)}});
    expect_close(kernel, y, products(weights.values, x, rows, cols), 1e-6);
  });
}

TEST(LlamaKernels, MatrixVectorOfQ8_0) {
  judge_matrix_vector("kernel_mul_mv_q8_0_f32", DType::q8_0, N_SG_Q8_0, N_R0_Q8_0, {32 * sizeof(float) * N_R0_Q8_0});
}
TEST(LlamaKernels, MatrixVectorOfQ4_K) {
  judge_matrix_vector("kernel_mul_mv_q4_K_f32", DType::q4_k, 1, N_R0_Q4_K, {});
}

// Tiles of 64 rows and 32 tokens in half precision, multiplied as simdgroup matrices; both edges cut.
void judge_matrix_matrix(const std::string& kernel, DType dtype) {
  const int32_t rows = 70;
  const int32_t cols = 256;
  const int32_t tokens = 37;
  const Weights weights = quantized(dtype, rows, cols);
  const std::vector<float> x = random_values(size_t{cols} * tokens, 13);
  const auto args = product_args<ggml_metal_kargs_mul_mm>(dtype, rows, cols, tokens);
  set_function_constant<bool>(FC_MUL_MM + 0, false);
  set_function_constant<bool>(FC_MUL_MM + 1, true);
  for (const int number : {2, 3, 4, 5}) set_function_constant<int16_t>(FC_MUL_MM + number, 1);
  const std::vector<double> want = products(floats(halves(weights.values)), floats(halves(x)), rows, cols);
  in_every_order([&](Order order) {
    std::vector<float> y(size_t{rows} * tokens, NAN);
    emulator::dispatch({.kernel = kernel,
                        .groups = {(tokens + 31) / 32, (rows + 63) / 64},
                        .threads = {128},
                        .order = order,
                        .threadgroup_bytes = {8192}},
                       {{0, buffer_of(args)}, {1, buffer_of(weights.blocks)}, {2, buffer_of(x)}, {3, buffer_of(y)}});
    // A weight is made in float or in half arithmetic, by type.
    expect_close(kernel, y, want, dtype == DType::q8_0 ? 1e-6 : 1e-3);
  });
}

TEST(LlamaKernels, MatrixMatrixOfQ8_0) {
  judge_matrix_matrix("kernel_mul_mm_q8_0_f32", DType::q8_0);
}
TEST(LlamaKernels, MatrixMatrixOfQ4_K) {
  judge_matrix_matrix("kernel_mul_mm_q4_K_f32", DType::q4_k);
}

TEST(LlamaKernels, RmsNorm) {
  const int32_t width = 500;
  const int32_t rows = 3;
  const std::vector<float> x = random_values(size_t{width} * rows, 14);
  const std::vector<float> weight = random_values(width, 15);
  ggml_metal_kargs_norm args = {};
  args.ne00 = width;
  args.ne00_t = width / 4;
  args.nb1 = args.nbf1[0] = width * sizeof(float);
  args.eps = 1e-5F;
  for (int i = 0; i < 3; ++i) args.nef1[i] = args.nef2[i] = args.nef3[i] = 1;
  args.nef1[0] = rows;
  std::vector<double> want;
  for (size_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += std::pow(static_cast<double>(x[row * width + i]), 2.0);
    for (size_t i = 0; i < width; ++i)
      want.push_back(x[row * width + i] * weight[i] / std::sqrt(sum / width + args.eps));
  }
  in_every_order([&](Order order) {
    std::vector<float> y(x.size(), NAN);
    emulator::dispatch(
        {.kernel = "kernel_rms_norm_mul_f32_4",
         .groups = {rows},
         .threads = {96},
         .order = order,
         .threadgroup_bytes = {32 * sizeof(float)}},
        {{0, buffer_of(args)}, {1, buffer_of(x)}, {2, buffer_of(weight)}, {3, buffer_of(weight)}, {4, buffer_of(y)}});
    expect_close("kernel_rms_norm_mul_f32_4", y, want, 1e-6);
  });
}

// Scores [heads, rows, width] plus a mask [rows, width], and a sink per head.
TEST(LlamaKernels, SoftMax) {
  const int32_t width = 75;
  const int32_t rows = 3;
  const int32_t heads = 2;
  const std::vector<float> x = random_values(size_t{width} * rows * heads, 16);
  const std::vector<float> mask = random_values(size_t{width} * rows, 17);
  const std::vector<float> sinks = random_values(heads, 18);
  ggml_metal_kargs_soft_max args = {};
  args.ne00 = width;
  args.ne01 = args.ne11 = rows;
  args.ne02 = heads;
  args.nb01 = args.nb11 = args.nb1 = width * sizeof(float);
  args.nb02 = args.nb12 = args.nb2 = args.nb1 * rows;
  args.ne12 = args.ne13 = 1;
  args.scale = 2.0F;
  std::vector<double> want;
  for (size_t row = 0; row < size_t{heads} * rows; ++row) {
    double sum = std::exp(static_cast<double>(sinks[row / rows]));
    std::vector<double> weights;
    for (size_t i = 0; i < width; ++i) {
      weights.push_back(std::exp(2.0 * x[row * width + i] + mask[row % rows * width + i]));
      sum += weights.back();
    }
    for (const double weight : weights) want.push_back(weight / sum);
  }
  in_every_order([&](Order order) {
    std::vector<float> y(x.size(), NAN);
    emulator::dispatch(
        {.kernel = "kernel_soft_max_f32",
         .groups = {rows, heads},
         .threads = {64},
         .order = order,
         .threadgroup_bytes = {32 * sizeof(float)}},
        {{0, buffer_of(args)}, {1, buffer_of(x)}, {2, buffer_of(mask)}, {3, buffer_of(sinks)}, {4, buffer_of(y)}});
    expect_close("kernel_soft_max_f32", y, want, 1e-6);
  });
}

// Attention of 10 queries, the last of 76 positions, in 4 heads on 2; keys, values and mask in half precision.
struct Attention {
  static constexpr int32_t kWidth = 64;
  static constexpr int32_t kKeys = 76;
  static constexpr int32_t kQueries = 10;
  static constexpr int32_t kPaddedQueries = 16;  // these kernels read whole tiles of the mask
  static constexpr int32_t kHeads = 4;
  static constexpr int32_t kKvHeads = 2;
  bool extras;  // a soft cap and sinks
  float scale = 0.25F;
  float softcap = 2.0F;
  std::vector<float> q = random_values(size_t{kWidth} * kQueries * kHeads, 19);
  std::vector<f16> keys = halves(random_values(size_t{kWidth} * kKeys * kKvHeads, 20));
  std::vector<f16> values = halves(random_values(size_t{kWidth} * kKeys * kKvHeads, 21));
  std::vector<float> sinks = random_values(kHeads, 22);
  std::vector<f16> mask = std::vector<f16>(size_t{kPaddedQueries} * kKeys, inferno::to_f16(-INFINITY));

  explicit Attention(bool with_extras) : extras(with_extras) {
    for (size_t query = 0; query < kQueries; ++query) {
      for (size_t key = 0; key < visible(query); ++key) mask[query * kKeys + key] = inferno::to_f16(0.0F);
    }
  }
  static size_t visible(size_t query) { return kKeys - kQueries + query + 1; }

  // [query, head, width]
  [[nodiscard]] std::vector<double> wanted() const {
    const std::vector<float> rounded = floats(halves(q));
    const std::vector<float> k = floats(keys);
    const std::vector<float> v = floats(values);
    std::vector<double> all;
    for (size_t query = 0; query < kQueries; ++query) {
      for (size_t head = 0; head < kHeads; ++head) {
        const size_t kv = head / (kHeads / kKvHeads) * kKeys * kWidth;
        const std::vector<double> one =
            attend({.scale = scale, .softcap = extras ? softcap : 0.0, .has_sink = extras, .sink = sinks[head]},
                   &rounded[(head * kQueries + query) * kWidth], &k[kv], &v[kv], visible(query), kWidth);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return all;
  }

  template <typename Args>
  [[nodiscard]] Args args() const {
    Args a = {};
    a.ne01 = kQueries;
    a.ne02 = kHeads;
    a.ne03 = 1;
    a.nb01 = kWidth * sizeof(float);
    a.nb02 = a.nb01 * kQueries;
    a.nb03 = a.nb02 * kHeads;
    a.ne11 = kKeys;
    a.ne_12_2 = kKvHeads;
    a.ne_12_3 = 1;
    a.ns10 = a.ns20 = kWidth;
    a.nb11 = a.nb21 = kWidth * sizeof(f16);
    a.nb12 = a.nb22 = a.nb11 * kKeys;
    a.nb13 = a.nb23 = a.nb12 * kKvHeads;
    a.ne31 = kQueries;
    a.ne32 = a.ne33 = 1;
    a.nb31 = kKeys * sizeof(f16);
    a.nb32 = a.nb33 = a.nb31 * kQueries;
    a.ne1 = kHeads;
    a.ne2 = kQueries;
    a.ne3 = 1;
    a.scale = extras ? scale / softcap : scale;
    a.logit_softcap = extras ? softcap : 0.0F;
    return a;
  }

  // The constants that both kernels have at the same places.
  void set_constants(int first, int32_t simdgroups) const {
    set_function_constant<bool>(first + 0, true);  // mask
    set_function_constant<bool>(first + 1, extras);
    set_function_constant<bool>(first + 2, false);  // bias
    set_function_constant<bool>(first + 3, extras);
    set_function_constant<bool>(first + 4, true);  // padding
    set_function_constant<int32_t>(first + 20, kWidth);
    set_function_constant<int32_t>(first + 21, kWidth);
    set_function_constant<int32_t>(first + 22, simdgroups);
  }

  // The last positions, filled up to a block of `block`, as a kernel of theirs writes them.
  [[nodiscard]] std::vector<std::byte> padding(int32_t block, Order order) const {
    const auto a = args<ggml_metal_kargs_flash_attn_ext>();
    const ggml_metal_kargs_flash_attn_ext_pad pad = {.ne11 = a.ne11,
                                                     .ne_12_2 = a.ne_12_2,
                                                     .ne_12_3 = a.ne_12_3,
                                                     .nb11 = a.nb11,
                                                     .nb12 = a.nb12,
                                                     .nb13 = a.nb13,
                                                     .nb21 = a.nb21,
                                                     .nb22 = a.nb22,
                                                     .nb23 = a.nb23,
                                                     .ne31 = a.ne31,
                                                     .ne32 = a.ne32,
                                                     .ne33 = a.ne33,
                                                     .nb31 = a.nb31,
                                                     .nb32 = a.nb32,
                                                     .nb33 = a.nb33};
    set_function_constant<bool>(FC_FLASH_ATTN_EXT_PAD + 0, true);
    set_function_constant<int32_t>(FC_FLASH_ATTN_EXT_PAD + 25, block);
    // Whole tiles of the mask are read here, too.
    const size_t bytes = static_cast<size_t>(block) * (2 * a.nb11 * kKvHeads + sizeof(f16) * kPaddedQueries);
    std::vector<std::byte> to(bytes);
    emulator::dispatch(
        {.kernel = "kernel_flash_attn_ext_pad",
         .groups = {static_cast<uint32_t>(block), kKvHeads},
         .threads = {32},
         .order = order},
        {{0, buffer_of(pad)}, {1, buffer_of(keys)}, {2, buffer_of(values)}, {3, buffer_of(mask)}, {4, buffer_of(to)}});
    return to;
  }

  // Which tiles of the mask need a look.
  [[nodiscard]] std::vector<char> tiles(int32_t queries, int32_t block, Order order) const {
    const auto a = args<ggml_metal_kargs_flash_attn_ext>();
    const ggml_metal_kargs_flash_attn_ext_blk blk = {.ne01 = a.ne01,
                                                     .ne30 = a.ne11,
                                                     .ne31 = a.ne31,
                                                     .ne32 = 1,
                                                     .ne33 = 1,
                                                     .nb31 = a.nb31,
                                                     .nb32 = a.nb32,
                                                     .nb33 = a.nb33};
    set_function_constant<int32_t>(FC_FLASH_ATTN_EXT_BLK + 24, queries);
    set_function_constant<int32_t>(FC_FLASH_ATTN_EXT_BLK + 25, block);
    const auto rows = static_cast<uint32_t>((kQueries + queries - 1) / queries);
    const auto cols = static_cast<uint32_t>((kKeys + block - 1) / block);
    std::vector<char> to(size_t{rows} * cols);
    emulator::dispatch({.kernel = "kernel_flash_attn_ext_blk", .groups = {cols, rows}, .threads = {32}, .order = order},
                       {{0, buffer_of(blk)}, {1, buffer_of(mask)}, {2, buffer_of(to)}});
    return to;
  }
};

TEST(LlamaKernels, FlashAttention) {
  constexpr int32_t kSimdgroups = 4;
  constexpr int32_t kTile = OP_FLASH_ATTN_EXT_NQPSG;
  constexpr int32_t kBlock = OP_FLASH_ATTN_EXT_NCPSG;
  constexpr size_t kBytes = kTile * (Attention::kWidth * 3 + 4 * kBlock) * sizeof(f16);
  for (const bool extras : {false, true}) {
    const Attention c(extras);
    const auto args = c.args<ggml_metal_kargs_flash_attn_ext>();
    const std::vector<double> want = c.wanted();
    c.set_constants(FC_FLASH_ATTN_EXT, kSimdgroups);
    set_function_constant<bool>(FC_FLASH_ATTN_EXT + 10, true);  // the last tile of queries is not full
    in_every_order([&](Order order) {
      const std::vector<std::byte> padding = c.padding(kBlock, order);
      const std::vector<char> tiles = c.tiles(kTile, kBlock, order);
      std::vector<float> out(want.size(), NAN);
      emulator::dispatch({.kernel = "kernel_flash_attn_ext_f16_dk64_dv64",
                          .groups = {(Attention::kQueries + kTile - 1) / kTile, Attention::kHeads},
                          .threads = {32, kSimdgroups},
                          .order = order,
                          .threadgroup_bytes = {kBytes}},
                         {{0, buffer_of(args)},
                          {1, buffer_of(c.q)},
                          {2, buffer_of(c.keys)},
                          {3, buffer_of(c.values)},
                          {4, buffer_of(c.mask)},
                          {5, buffer_of(c.sinks)},
                          {6, buffer_of(padding)},
                          {7, buffer_of(tiles)},
                          {8, buffer_of(out)}});
      expect_close("kernel_flash_attn_ext_f16_dk64_dv64", out, want, 1e-5);
    });
  }
}

void judge_attention_of_one_query(const Attention& c, int32_t simdgroups, Order order) {
  constexpr int32_t kBlock = OP_FLASH_ATTN_EXT_VEC_NCPSG;
  const size_t bytes = static_cast<size_t>(simdgroups) * (128 + 4 * kBlock + 2 * 128) * sizeof(f16);
  const auto args = c.args<ggml_metal_kargs_flash_attn_ext_vec>();
  const std::vector<double> want = c.wanted();
  c.set_constants(FC_FLASH_ATTN_EXT_VEC, simdgroups);
  set_function_constant<int32_t>(FC_FLASH_ATTN_EXT_VEC + 23, 1);
  const std::vector<std::byte> padding = c.padding(kBlock, order);
  std::vector<float> out(want.size(), NAN);
  emulator::dispatch({.kernel = "kernel_flash_attn_ext_vec_f16_dk64_dv64",
                      .groups = {Attention::kQueries, Attention::kHeads},
                      .threads = {32, static_cast<uint32_t>(simdgroups)},
                      .order = order,
                      .threadgroup_bytes = {bytes}},
                     {{0, buffer_of(args)},
                      {1, buffer_of(c.q)},
                      {2, buffer_of(c.keys)},
                      {3, buffer_of(c.values)},
                      {4, buffer_of(c.mask)},
                      {5, buffer_of(c.sinks)},
                      {6, buffer_of(padding)},
                      {7, buffer_of(out)}});
  expect_close("kernel_flash_attn_ext_vec_f16_dk64_dv64", out, want, 1e-5);
}

TEST(LlamaKernels, FlashAttentionOfOneQuery) {
  for (const bool extras : {false, true}) {
    const Attention c(extras);
    in_every_order([&](Order order) { judge_attention_of_one_query(c, 1, order); });
    // Where simdgroups are joined, lane 0 of this kernel overwrites what the others of its simdgroup read, without a
    // barrier between: right where lanes run in lockstep, or in this order.
    judge_attention_of_one_query(c, 2, Order::reverse);
  }
}

}  // namespace
}  // namespace judges
