// Linear, the fused projections around it, and the MLP on the CPU.
//
// Every worker computes some of the output rows for all tokens, so a matrix is read once, by all cores together, in
// decode and in prefill. Activations are converted once per op input and shared by all weights that read them.
#include <algorithm>
#include <array>
#include <span>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/cpu_weight.h"
#include "backend/cpu/kv_rows.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

// Up to this many tokens every worker converts the activations for itself: that is cheaper than a barrier.
constexpr int64_t kRedundantTokens = 1;
// From this many tokens on gate, up and SwiGLU go through kGateRows rows at a time, so that what they write for each
// other stays in a core's own cache.
constexpr int64_t kManyTokens = 32;
constexpr int64_t kGateRows = 128;
// Workers that share a product of as many tokens take no fewer rows at a time: kernels use activations for several rows
// while they have them at hand.
constexpr int64_t kLeastRows = 32;
// ... and no fewer tokens to convert: a tile of some kernels, which two workers must not write at the same time.
constexpr int64_t kLeastTokens = 16;

// What the workers of an op share, by queue: up to three products, activations converted before the first and in
// between, and whatever comes after the products.
constexpr int kConvert = 3;
constexpr int kConvertAgain = 4;
constexpr int kFinish = 5;
static_assert(kFinish < ChunkCounts::kQueues && LinearArgs::kMaxWeights <= kConvert);

const CpuWeight& cpu(const Weight* w) {
  return static_cast<const CpuWeight&>(*w);
}
const float* vector_or_null(const Weight* w) {
  return w == nullptr ? nullptr : cpu(w).vector();
}

// The rows a linear reads: all of x or a subset, normalized on the way if `norm` is given.
struct Input {
  const float* x = nullptr;
  int64_t stride = 0;
  int64_t tokens = 0;
  int64_t k = 0;
  const int32_t* rows = nullptr;
  const float* norm = nullptr;
  float eps = 0;
};

// One input converted to the layouts of up to three weights (equal layouts share one copy).
struct Prepared {
  std::array<const void*, 3> buffer = {};
};

int64_t aligned(int64_t bytes) {
  return round_up(bytes, 64);
}

int64_t normalized_bytes(int64_t tokens, int64_t k) {
  return aligned(tokens * k * static_cast<int64_t>(sizeof(float)));
}

// Scratch for prepare(): the normalized or gathered rows, then one buffer per distinct layout.
int64_t prepared_bytes(std::initializer_list<const Weight*> weights, int64_t tokens, int64_t k) {
  int64_t total = normalized_bytes(tokens, k);
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

// Converts `in` for the weights. With few tokens each worker does it into its own memory, else all share the rows and
// a barrier ends it.
Prepared prepare(const Input& in, std::initializer_list<const Weight*> weights, int queue, std::byte* shared,
                 std::byte* local, const Worker& w) noexcept {
  const bool redundant = in.tokens <= kRedundantTokens;
  std::byte* memory = redundant ? local : shared;
  auto* rewritten = reinterpret_cast<float*>(memory);
  memory += normalized_bytes(in.tokens, in.k);
  std::array<const ActivationLayout*, 3> layouts = {};
  std::array<std::byte*, 3> buffers = {};
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
  w.for_share(queue, {in.tokens, step}, kLeastTokens, convert);
  w.barrier();
  return prepared;
}

// Rows [rows.begin, rows.end) of one product, all tokens: token t's row r at out[t * out_stride + r].
void multiply(const Weight* weight, const void* activations, int64_t tokens, Range rows, float* out, int64_t out_stride,
              bool accumulate, std::byte* scratch) noexcept {
  cpu(weight).kernel().run({cpu(weight).groups(), activations, weight->cols(), tokens, rows.begin, rows.end, out,
                            out_stride, accumulate, scratch});
}

// The output rows of a product, and where they may be cut.
Piece rows_of(const Weight* weight) {
  return {weight->rows(), cpu(weight).slice_step()};
}
// Both products are cut at the same rows, whatever the two kernels' steps, so that one worker owns both halves.
Piece rows_of(const Weight* gate, const Weight* up) {
  return {gate->rows(), std::max(cpu(gate).slice_step(), cpu(up).slice_step())};
}
int64_t least_rows(int64_t tokens) {
  return tokens < kManyTokens ? 1 : kLeastRows;
}

// This worker's slice of a weight of which it multiplies its slice of `rows`.
ReadAhead slice_of(const Weight* weight, const Piece& rows, const Worker& w) {
  const Range mine = w.slice(rows.count, rows.step);
  const WeightLayout& layout = *cpu(weight).kernel().weight;
  const int64_t group = layout.group_bytes(weight->cols());
  return {static_cast<const std::byte*>(cpu(weight).groups()) + mine.begin / layout.row_group * group,
          mine.size() / layout.row_group * group};
}
ReadAhead slice_of(const Weight* weight, const Worker& w) {
  return slice_of(weight, rows_of(weight), w);
}

// out (+ residual) (+ bias) of one weight. The residual may be out itself.
struct Projection {
  const Weight* weight = nullptr;
  const void* activations = nullptr;
  const float* residual = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
};

// This worker's rows of up to three products, which use as many queues from `queue` on.
void project(std::span<const Projection> projections, int queue, int64_t tokens, std::byte* scratch,
             const Worker& w) noexcept {
  std::array<Piece, LinearArgs::kMaxWeights> pieces;
  for (size_t i = 0; i < projections.size(); ++i) pieces[i] = rows_of(projections[i].weight);
  w.for_shares(queue, std::span(pieces).first(projections.size()), least_rows(tokens), [&](size_t i, Range rows) {
    const auto& [weight, activations, residual, bias, out] = projections[i];
    const int64_t n = weight->rows();
    if (residual != nullptr && residual != out) {
      for (int64_t t = 0; t < tokens; ++t) {
        std::copy_n(residual + t * n + rows.begin, rows.size(), out + t * n + rows.begin);
      }
    }
    multiply(weight, activations, tokens, rows, out, n, residual != nullptr, scratch);
    for (int64_t t = 0; t < tokens && bias != nullptr; ++t) {
      float* o = out + t * n + rows.begin;
      w.kernels->add(o, bias + rows.begin, o, rows.size());
    }
  });
}
void project(const Projection& projection, int queue, int64_t tokens, std::byte* scratch, const Worker& w) noexcept {
  project({&projection, 1}, queue, tokens, scratch, w);
}

int64_t matrix_bytes(int64_t rows, int64_t cols) {
  return aligned(rows * cols * static_cast<int64_t>(sizeof(float)));
}

// Rows of gate and up that are multiplied before SwiGLU.
int64_t gate_rows(const Weight* gate, const Weight* up) {
  return round_up(kGateRows, rows_of(gate, up).step);
}
// A worker's memory for gate_and_up.
int64_t gate_block_bytes(const Weight* gate, const Weight* up, int64_t tokens) {
  return tokens < kManyTokens ? 0 : matrix_bytes(tokens, gate_rows(gate, up));
}

// silu(gate) * up into `out`; `up_out` is shared memory for the up product, `gate_block` this worker's. Both weights
// have as many rows.
void gate_and_up(const Weight* gate, const Weight* up, const Prepared& x, int64_t tokens, float* out, float* up_out,
                 float* gate_block, std::byte* scratch, const Worker& w) noexcept {
  const int64_t n = gate->rows();
  w.for_share(0, rows_of(gate, up), least_rows(tokens), [&](Range rows) {
    const bool many = tokens >= kManyTokens;
    const int64_t block = many ? gate_rows(gate, up) : rows.size();
    float* up_block = up_out + tokens * rows.begin;  // the memory of these rows holds one block of them at a time
    for (int64_t begin = rows.begin; begin < rows.end; begin += block) {
      const Range part = {begin, std::min(begin + block, rows.end)};
      // Far-apart parts of rows share few lines of a cache: many tokens would push each other out.
      float* gated = many ? gate_block : out + part.begin;
      const int64_t gated_stride = many ? part.size() : n;
      multiply(gate, x.buffer[0], tokens, part, gated - part.begin, gated_stride, false, scratch);
      multiply(up, x.buffer[1], tokens, part, up_block - part.begin, part.size(), false, scratch);
      for (int64_t t = 0; t < tokens; ++t) {
        w.kernels->swiglu(gated + t * gated_stride, up_block + t * part.size(), out + t * n + part.begin, part.size());
      }
    }
  });
}

}  // namespace

// ---- embed, rms_norm

OpScratch scratch_of(const EmbedArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  return {.local = row_bytes(a.table->dtype(), a.table->cols())};
}

void run(const EmbedArgs& a, const Worker& w) noexcept {
  run(GatherRowsArgs{.table = a.table, .indices = a.ids, .out = a.out}, w);
}

void run(const RmsNormArgs& a, const Worker& w) noexcept {
  const int64_t cols = a.weight->cols();
  const Range rows = w.slice(a.x.elements() / cols);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    w.kernels->rms_norm(a.x.f32() + r * cols, cpu(a.weight).vector(), a.eps, a.out.f32() + r * cols, cols);
  }
}

// ---- linear

OpScratch scratch_of(const LinearArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  const int64_t prepared = prepared_bytes({a.w[0], a.w[1], a.w[2]}, tokens, a.x.cols());
  const int64_t up = a.epilogue == Epilogue::swiglu ? matrix_bytes(tokens, a.w[1]->rows()) : 0;
  const int64_t gate = a.epilogue == Epilogue::swiglu ? gate_block_bytes(a.w[0], a.w[1], tokens) : 0;
  return {.shared = up + prepared,
          .local = kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens) +
                   std::max(prepared_bytes({a.w[0], a.w[1], a.w[2]}, kRedundantTokens, a.x.cols()), gate)};
}

void run(const LinearArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.rows.empty() ? a.x.rows() : a.rows.elements();
  const Input in{.x = a.x.f32(),
                 .stride = a.x.cols(),
                 .tokens = tokens,
                 .k = a.x.cols(),
                 .rows = a.rows.empty() ? nullptr : a.rows.as<int32_t>()};
  const int64_t up = a.epilogue == Epilogue::swiglu ? matrix_bytes(tokens, a.w[1]->rows()) : 0;
  std::byte* local = w.local + kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens);
  const Prepared x = prepare(in, {a.w[0], a.w[1], a.w[2]}, kConvert, w.shared + up, local, w);
  if (a.epilogue == Epilogue::swiglu) {
    gate_and_up(a.w[0], a.w[1], x, tokens, a.out[0].f32(), reinterpret_cast<float*>(w.shared),
                reinterpret_cast<float*>(local), w.local, w);
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

ReadAhead first_reads(const LinearArgs& a, const Worker& w) {
  return slice_of(a.w[0], w);
}

// ---- qkv_rope_store: norm and convert | three products | QK-norm, rotation and cache rows, per token and head

OpScratch scratch_of(const QkvRopeStoreArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.x.rows();
  const int64_t k = a.x.cols();
  return {.shared = 2 * matrix_bytes(tokens, a.w[1]->rows()) + prepared_bytes({a.w[0], a.w[1], a.w[2]}, tokens, k),
          .local = kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens) +
                   prepared_bytes({a.w[0], a.w[1], a.w[2]}, kRedundantTokens, k)};
}

void run(const QkvRopeStoreArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  const int64_t kv_cols = a.w[1]->rows();
  auto* k = reinterpret_cast<float*>(w.shared);
  auto* v = reinterpret_cast<float*>(w.shared + matrix_bytes(tokens, kv_cols));
  const Input in{.x = a.x.f32(),
                 .stride = a.x.cols(),
                 .tokens = tokens,
                 .k = a.x.cols(),
                 .norm = vector_or_null(a.norm),
                 .eps = a.eps};
  const Prepared x = prepare(in, {a.w[0], a.w[1], a.w[2]}, kConvert, w.shared + 2 * matrix_bytes(tokens, kv_cols),
                             w.local + kernel_scratch({a.w[0], a.w[1], a.w[2]}, tokens), w);
  const std::array<float*, 3> out = {a.q.f32(), k, v};
  std::array<Projection, 3> products;
  for (size_t i = 0; i < 3; ++i) {
    products[i] = {a.w[i], x.buffer[i], nullptr, vector_or_null(a.bias[i]), out[i]};
  }
  project(products, 0, tokens, w.local, w);
  w.barrier();

  const int64_t d = a.kv.head_dim;
  const int64_t q_heads = a.q.cols() / d;
  const int64_t heads = q_heads + a.kv.kv_heads;
  w.for_share(kFinish, {tokens * heads, 1}, 1, [&](Range items) {
    for (int64_t item = items.begin; item < items.end; ++item) {
      const int64_t t = item / heads;
      const int64_t h = item % heads;
      const bool query = h < q_heads;
      float* head = query ? a.q.f32() + t * a.q.cols() + h * d : k + t * kv_cols + (h - q_heads) * d;
      const Weight* norm = query ? a.q_norm : a.k_norm;
      if (norm != nullptr) w.kernels->rms_norm(head, cpu(norm).vector(), a.eps, head, d);
      rope_head(head, a.rope, a.batch.pos[t], *w.kernels);
      if (query) continue;
      store_kv_row(a.kv, a.batch.slot[t], h - q_heads, head, v + t * kv_cols + (h - q_heads) * d, *w.kernels);
    }
  });
}

ReadAhead first_reads(const QkvRopeStoreArgs& a, const Worker& w) {
  return slice_of(a.w[0], w);
}

// ---- gated_mlp: norm and convert | gate, up, SwiGLU | convert | down, residual

OpScratch scratch_of(const GatedMlpArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t tokens = a.x.rows();
  const int64_t k = a.x.cols();
  const int64_t ffn = a.gate->rows();
  return {.shared = 2 * matrix_bytes(tokens, ffn) +
                    std::max(prepared_bytes({a.gate, a.up}, tokens, k), prepared_bytes({a.down}, tokens, ffn)),
          .local = kernel_scratch({a.gate, a.up, a.down}, tokens) +
                   std::max({prepared_bytes({a.gate, a.up}, kRedundantTokens, k),
                             prepared_bytes({a.down}, kRedundantTokens, ffn), gate_block_bytes(a.gate, a.up, tokens)})};
}

void run(const GatedMlpArgs& a, const Worker& w) noexcept {
  const int64_t tokens = a.x.rows();
  const int64_t ffn = a.gate->rows();
  auto* activated = reinterpret_cast<float*>(w.shared);
  auto* up = reinterpret_cast<float*>(w.shared + matrix_bytes(tokens, ffn));
  std::byte* shared = w.shared + 2 * matrix_bytes(tokens, ffn);
  std::byte* local = w.local + kernel_scratch({a.gate, a.up, a.down}, tokens);
  const Input in{.x = a.x.f32(),
                 .stride = a.x.cols(),
                 .tokens = tokens,
                 .k = a.x.cols(),
                 .norm = vector_or_null(a.norm),
                 .eps = a.eps};
  const Prepared x = prepare(in, {a.gate, a.up}, kConvert, shared, local, w);
  gate_and_up(a.gate, a.up, x, tokens, activated, up, reinterpret_cast<float*>(local), w.local, w);
  w.barrier(slice_of(a.down, w));
  const Prepared h =
      prepare({.x = activated, .stride = ffn, .tokens = tokens, .k = ffn}, {a.down}, kConvertAgain, shared, local, w);
  project({a.down, h.buffer[0], a.residual.f32(), nullptr, a.out.f32()}, 1, tokens, w.local, w);
}

ReadAhead first_reads(const GatedMlpArgs& a, const Worker& w) {
  return slice_of(a.gate, rows_of(a.gate, a.up), w);
}

// ---- logits

OpScratch scratch_of(const LogitsArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const int64_t rows = a.rows.elements();
  return {.shared = prepared_bytes({a.head}, rows, a.x.cols()),
          .local = kernel_scratch({a.head}, rows) + prepared_bytes({a.head}, kRedundantTokens, a.x.cols())};
}

void run(const LogitsArgs& a, const Worker& w) noexcept {
  const Input in{.x = a.x.f32(),
                 .stride = a.x.cols(),
                 .tokens = a.rows.elements(),
                 .k = a.x.cols(),
                 .rows = a.rows.as<int32_t>(),
                 .norm = vector_or_null(a.norm),
                 .eps = a.eps};
  const Prepared x = prepare(in, {a.head}, kConvert, w.shared, w.local + kernel_scratch({a.head}, in.tokens), w);
  project({a.head, x.buffer[0], nullptr, nullptr, a.out.f32()}, 0, in.tokens, w.local, w);
}

ReadAhead first_reads(const LogitsArgs& a, const Worker& w) {
  return slice_of(a.head, w);
}

// ---- one rank: nothing to exchange

void run(const AllReduceArgs& /*a*/, const Worker& /*w*/) noexcept {}
void run(const AllGatherArgs& /*a*/, const Worker& /*w*/) noexcept {}

}  // namespace inferno::cpu
