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

Prepared prepare(const Input& in, std::initializer_list<const Weight*> weights, int queue, std::byte* shared,
                 std::byte* local, const Worker& w) noexcept {
  const bool redundant = in.tokens <= kRedundantTokens;
  std::byte* memory = redundant ? local : shared;
  auto* rewritten = reinterpret_cast<float*>(memory);
  memory += matrix_bytes(in.tokens, in.k);
  std::array<const ActivationLayout*, kMaxInputs> layouts = {};
  std::array<std::byte*, kMaxInputs> buffers = {};
  size_t count = 0;
  int64_t step = 1;
  Prepared prepared;
  size_t i = 0;
  for (const Weight* weight : weights) {
    if (weight != nullptr) {
      const ActivationLayout* layout = cpu(weight).kernel().activation;
      const auto found = std::find(layouts.begin(), layouts.begin() + static_cast<ptrdiff_t>(count), layout);
      const auto at = static_cast<size_t>(found - layouts.begin());
      if (at == count) {
        layouts[at] = layout;
        buffers[at] = memory;
        memory += aligned(layout->bytes(in.tokens, in.k));
        step = std::max(step, layout->row_step);
        ++count;
      }
      prepared.buffer[i] = buffers[at];
    }
    ++i;
  }
  const auto convert = [&](Range rows) {
    const float* x = in.x;
    int64_t stride = in.stride;
    if (in.norm != nullptr || in.rows != nullptr) {
      for (int64_t t = rows.begin; t < rows.end; ++t) {
        const float* from = in.x + (in.rows != nullptr ? in.rows[t] : t) * in.stride;
        float* to = rewritten + t * in.k;
        if (in.norm != nullptr) {
          w.kernels->rms_norm(from, in.norm, in.eps, to, in.k);
        } else {
          std::copy_n(from, in.k, to);
        }
      }
      x = rewritten;
      stride = in.k;
    }
    for (size_t l = 0; l < count; ++l) {
      layouts[l]->prepare(x, stride, in.tokens, in.k, rows.begin, rows.end, buffers[l]);
    }
  };
  if (redundant) {
    convert({0, in.tokens});
    return prepared;
  }
  w.for_chunks(queue, {in.tokens, step}, kMinTokens, convert);
  w.barrier();
  return prepared;
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

void project_rows(const Projection& projection, int64_t tokens, Range rows, std::byte* scratch,
                  const Worker& w) noexcept {
  const auto& [weight, activations, residual, bias, out] = projection;
  const int64_t n = weight->rows();
  if (residual != nullptr && residual != out) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(residual + t * n + rows.begin, rows.size(), out + t * n + rows.begin);
    }
  }
  multiply(weight, activations, tokens, rows, out, n, residual != nullptr, scratch, w);
  for (int64_t t = 0; t < tokens && bias != nullptr; ++t) {
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
