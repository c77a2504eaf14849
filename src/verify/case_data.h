// Random contents for op cases.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "backend/op_image.h"
#include "verify/op_cases.h"

namespace inferno {

// Fills images with values that depend on the seed alone.
class CaseData {
 public:
  CaseData(OpImage& image, uint32_t seed) : image_(image), state_(seed * 2654435761U + 1) {}

  [[nodiscard]] float normal();                // mean 0, deviation 1
  [[nodiscard]] int32_t below(int32_t limit);  // 0 .. limit - 1
  [[nodiscard]] Tensor normals(const Shape& shape, float scale = 1);
  [[nodiscard]] Tensor positives(const Shape& shape);  // 0.01 .. about 4
  [[nodiscard]] Tensor ints(const std::vector<int32_t>& values);
  [[nodiscard]] Tensor ints_below(int64_t count, int32_t limit);
  [[nodiscard]] Tensor output(const Shape& shape, DType dtype = DType::f32);  // all bits set
  // Rows of about unit length, so that products stay near 1.
  [[nodiscard]] const Weight* matrix(const char* name, DType dtype, int64_t rows, int64_t cols);
  [[nodiscard]] const Weight* matrix(const char* name, DType dtype, const Shape& shape);  // or several
  [[nodiscard]] const Weight* vector(const char* name, int64_t n, DType dtype = DType::f32);
  // (cos, sin) of positions 0 .. positions - 1.
  [[nodiscard]] RopeParams rope(int64_t positions, int32_t rotated_dims, RopePairing pairing);

  struct Cache {
    KvLayerView view;
    StepBatch batch;
  };
  // Sequences with pages in mixed order. Cached positions hold values; this step's own do when `stored`. With
  // `padding` one token's slot is -1.
  [[nodiscard]] Cache cache(const AttentionShape& shape, bool stored, bool padding = false);

  struct States {
    Tensor states;  // [slots, floats]
    StepBatch batch;
  };
  // Sequences with slots in mixed order; those with cached positions have a state.
  [[nodiscard]] States states(const std::vector<SequenceShape>& sequences, int64_t floats);

 private:
  [[nodiscard]] uint32_t next();

  OpImage& image_;
  uint32_t state_;
};

inline constexpr Activation kAllActivations[] = {
    Activation::silu,         Activation::gelu_tanh, Activation::gelu_erf, Activation::relu_squared,
    Activation::clamped_silu, Activation::sigmoid,   Activation::softplus};
static_assert(std::size(kAllActivations) == kActivations);

// Three sequences: one that decodes, one that begins, one that goes on.
[[nodiscard]] AttentionShape mixed_batch(DType kv, int32_t head_dim);

// Cases of the ops that carry a state.
[[nodiscard]] std::vector<OpCase> short_conv_cases(uint32_t seed);
[[nodiscard]] std::vector<OpCase> delta_net_cases(uint32_t seed);
[[nodiscard]] std::vector<OpCase> mamba2_cases(uint32_t seed);

// Cases of the ops that few families have: inputs of layers, latent attention.
[[nodiscard]] std::vector<OpCase> layer_input_cases(uint32_t seed);
[[nodiscard]] std::vector<OpCase> latent_store_cases(uint32_t seed);
[[nodiscard]] std::vector<OpCase> head_linear_cases(uint32_t seed);

// Cases of the arguments of an op that only some model families use (op_extras.h).
[[nodiscard]] std::vector<OpCase> extra_cases(OpId op, uint32_t seed);

}  // namespace inferno
