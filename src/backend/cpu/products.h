// What the ops with matrix products share: inputs converted once for all weights that read them, rows divided among the
// workers, and the products themselves.
//
// Every worker computes some of the output rows for all tokens, so a matrix is read once, by all cores together, in
// decode and in prefill. Activations are converted once per op input and shared by all weights that read them.
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/worker.h"
#include "backend/op_args.h"

namespace inferno::cpu {

// Up to this many tokens every worker converts the activations for itself: that is cheaper than a barrier.
inline constexpr int64_t kRedundantTokens = 1;
// From this many tokens on gate, up and SwiGLU are blocked by rows, so that their intermediate results stay in a core's
// own cache, and workers claim chunks of at least kMinRows.
inline constexpr int64_t kManyTokens = 32;

// The work queues of an op: up to three products, activations converted before the first product and between them, and
// what follows the products. Then the completion counts of the units of a result that are used as soon as each is
// complete.
inline constexpr int kConvert = 3;
inline constexpr int kConvertAgain = 4;
inline constexpr int kFinish = 5;
inline constexpr int kUnits = 6;
inline constexpr int kUnitQueues = ChunkCounts::kQueues - kUnits;
static_assert(kUnitQueues >= 1 && LinearArgs::kMaxWeights <= kConvert);

[[nodiscard]] inline const CpuWeight& cpu(const Weight* w) {
  return static_cast<const CpuWeight&>(*w);
}
[[nodiscard]] inline const float* vector_or_null(const Weight* w) {
  return w == nullptr ? nullptr : cpu(w).vector();
}

// The rows a linear reads: all of x or a subset, normalized first if `norm` is given.
struct Input {
  const float* x = nullptr;
  int64_t stride = 0;
  int64_t tokens = 0;
  int64_t k = 0;
  const int32_t* rows = nullptr;
  const float* norm = nullptr;
  float eps = 0;
};

// All rows of x, normalized if `norm` is given.
[[nodiscard]] inline Input input_of(const Tensor& x, const Weight* norm = nullptr, float eps = 0) {
  return {
      .x = x.f32(), .stride = x.cols(), .tokens = x.rows(), .k = x.cols(), .norm = vector_or_null(norm), .eps = eps};
}

// One input converted to the layouts of up to four weights (equal layouts share one copy).
inline constexpr size_t kMaxInputs = 4;
struct Prepared {
  std::array<const void*, kMaxInputs> buffer = {};
};

// Bytes of scratch memory, multiples of 64: f32 [rows, cols]; what prepare() needs; what the kernels do.
[[nodiscard]] int64_t matrix_bytes(int64_t rows, int64_t cols);
[[nodiscard]] int64_t prepared_bytes(std::initializer_list<const Weight*> weights, int64_t tokens, int64_t k);
[[nodiscard]] int64_t kernel_scratch(std::initializer_list<const Weight*> weights, int64_t tokens);

// The conversion of an input for some weights: its layouts, each once, and where they are in memory of
// prepared_bytes().
struct Conversion {
  Conversion(const Input& input, std::initializer_list<const Weight*> weights, std::byte* memory);
  // Some rows of the input.
  void convert(Range rows, const KernelTable& kernels) const noexcept;
  // Some columns of some rows, for a single layout that has parts: x is the first of them, rows are `stride` apart.
  void convert_part(const float* x, int64_t stride, Range rows, Range columns) const noexcept;

  Prepared prepared;
  int64_t step = 1;  // rows are divided at multiples of this

 private:
  Input input_;
  float* rewritten_;  // [tokens, k], where rows are normalized or gathered
  std::array<const ActivationLayout*, kMaxInputs> layouts_ = {};
  std::array<std::byte*, kMaxInputs> buffers_ = {};
  size_t count_ = 0;
};

// Converts `in` for the weights. With few tokens each worker converts all rows into its own memory, else the workers
// divide the rows and a barrier follows.
[[nodiscard]] Prepared prepare(const Input& in, std::initializer_list<const Weight*> weights, int queue,
                               std::byte* shared, std::byte* local, const Worker& w) noexcept;

// The output rows of a product, and the step at whose multiples they may be split.
[[nodiscard]] Piece rows_of(const Weight* weight);
[[nodiscard]] int64_t min_rows(int64_t tokens);
// The memory of rows that start at a group of the layout.
[[nodiscard]] MemoryRange memory_of(const Weight* weight, Range rows);
// This worker's slice of a weight.
[[nodiscard]] MemoryRange slice_of(const Weight* weight, const Worker& w);

// Where a block of tokens (ActivationLayout::offset) begins in the input of a product.
[[nodiscard]] const void* tokens_from(const Weight* weight, const void* activations, int64_t token);

// Rows [rows.begin, rows.end) of one product, all tokens: token t's row r at out[t * out_stride + r].
void multiply(const Weight* weight, const void* activations, int64_t tokens, Range rows, float* out, int64_t out_stride,
              bool accumulate, std::byte* scratch, const Worker& w) noexcept;

// out (+ residual) (+ bias) of one weight. The residual may be out itself.
struct Projection {
  const Weight* weight = nullptr;
  const void* activations = nullptr;
  const float* residual = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
};
// Some rows; of all tokens, or of a block of them.
void project_rows(const Projection& projection, Range tokens, Range rows, std::byte* scratch, const Worker& w) noexcept;

// This worker's rows of up to three products, one queue each from `queue` on; done(product, rows) after each range.
template <typename Done>
void project(std::span<const Projection> projections, int queue, int64_t tokens, std::byte* scratch, const Worker& w,
             Done done) noexcept {
  std::array<Piece, LinearArgs::kMaxWeights> pieces;
  for (size_t i = 0; i < projections.size(); ++i) pieces[i] = rows_of(projections[i].weight);
  w.for_chunks(queue, std::span(pieces).first(projections.size()), min_rows(tokens), [&](size_t i, Range rows) {
    project_rows(projections[i], {0, tokens}, rows, scratch, w);
    done(i, rows);
  });
}
void project(std::span<const Projection> projections, int queue, int64_t tokens, std::byte* scratch,
             const Worker& w) noexcept;

// What follows a product y [tokens, n] with its bias: out = scale * (residual + residual_scale * norm(y)). Whole rows,
// so all of y must be there; y is changed. finish_row: y is the row of one token. The norm may be of parts of a row.
struct Output {
  const Weight* post_norm = nullptr;
  float eps = 0;
  float residual_scale = 1;
  const float* residual = nullptr;
  float* out = nullptr;
  float scale = 1;

  // Without a norm and scales the residual is simply added to the product.
  [[nodiscard]] bool plain() const { return post_norm == nullptr && residual_scale == 1 && scale == 1; }
};
void finish_row(const Output& output, float* y, int64_t token, int64_t n, const KernelTable& kernels) noexcept;
void finish_rows(const Output& output, float* y, int64_t tokens, int64_t n, int queue, const Worker& w) noexcept;
// The product of one weight and what follows it; `y` is memory of all workers [tokens, rows], for an output that is not
// plain.
void project_output(const Weight* weight, const Weight* bias, const void* activations, const Output& output, float* y,
                    int queue, int64_t tokens, const Worker& w) noexcept;

}  // namespace inferno::cpu
