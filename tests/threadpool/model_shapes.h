// The matrices of two small models that people run, for tests and timings at real sizes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace inferno::testing {

struct MatrixShape {
  std::string_view name;
  int64_t rows;
  int64_t cols;
};

struct ModelShape {
  std::string_view name;
  int64_t width;
  int64_t ffn;
  int32_t q_heads;
  int32_t kv_heads;
  int32_t head_dim;
  int64_t vocabulary;
  int layers;
  bool bias;     // on q, k and v
  bool qk_norm;  // a norm per head
};

inline constexpr ModelShape kQwen2 = {"Qwen2-0.5B", 896, 4864, 14, 2, 64, 151936, 24, true, false};
inline constexpr ModelShape kQwen3 = {"Qwen3-0.6B", 1024, 3072, 16, 8, 128, 151936, 28, false, true};
inline constexpr std::array<const ModelShape*, 2> kModels = {&kQwen2, &kQwen3};

// The distinct products of a layer, gate and up as one, and the output head.
inline std::vector<MatrixShape> matrices_of(const ModelShape& m) {
  const int64_t q = int64_t{m.q_heads} * m.head_dim;
  std::vector<MatrixShape> matrices = {{"query", q, m.width}};
  if (q != m.width) matrices.push_back({"attention out", m.width, q});
  matrices.insert(matrices.end(),
                  {{"gate and up", 2 * m.ffn, m.width}, {"down", m.width, m.ffn}, {"head", m.vocabulary, m.width}});
  return matrices;
}

inline constexpr std::array<DType, 5> kShapeTypes = {DType::q8_0, DType::q5_0, DType::f16, DType::q4_k, DType::q6_k};

// Whether rows of `cols` elements are whole blocks of the type.
inline bool fits(DType dtype, int64_t cols) {
  return cols % dtype_info(dtype).block_size == 0;
}

}  // namespace inferno::testing
