#include "backend/cpu/products.h"

#include <algorithm>

#include "base/checked.h"

namespace inferno::cpu {
namespace {

// The smallest chunk of rows of a product of many tokens: kernels reuse activations for several rows while they are in
// a near cache.
constexpr int64_t kMinRows = 32;
// The smallest chunk of tokens to convert: a tile of some kernels, which two workers must not write at the same time.
constexpr int64_t kMinTokens = 16;

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

}  // namespace

int64_t matrix_bytes(int64_t rows, int64_t cols) {
  return aligned(rows * cols * static_cast<int64_t>(sizeof(float)));
}

// f32 memory for the normalized or gathered rows, then one buffer per distinct layout.
int64_t prepared_bytes(std::initializer_list<const Weight*> weights, int64_t tokens, int64_t k) {
  int64_t total = matrix_bytes(tokens, k);
  for (const Weight* w : weights) {
    if (w != nullptr) total += aligned(cpu(w).kernel().activation->bytes(tokens, k));
  }
  return total;
}

int64_t kernel_scratch(std::initializer_list<const Weight*> weights, int64_t tokens) {
  int64_t most = 0;
  for (const Weight* w : weights) {
    if (w != nullptr) most = std::max(most, cpu(w).kernel().scratch_bytes(w->cols(), tokens));
  }
  return aligned(most);
}

Conversion::Conversion(const Input& input, std::initializer_list<const Weight*> weights, std::byte* memory)
    : input_(input), rewritten_(reinterpret_cast<float*>(memory)) {
  if (input.norm != nullptr || input.rows != nullptr) memory += matrix_bytes(input.tokens, input.k);
  size_t i = 0;
  for (const Weight* weight : weights) {
    if (weight != nullptr) {
      const ActivationLayout* layout = cpu(weight).kernel().activation;
      const auto found = std::find(layouts_.begin(), layouts_.begin() + static_cast<ptrdiff_t>(count_), layout);
      const auto at = static_cast<size_t>(found - layouts_.begin());
      if (at == count_) {
        layouts_[at] = layout;
        buffers_[at] = memory;
        memory += aligned(layout->bytes(input.tokens, input.k));
        step = std::max(step, layout->row_step);
        ++count_;
      }
      prepared.buffer[i] = buffers_[at];
    }
    ++i;
  }
}

void Conversion::convert(Range rows, const KernelTable& kernels) const noexcept {
  const float* x = input_.x;
  int64_t stride = input_.stride;
  if (input_.norm != nullptr || input_.rows != nullptr) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const float* from = input_.x + (input_.rows != nullptr ? input_.rows[t] : t) * input_.stride;
      float* to = rewritten_ + t * input_.k;
      if (input_.norm != nullptr) {
        kernels.rms_norm(from, input_.norm, input_.eps, to, input_.k);
      } else {
        std::copy_n(from, input_.k, to);
      }
    }
    x = rewritten_;
    stride = input_.k;
  }
  for (size_t l = 0; l < count_; ++l) {
    layouts_[l]->prepare(x, stride, input_.tokens, input_.k, rows.begin, rows.end, buffers_[l]);
  }
}

void Conversion::convert_part(const float* x, int64_t stride, Range rows, Range columns) const noexcept {
  layouts_[0]->prepare_part(x, stride, input_.tokens, input_.k, rows.begin, rows.end, columns.begin, columns.end,
                            buffers_[0]);
}

Prepared prepare(const Input& in, std::initializer_list<const Weight*> weights, int queue, std::byte* shared,
                 std::byte* local, const Worker& w) noexcept {
  const bool redundant = in.tokens <= kRedundantTokens;
  const Conversion conversion(in, weights, redundant ? local : shared);
  if (redundant) {
    conversion.convert({0, in.tokens}, *w.kernels);
    return conversion.prepared;
  }
  w.for_chunks(queue, {in.tokens, conversion.step}, kMinTokens,
               [&](Range rows) { conversion.convert(rows, *w.kernels); });
  w.barrier();
  return conversion.prepared;
}

const void* tokens_from(const Weight* weight, const void* activations, int64_t token) {
  return static_cast<const std::byte*>(activations) + cpu(weight).kernel().activation->offset(token, weight->cols());
}

void multiply(const Weight* weight, const void* activations, int64_t tokens, Range rows, float* out, int64_t out_stride,
              bool accumulate, std::byte* scratch, const Worker& w) noexcept {
  const LinearKernel& kernel = cpu(weight).kernel();
  LinearTask task{.weight = cpu(weight).groups(),
                  .activations = activations,
                  .k = weight->cols(),
                  .tokens = tokens,
                  .row_begin = rows.begin,
                  .row_end = rows.end,
                  .out = out,
                  .out_stride = out_stride,
                  .accumulate = accumulate,
                  .scratch = scratch};
  // One thread, or few that hardly wait, are faster with the kernels' own prefetching.
  if (w.counts != nullptr && tokens <= kernel.prefetch_tokens) {
    const std::span<const MemoryRange> ranges = w.prefetcher->prefetches_for(memory_of(weight, rows));
    if (!ranges.empty()) task.prefetch = ranges.data();
    task.prefetch_count = static_cast<int64_t>(ranges.size());
  }
  kernel.run(task);
}

Piece rows_of(const Weight* weight) {
  return {weight->rows(), cpu(weight).slice_step()};
}
int64_t min_rows(int64_t tokens) {
  return tokens < kManyTokens ? 1 : kMinRows;
}

MemoryRange memory_of(const Weight* weight, Range rows) {
  const WeightLayout& layout = *cpu(weight).kernel().weight;
  const int64_t group = layout.group_bytes(weight->cols());
  return {static_cast<const std::byte*>(cpu(weight).groups()) + rows.begin / layout.row_group * group,
          ceil_div(rows.size(), layout.row_group) * group};
}
MemoryRange slice_of(const Weight* weight, const Worker& w) {
  const Piece rows = rows_of(weight);
  return memory_of(weight, w.slice(rows.count, rows.step));
}

void project_rows(const Projection& projection, Range tokens, Range rows, std::byte* scratch,
                  const Worker& w) noexcept {
  const auto& [weight, activations, residual, bias, out] = projection;
  const int64_t n = weight->rows();
  if (residual != nullptr && residual != out) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      std::copy_n(residual + t * n + rows.begin, rows.size(), out + t * n + rows.begin);
    }
  }
  const void* block = tokens.begin == 0 ? activations : tokens_from(weight, activations, tokens.begin);
  multiply(weight, block, tokens.size(), rows, out + tokens.begin * n, n, residual != nullptr, scratch, w);
  for (int64_t t = tokens.begin; t < tokens.end && bias != nullptr; ++t) {
    float* o = out + t * n + rows.begin;
    w.kernels->add(o, bias + rows.begin, o, rows.size());
  }
}

void project(std::span<const Projection> projections, int queue, int64_t tokens, std::byte* scratch,
             const Worker& w) noexcept {
  project(projections, queue, tokens, scratch, w, [](size_t /*product*/, Range /*rows*/) {});
}

void finish_row(const Output& output, float* y, int64_t token, int64_t n, const KernelTable& kernels) noexcept {
  float* out = output.out + token * n;
  if (output.post_norm != nullptr) {
    const int64_t cols = output.post_norm->cols();
    for (int64_t c = 0; c < n; c += cols) {
      kernels.rms_norm(y + c, cpu(output.post_norm).vector(), output.eps, y + c, cols);
    }
  }
  kernels.scale(y, output.residual_scale, y, n);
  if (output.residual != nullptr) {
    kernels.add(y, output.residual + token * n, out, n);
  } else {
    std::copy_n(y, n, out);
  }
  if (output.scale != 1) kernels.scale(out, output.scale, out, n);
}

void finish_rows(const Output& output, float* y, int64_t tokens, int64_t n, int queue, const Worker& w) noexcept {
  w.for_chunks(queue, {tokens, 1}, 1, [&](Range rows) {
    for (int64_t t = rows.begin; t < rows.end; ++t) finish_row(output, y + t * n, t, n, *w.kernels);
  });
}

void project_output(const Weight* weight, const Weight* bias, const void* activations, const Output& output, float* y,
                    int queue, int64_t tokens, const Worker& w) noexcept {
  const bool plain = output.plain();
  const Projection product{weight, activations, plain ? output.residual : nullptr, vector_or_null(bias),
                           plain ? output.out : y};
  project({&product, 1}, queue, tokens, w.local, w);
  if (plain) return;
  w.barrier();
  finish_rows(output, y, tokens, weight->rows(), kFinish, w);
}

}  // namespace inferno::cpu
