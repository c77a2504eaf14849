// Embedding, norm, linear, the MLP and the logits on the CPU.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/products.h"
#include "backend/op_extras.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

// With many tokens: the block of rows of gate and up that is multiplied before its SwiGLU.
constexpr int64_t kGateRows = 128;

// Both products are split at the same rows, whatever the two kernels' steps, so that one worker has both factors.
Piece rows_of_both(const Weight* gate, const Weight* up) {
  return {gate->rows(), std::max(cpu(gate).slice_step(), cpu(up).slice_step())};
}
int64_t gate_rows(const Weight* gate, const Weight* up) {
  return round_up(kGateRows, rows_of_both(gate, up).step);
}
// The local memory of gate_and_up; joined layers have both products there.
int64_t gate_block_bytes(const Weight* gate, const Weight* up, int64_t tokens) {
  return tokens < kManyTokens ? 0 : matrix_bytes(tokens, 2 * gate_rows(gate, up));
}

// f(gate) * up into `out`, then done(rows); `up_out` is shared memory for the up product, `gate_block` local memory.
// Both weights have the same number of rows.
template <typename Done>
void gate_and_up(const Weight* gate, const Weight* up, Activation activation, const Prepared& x, int64_t tokens,
                 float* out, float* up_out, float* gate_block, std::byte* scratch, const Worker& w,
                 Done done) noexcept {
  const int64_t n = gate->rows();
  const auto gated_product = w.kernels->gated[static_cast<size_t>(activation)];
  w.for_chunks(0, rows_of_both(gate, up), min_rows(tokens), [&](Range rows) {
    const bool many = tokens >= kManyTokens;
    const int64_t block = many ? gate_rows(gate, up) : rows.size();
    float* up_block = up_out + tokens * rows.begin;  // the memory of these rows holds one block of them at a time
    for (int64_t begin = rows.begin; begin < rows.end; begin += block) {
      const Range part = {begin, std::min(begin + block, rows.end)};
      // Rows of `out` are a large power of two apart and map to few sets of the cache: many tokens would evict each
      // other.
      float* gated = many ? gate_block : out + part.begin;
      const int64_t gated_stride = many ? part.size() : n;
      multiply(gate, x.buffer[0], tokens, part, gated - part.begin, gated_stride, false, scratch, w);
      multiply(up, x.buffer[1], tokens, part, up_block - part.begin, part.size(), false, scratch, w);
      for (int64_t t = 0; t < tokens; ++t) {
        gated_product(gated + t * gated_stride, up_block + t * part.size(), out + t * n + part.begin, part.size());
      }
    }
    done(rows);
  });
}

// Whether a product's input of one row is converted by the workers that produce it, unit by unit as units are
// completed.
bool producers_convert(const Weight* weight, int64_t tokens, const Worker& w) {
  return tokens == 1 && w.counts != nullptr && cpu(weight).kernel().activation->prepare_columns != nullptr;
}
// Columns `produced` of x, the only row of the weight's input, are complete: the worker that completes a unit of blocks
// converts it.
void convert_produced(const Weight* weight, const float* x, Range produced, void* buffer, const Worker& w) noexcept {
  const ActivationLayout& layout = *cpu(weight).kernel().activation;
  const int64_t k = weight->cols();
  const int64_t unit = layout.block * ceil_div(k / layout.block, w.nth);
  const auto columns = [&](int64_t u) { return Range{u * unit, std::min((u + 1) * unit, k)}; };
  count_completed(
      w.counts, kUnits, w.nth, produced, unit, [&](int64_t u) { return columns(u).size(); },
      [&](int64_t u) { layout.prepare_columns(x, k, columns(u).begin, columns(u).end, buffer); });
}

}  // namespace

// ---- embed, rms_norm

OpScratch scratch_of(const EmbedArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = row_bytes(a.table->dtype(), a.table->cols())};
}

void run(const EmbedArgs& a, const Worker& w) noexcept {
  run(GatherRowsArgs{.table = a.table, .indices = a.ids, .out = a.out}, w);
  if (a.scale == 1) return;
  w.barrier();
  run(ScaleArgs{.x = a.out, .s = a.scale, .out = a.out}, w);
}

void run(const RmsNormArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.weight != nullptr ? a.weight->cols() : a.x.cols();
  const Range rows = w.slice(a.x.elements() / cols);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    norm_row(a.x.f32() + r * cols, vector_or_null(a.weight), a.eps, a.out.f32() + r * cols, cols, *w.kernels);
  }
}

// ---- linear

namespace {

// Of a result that is not written to `out` directly: the up product, or the product before its norm.
int64_t result_bytes(const LinearArgs& a, int64_t tokens) {
  if (a.epilogue == Epilogue::swiglu) return matrix_bytes(tokens, a.w[1]->rows());
  return is_plain(a) ? 0 : matrix_bytes(tokens, a.w[0]->rows());
}

}  // namespace

OpScratch scratch_of(const LinearArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  const int64_t prepared = prepared_bytes({a.w[0], a.w[1], a.w[2]}, tokens, a.x.cols());
  const int64_t gate = a.epilogue == Epilogue::swiglu ? gate_block_bytes(a.w[0], a.w[1], tokens) : 0;
  return {.shared = result_bytes(a, tokens) + prepared,
          .local = kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens) +
                   std::max(prepared_bytes({a.w[0], a.w[1], a.w[2]}, kRedundantTokens, a.x.cols()), gate),
          .converted = cpu(a.w[0]).kernel().activation->bytes(1, a.x.cols())};
}

void run(const LinearArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  Input in = input_of(a.x);
  in.tokens = tokens;
  in.rows = a.rows.empty() ? nullptr : a.rows.as<int32_t>();
  const int64_t result = result_bytes(a, tokens);
  std::byte* local = w.local + kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens);
  const Prepared x = w.input_is_converted
                         ? Prepared{{w.converted}}
                         : prepare(in, {a.w[0], a.w[1], a.w[2]}, kConvert, w.shared + result, local, w);
  if (a.epilogue == Epilogue::swiglu) {
    gate_and_up(a.w[0], a.w[1], Activation::silu, x, tokens, a.out[0].f32(), reinterpret_cast<float*>(w.shared),
                reinterpret_cast<float*>(local), w.local, w, [](Range /*rows*/) {});
    return;
  }
  if (!is_plain(a)) {
    const Output output{a.post_norm, a.eps, a.residual_scale, a.residual.f32(), a.out[0].f32(), a.out_scale};
    project_output(a.w[0], a.bias[0], x.buffer[0], output, reinterpret_cast<float*>(w.shared), 0, tokens, w);
    return;
  }
  std::array<Projection, LinearArgs::kMaxWeights> products;
  size_t count = 0;
  for (; count < LinearArgs::kMaxWeights && a.w[count] != nullptr; ++count) {
    products[count] = {a.w[count], x.buffer[count], a.residual.f32(), vector_or_null(a.bias[count]),
                       a.out[count].f32()};
  }
  project(std::span(products).first(count), 0, tokens, w.local, w);
}

void weight_ranges(const LinearArgs& a, const Worker& w, WeightRanges& ranges) {
  if (a.epilogue == Epilogue::swiglu) return;
  for (size_t i = 0; i < LinearArgs::kMaxWeights && a.w[i] != nullptr; ++i) ranges.add(slice_of(a.w[i], w));
}

// ---- gated_mlp: norm and convert | gate, up, activation | convert | down, residual. One token is converted as it is
// produced. A norm of the result follows after another barrier.

namespace {

// Gate and up are multiplied and activated block by block; else all of both is there before the activation.
bool activates_blocks(const GatedMlpArgs& a) {
  return a.gate != nullptr && a.bias[0] == nullptr && a.bias[1] == nullptr;
}

Output output_of(const GatedMlpArgs& a) {
  return {a.post_norm, a.eps, a.residual_scale, a.residual.f32(), a.out.f32(), a.out_scale};
}

// f(gate) * up, or f(up), into `out`; `other` is shared memory of the same size.
void activate_all(const GatedMlpArgs& a, const Prepared& x, float* out, float* other, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  const int64_t ffn = a.up->rows();
  const Projection gate{a.gate, x.buffer[0], nullptr, vector_or_null(a.bias[0]), out};
  const Projection up{a.up, x.buffer[1], nullptr, vector_or_null(a.bias[1]), a.gate != nullptr ? other : out};
  const std::array<Projection, 2> both = {up, gate};
  project(std::span(both).first(a.gate != nullptr ? 2 : 1), 0, tokens, w.local, w);
  w.barrier();
  const auto f = static_cast<size_t>(a.activation);
  w.for_chunks(kFinish + 1, {tokens, 1}, 1, [&](Range rows) {
    float* values = out + rows.begin * ffn;
    if (a.gate != nullptr) {
      w.kernels->gated[f](values, other + rows.begin * ffn, values, rows.size() * ffn);
    } else {
      w.kernels->activate[f](values, values, rows.size() * ffn);
    }
  });
}

}  // namespace

OpScratch scratch_of(const GatedMlpArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.x.rows();
  const int64_t k = a.x.cols();
  const int64_t ffn = a.up->rows();
  const int64_t blocks = activates_blocks(a) ? gate_block_bytes(a.gate, a.up, tokens) : 0;
  return {.shared = 2 * matrix_bytes(tokens, ffn) +
                    std::max(prepared_bytes({a.gate, a.up}, tokens, k), prepared_bytes({a.down}, tokens, ffn)) +
                    (output_of(a).plain() ? 0 : matrix_bytes(tokens, a.down->rows())),
          .local = kernel_scratch({a.gate, a.up, a.down}, tokens) +
                   std::max({prepared_bytes({a.gate, a.up}, kRedundantTokens, k),
                             prepared_bytes({a.down}, kRedundantTokens, ffn), blocks})};
}

void run(const GatedMlpArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  const int64_t ffn = a.up->rows();
  auto* activated = reinterpret_cast<float*>(w.shared);
  auto* up = reinterpret_cast<float*>(w.shared + matrix_bytes(tokens, ffn));
  std::byte* shared = w.shared + 2 * matrix_bytes(tokens, ffn);
  std::byte* local = w.local + kernel_scratch({a.gate, a.up, a.down}, tokens);
  const Prepared x = prepare(input_of(a.x, a.norm, a.eps), {a.gate, a.up}, kConvert, shared, local, w);
  const bool converted = activates_blocks(a) && producers_convert(a.down, tokens, w);
  if (activates_blocks(a)) {
    gate_and_up(a.gate, a.up, a.activation, x, tokens, activated, up, reinterpret_cast<float*>(local), w.local, w,
                [&](Range rows) {
                  if (converted) convert_produced(a.down, activated, rows, shared, w);
                });
  } else {
    activate_all(a, x, activated, up, w);
  }
  w.barrier(slice_of(a.down, w));
  const Input hidden{.x = activated, .stride = ffn, .tokens = tokens, .k = ffn};
  const Prepared h = converted ? Prepared{{shared}} : prepare(hidden, {a.down}, kConvertAgain, shared, local, w);
  // The input's memory is larger or free by now; the product before its norm is after both.
  const int64_t inputs =
      std::max(prepared_bytes({a.gate, a.up}, tokens, a.x.cols()), prepared_bytes({a.down}, tokens, ffn));
  project_output(a.down, a.bias[2], h.buffer[0], output_of(a), reinterpret_cast<float*>(shared + inputs), 2, tokens, w);
}

void weight_ranges(const GatedMlpArgs& a, const Worker& w, WeightRanges& ranges) {
  if (!activates_blocks(a)) {
    ranges.add(slice_of(a.up, w));
    if (a.gate != nullptr) ranges.add(slice_of(a.gate, w));
    ranges.add(slice_of(a.down, w));
    return;
  }
  for (uint32_t i = 0;; ++i) {
    const Range rows = w.own_chunk(rows_of_both(a.gate, a.up), min_rows(a.x.rows()), i);
    if (rows.empty()) break;
    ranges.add(memory_of(a.gate, rows));
    ranges.add(memory_of(a.up, rows));
  }
  ranges.add(slice_of(a.down, w));
}

// ---- layer_input: convert | gate | activation, convert | proj; norm and residual

namespace {

int64_t layer_inputs_bytes(const LayerInputArgs& a) {
  return std::max(prepared_bytes({a.gate}, a.x.rows(), a.x.cols()),
                  prepared_bytes({a.proj}, a.x.rows(), a.gate->rows()));
}

}  // namespace

OpScratch scratch_of(const LayerInputArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.x.rows();
  return {.shared = matrix_bytes(tokens, a.gate->rows()) + layer_inputs_bytes(a) + matrix_bytes(tokens, a.proj->rows()),
          .local = kernel_scratch({a.gate, a.proj}, tokens) +
                   std::max(prepared_bytes({a.gate}, kRedundantTokens, a.x.cols()),
                            prepared_bytes({a.proj}, kRedundantTokens, a.gate->rows()))};
}

void run(const LayerInputArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  const int64_t n = a.gate->rows();
  auto* gated = reinterpret_cast<float*>(w.shared);
  std::byte* shared = w.shared + matrix_bytes(tokens, n);
  std::byte* local = w.local + kernel_scratch({a.gate, a.proj}, tokens);
  const Prepared x = prepare(input_of(a.x), {a.gate}, kConvert, shared, local, w);
  const Projection gate{a.gate, x.buffer[0], nullptr, nullptr, gated};
  project({&gate, 1}, 0, tokens, w.local, w, [&](size_t /*product*/, Range rows) {
    for (int64_t t = 0; t < tokens; ++t) {
      float* values = gated + t * n + rows.begin;
      const float* part = a.inputs.f32() + t * a.inputs.cols() + a.first_column + rows.begin;
      w.kernels->gated[static_cast<size_t>(a.activation)](values, part, values, rows.size());
    }
  });
  w.barrier();
  const Input hidden{.x = gated, .stride = n, .tokens = tokens, .k = n};
  const Prepared h = prepare(hidden, {a.proj}, kConvertAgain, shared, local, w);
  const Output output{a.post_norm, a.eps, 1, a.x.f32(), a.out.f32(), a.out_scale};
  project_output(a.proj, nullptr, h.buffer[0], output, reinterpret_cast<float*>(shared + layer_inputs_bytes(a)), 2,
                 tokens, w);
}

// ---- logits

OpScratch scratch_of(const LogitsArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t rows = a.rows.elements();
  return {.shared = prepared_bytes({a.head}, rows, a.x.cols()),
          .local = kernel_scratch({a.head}, rows) + prepared_bytes({a.head}, kRedundantTokens, a.x.cols())};
}

void run(const LogitsArgs& a, const Worker& w) noexcept {
  Input in = input_of(a.x, a.norm, a.eps);
  in.tokens = a.rows.elements();
  in.rows = a.rows.as<int32_t>();
  const Prepared x = prepare(in, {a.head}, kConvert, w.shared, w.local + kernel_scratch({a.head}, in.tokens), w);
  const Projection head{a.head, x.buffer[0], nullptr, nullptr, a.out.f32()};
  if (is_plain(a)) {
    project({&head, 1}, 0, in.tokens, w.local, w);
    return;
  }
  project({&head, 1}, 0, in.tokens, w.local, w, [&](size_t /*product*/, Range rows) {
    for (int64_t t = 0; t < in.tokens; ++t) {
      float* part = a.out.f32() + t * a.out.cols() + rows.begin;
      w.kernels->scale(part, a.scale, part, rows.size());
      if (a.softcap != 0) w.kernels->soft_cap(part, a.softcap, part, rows.size());
    }
  });
}

void weight_ranges(const LogitsArgs& a, const Worker& w, WeightRanges& ranges) {
  ranges.add(slice_of(a.head, w));
}

}  // namespace inferno::cpu
