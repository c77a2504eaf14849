// The mixture of experts on the CPU.
//
// One token: norm and convert | router | choose; gate and up of its experts | convert; down and the sum over experts.
// The rows of all its experts are divided among the workers as if they were one matrix, and no others are read.
// More tokens: norm and convert | router | choose | group by expert; convert | gate and up | convert | down | the sum
// over each token's experts. A pair is a token and one of its experts; pairs are ordered by expert, then by token.
// Either way a token's result is the same sum, best expert first: other tokens of the step change no bit of it.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"
#include "backend/routing.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

// With many tokens: the rows of one expert that a worker multiplies at a time.
constexpr int64_t kExpertRows = 128;
// Work queues beside those of products.h.
constexpr int kGateUp = 1;
constexpr int kDown = 2;
constexpr int kGather = 6;
constexpr int kConvertExperts = 7;

int64_t in_lines(int64_t bytes) {
  return round_up(bytes, 64);
}

struct Sizes {
  explicit Sizes(const MoeMlpArgs& a)
      : tokens(a.x.rows()),
        d(a.x.cols()),
        experts(a.router->rows()),
        ffn(a.up->shape()[1]),
        used(a.routing.used),
        pairs(tokens * used) {}
  int64_t tokens, d, experts, ffn, used, pairs;
};

// Bytes of converted input per pair, whatever the number of an expert's pairs: layouts of few tokens differ from those
// of many, and tiles are padded.
int64_t pair_bytes(const Weight* w, int64_t k, int64_t tokens) {
  constexpr int64_t kLargestTile = 64;
  int64_t most = 0;
  for (int64_t n = 1; n <= std::min(tokens, kLargestTile); ++n) {
    most = std::max(most, ceil_div(cpu(w).kernel().activation->bytes(n, k), n));
  }
  return in_lines(most);
}

// The first matrix of an expert: without a gate it is up.
const Weight* first_of(const MoeMlpArgs& a) {
  return a.gate != nullptr ? a.gate : a.up;
}
// Gate and up read the same converted input.
bool shares_input(const MoeMlpArgs& a) {
  return cpu(first_of(a)).kernel().activation == cpu(a.up).kernel().activation;
}

// Where things are in the memory of all workers.
struct Places {
  Places(const MoeMlpArgs& a, const Sizes& s) {
    const auto take = [&](int64_t size) {
      const int64_t begin = bytes;
      bytes += in_lines(size);
      return begin;
    };
    input = take(prepared_bytes({a.router}, s.tokens, s.d));
    logits = take(matrix_bytes(s.tokens, s.experts));
    weights = take(matrix_bytes(s.tokens, s.used));
    ids = take(matrix_bytes(s.tokens, s.used));
    activated = take(matrix_bytes(s.pairs, s.ffn));
    up = take(matrix_bytes(s.pairs, s.ffn));
    y = take(matrix_bytes(s.pairs, s.d));
    if (s.tokens == 1) return;
    gate_pair = pair_bytes(first_of(a), s.d, s.tokens);
    up_pair = shares_input(a) ? 0 : pair_bytes(a.up, s.d, s.tokens);
    down_pair = pair_bytes(a.down, s.ffn, s.tokens);
    gate_input = take(s.pairs * gate_pair);
    up_input = take(s.pairs * up_pair);
    down_input = take(s.pairs * down_pair);
  }
  int64_t input = 0;                                     // what prepare() needs
  int64_t logits = 0;                                    // f32 [tokens, experts]
  int64_t weights = 0;                                   // f32 [tokens, used]
  int64_t ids = 0;                                       // i32 [tokens, used]
  int64_t activated = 0, up = 0;                         // f32 [pairs, ffn]
  int64_t y = 0;                                         // f32 [pairs, d]
  int64_t gate_input = 0, up_input = 0, down_input = 0;  // converted, an expert's at its first pair
  int64_t gate_pair = 0, up_pair = 0, down_pair = 0;     // bytes
  int64_t bytes = 0;
};

// Pairs by expert. Every worker makes its own: that is cheaper than a barrier.
struct Groups {
  int32_t* begin;   // [experts + 1]: the first pair of each expert
  int32_t* order;   // [pairs]: token * used + rank, of each pair
  int32_t* place;   // [pairs]: the inverse
  int32_t* active;  // [experts]: those with pairs
  int64_t count;    // of these
};
int64_t groups_bytes(const Sizes& s) {
  return in_lines((2 * s.pairs + 2 * s.experts + 1) * static_cast<int64_t>(sizeof(int32_t)));
}
Groups group_pairs(const Sizes& s, const int32_t* ids, std::byte* memory) noexcept {
  Groups g{};
  g.begin = reinterpret_cast<int32_t*>(memory);
  g.order = g.begin + s.experts + 1;
  g.place = g.order + s.pairs;
  g.active = g.place + s.pairs;
  std::fill_n(g.begin, s.experts + 1, 0);
  for (int64_t i = 0; i < s.pairs; ++i) ++g.begin[ids[i] + 1];
  for (int64_t e = 0; e < s.experts; ++e) {
    if (g.begin[e + 1] > 0) g.active[g.count++] = static_cast<int32_t>(e);
    g.begin[e + 1] += g.begin[e];
  }
  for (int64_t i = 0; i < s.pairs; ++i) {
    const int32_t at = g.begin[ids[i]]++;
    g.order[at] = static_cast<int32_t>(i);
    g.place[i] = at;
  }
  // Each begin has moved to the next expert's.
  for (int64_t e = s.experts; e > 0; --e) g.begin[e] = g.begin[e - 1];
  g.begin[0] = 0;
  return g;
}

int64_t step_of_both(const MoeMlpArgs& a) {
  return std::max(cpu(first_of(a)).slice_step(), cpu(a.up).slice_step());
}

void add_bias(const Weight* bias, int64_t expert, int64_t n, Range rows, float* out, int64_t tokens, int64_t stride,
              const Worker& w) noexcept {
  if (bias == nullptr) return;
  const float* values = cpu(bias).vector() + expert * n + rows.begin;
  for (int64_t t = 0; t < tokens; ++t) {
    float* o = out + t * stride + rows.begin;
    w.kernels->add(o, values, o, rows.size());
  }
}

// Rows of one expert of a product with its bias, all tokens: token t's row r at out[t * stride + r].
void multiply_expert(const Weight* weight, const Weight* bias, int64_t expert, const void* activations, int64_t tokens,
                     Range rows, float* out, int64_t stride, const Worker& w) noexcept {
  cpu(weight).kernel().run({.weight = cpu(weight).groups(expert),
                            .activations = activations,
                            .k = weight->cols(),
                            .tokens = tokens,
                            .row_begin = rows.begin,
                            .row_end = rows.end,
                            .out = out,
                            .out_stride = stride,
                            .accumulate = false,
                            .scratch = w.local});
  add_bias(bias, expert, weight->shape()[1], rows, out, tokens, stride, w);
}

// Rows of f(gate) * up, or of f(up), of one expert; `up` is memory like `out`.
void activate_expert(const MoeMlpArgs& a, int64_t expert, const void* gate_input, const void* up_input, int64_t tokens,
                     Range rows, float* out, float* up, const Worker& w) noexcept {
  const int64_t ffn = a.up->shape()[1];
  const auto f = static_cast<size_t>(a.activation);
  multiply_expert(a.up, a.bias[1], expert, up_input, tokens, rows, up, ffn, w);
  if (a.gate != nullptr) multiply_expert(a.gate, a.bias[0], expert, gate_input, tokens, rows, out, ffn, w);
  for (int64_t t = 0; t < tokens; ++t) {
    float* o = out + t * ffn + rows.begin;
    const float* u = up + t * ffn + rows.begin;
    if (a.gate != nullptr) {
      w.kernels->gated[f](o, u, o, rows.size());
    } else {
      w.kernels->activate[f](u, o, rows.size());
    }
  }
}

// What `shared` is multiplied by.
float shared_factor(const MoeMlpArgs& a, const float* h, const Worker& w) noexcept {
  if (a.shared_gate == nullptr) return 1;
  return 1 / (1 + std::exp(-w.kernels->dot(h, cpu(a.shared_gate).vector(), a.x.cols())));
}

// sum (+)= factor * y, in one way for every number of columns: a product that is rounded, then a sum. y is changed.
void add_scaled(float factor, float* y, bool first, float* sum, int64_t n, const Worker& w) noexcept {
  if (first) {
    w.kernels->scale(y, factor, sum, n);
    return;
  }
  w.kernels->scale(y, factor, y, n);
  w.kernels->add(sum, y, sum, n);
}
// Columns of `shared` of a token onto its sum; `memory`: as many floats.
void add_shared(const MoeMlpArgs& a, float factor, int64_t token, Range columns, float* sum, float* memory,
                const Worker& w) noexcept {
  if (a.shared.empty()) return;
  std::copy_n(a.shared.f32() + token * a.x.cols() + columns.begin, columns.size(), memory);
  add_scaled(factor, memory, false, sum, columns.size(), w);
}

Output output_of(const MoeMlpArgs& a) {
  return {a.post_norm, a.eps, a.residual_scale, a.residual.f32(), a.out.f32(), a.out_scale};
}

// A token's whole sum over experts, after which `shared` comes where the sum has a norm; `memory`: a row.
void finish_token(const MoeMlpArgs& a, const Output& output, int64_t token, const float* h, float* sum, float* memory,
                  const Worker& w) noexcept {
  const int64_t d = a.x.cols();
  if (a.experts_norm != nullptr) w.kernels->rms_norm(sum, cpu(a.experts_norm).vector(), a.eps, sum, d);
  if (!a.shared.empty() && a.experts_norm != nullptr) {
    add_shared(a, shared_factor(a, h, w), token, {0, d}, sum, memory, w);
  }
  finish_row(output, sum, token, d, *w.kernels);
}

// The part of local memory after the kernels' own.
std::byte* after_kernels(const MoeMlpArgs& a, const Sizes& s, const Worker& w) {
  return w.local + kernel_scratch({a.router, a.gate, a.up, a.down}, s.tokens);
}

void route(const MoeMlpArgs& a, const Sizes& s, const Places& at, int64_t token, float* scores, int32_t* ids,
           float* weights, const Worker& w) noexcept {
  const auto* logits = reinterpret_cast<const float*>(w.shared + at.logits);
  route_row(logits + token * s.experts, vector_or_null(a.selection_bias), s.experts, a.routing, scores, ids, weights);
  if (a.expert_scale == nullptr) return;
  for (int64_t j = 0; j < s.used; ++j) weights[j] *= cpu(a.expert_scale).vector()[ids[j]];
}

// The logits of all tokens; ends with a barrier. Returns the input of the experts, of one token converted for them.
Prepared project_router(const MoeMlpArgs& a, const Sizes& s, const Places& at, std::byte* local,
                        const Worker& w) noexcept {
  const Weight* gate = s.tokens == 1 ? a.gate : nullptr;
  const Weight* up = s.tokens == 1 ? a.up : nullptr;
  const bool apart = a.router_norm != nullptr;
  const Input in = input_of(a.x, apart ? a.router_norm : a.norm, a.eps);
  const Prepared x =
      prepare(in, {a.router, apart ? nullptr : gate, apart ? nullptr : up}, kConvert, w.shared + at.input, local, w);
  const Projection router{a.router, x.buffer[0], nullptr, vector_or_null(a.router_bias),
                          reinterpret_cast<float*>(w.shared + at.logits)};
  project({&router, 1}, 0, s.tokens, w.local, w);
  w.barrier();
  if (!apart) return x;
  // In the memory of the router's input, which is read no more.
  return prepare(input_of(a.x, a.norm, a.eps), {nullptr, gate, up}, kConvertExperts, w.shared + at.input, local, w);
}

// ---- one token

// Of local memory: the converted input, scores, weights and ids, the converted inputs of down, two rows of results.
struct LocalPlaces {
  LocalPlaces(const MoeMlpArgs& a, const Sizes& s) {
    const auto take = [&](int64_t size) {
      const int64_t begin = bytes;
      bytes += in_lines(size);
      return begin;
    };
    input = take(prepared_bytes({a.router, a.gate, a.up}, 1, s.d));
    scores = take(matrix_bytes(2, s.experts));
    weights = take(matrix_bytes(1, s.used));
    ids = take(matrix_bytes(1, s.used));
    down_bytes = in_lines(cpu(a.down).kernel().activation->bytes(1, s.ffn));
    down_input = take(s.used * down_bytes);
    sum = take(matrix_bytes(1, s.d));
    product = take(matrix_bytes(1, s.d));
  }
  int64_t input = 0, scores = 0, weights = 0, ids = 0, down_input = 0, sum = 0, product = 0;
  int64_t down_bytes = 0;  // of one row
  int64_t bytes = 0;
};

void run_one(const MoeMlpArgs& a, const Sizes& s, const Worker& w) noexcept {
  const Places at(a, s);
  const LocalPlaces here(a, s);
  std::byte* local = after_kernels(a, s, w);
  const auto f32 = [&](int64_t place) { return reinterpret_cast<float*>(local + place); };
  const Prepared x = project_router(a, s, at, local + here.input, w);
  const float* h = a.norm != nullptr ? f32(here.input) : a.x.f32();
  float* weights = f32(here.weights);
  auto* ids = reinterpret_cast<int32_t*>(local + here.ids);
  route(a, s, at, 0, f32(here.scores), ids, weights, w);

  auto* activated = reinterpret_cast<float*>(w.shared + at.activated);
  auto* up = reinterpret_cast<float*>(w.shared + at.up);
  // Each expert has whole steps of rows.
  const int64_t step = step_of_both(a);
  const int64_t stride = round_up(s.ffn, step);
  w.for_chunks(kGateUp, {s.used * stride, step}, 1, [&](Range rows) {
    for (int64_t j = rows.begin / stride; j * stride < rows.end; ++j) {
      const Range part{std::max(rows.begin - j * stride, int64_t{0}), std::min(rows.end - j * stride, s.ffn)};
      if (part.empty()) continue;
      activate_expert(a, ids[j], x.buffer[1], x.buffer[2], 1, part, activated + j * s.ffn, up + j * s.ffn, w);
    }
  });
  w.barrier();

  std::byte* down_input = local + here.down_input;
  for (int64_t j = 0; j < s.used; ++j) {
    cpu(a.down).kernel().activation->prepare(activated + j * s.ffn, s.ffn, 1, s.ffn, 0, 1,
                                             down_input + j * here.down_bytes);
  }
  const Output output = output_of(a);
  const bool plain = output.plain() && a.experts_norm == nullptr;
  auto* y = reinterpret_cast<float*>(w.shared + at.y);
  const float shared = a.shared.empty() ? 0 : shared_factor(a, h, w);
  w.for_chunks(kDown, {s.d, cpu(a.down).slice_step()}, 1, [&](Range rows) {
    float* sum = f32(here.sum) + rows.begin;
    float* product = f32(here.product);
    for (int64_t j = 0; j < s.used; ++j) {
      multiply_expert(a.down, a.bias[2], ids[j], down_input + j * here.down_bytes, 1, rows, product, s.d, w);
      add_scaled(weights[j], product + rows.begin, j == 0, sum, rows.size(), w);
    }
    if (a.experts_norm == nullptr) add_shared(a, shared, 0, rows, sum, product + rows.begin, w);
    float* out = (plain ? output.out : y) + rows.begin;
    if (plain && output.residual != nullptr) {
      w.kernels->add(sum, output.residual + rows.begin, out, rows.size());
    } else {
      std::copy_n(sum, rows.size(), out);
    }
  });
  if (plain) return;
  w.barrier();
  w.for_chunks(kFinish, {1, 1}, 1, [&](Range /*token*/) { finish_token(a, output, 0, h, y, f32(here.product), w); });
}

// ---- many tokens

// The rows of each expert's tokens, converted for gate and up.
void gather_inputs(const MoeMlpArgs& a, const Sizes& s, const Places& at, const Groups& g, const float* h,
                   float* gathered, const Worker& w) noexcept {
  const ActivationLayout& gate = *cpu(first_of(a)).kernel().activation;
  const ActivationLayout& up = *cpu(a.up).kernel().activation;
  for (int64_t i = w.next_item(kGather, -1); i < g.count; i = w.next_item(kGather, i)) {
    const int64_t first = g.begin[g.active[i]];
    const int64_t tokens = g.begin[g.active[i] + 1] - first;
    for (int64_t p = 0; p < tokens; ++p) {
      std::copy_n(h + g.order[first + p] / s.used * s.d, s.d, gathered + p * s.d);
    }
    gate.prepare(gathered, s.d, tokens, s.d, 0, tokens, w.shared + at.gate_input + first * at.gate_pair);
    if (shares_input(a)) continue;
    up.prepare(gathered, s.d, tokens, s.d, 0, tokens, w.shared + at.up_input + first * at.up_pair);
  }
}

// Calls f(expert, first pair, tokens, rows) for blocks of rows of the experts that have tokens, on one worker each.
template <typename F>
void for_expert_rows(const Groups& g, int64_t rows, int64_t step, int queue, const Worker& w, F f) noexcept {
  const int64_t block = round_up(kExpertRows, step);
  const int64_t blocks = ceil_div(rows, block);
  for (int64_t i = w.next_item(queue, -1); i < g.count * blocks; i = w.next_item(queue, i)) {
    const int64_t expert = g.active[i / blocks];
    const int64_t first = g.begin[expert];
    const int64_t begin = i % blocks * block;
    f(expert, first, g.begin[expert + 1] - first, Range{begin, std::min(begin + block, rows)});
  }
}

void sum_experts(const MoeMlpArgs& a, const Sizes& s, const Places& at, const Groups& g, const float* h, float* memory,
                 const Worker& w) noexcept {
  auto* y = reinterpret_cast<float*>(w.shared + at.y);
  const auto* weights = reinterpret_cast<const float*>(w.shared + at.weights);
  const Output output = output_of(a);
  w.for_chunks(kFinish, {s.tokens, 1}, 1, [&](Range rows) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      float* sum = y + g.place[t * s.used] * s.d;
      for (int64_t j = 0; j < s.used; ++j) {
        add_scaled(weights[t * s.used + j], y + g.place[t * s.used + j] * s.d, j == 0, sum, s.d, w);
      }
      if (!a.shared.empty() && a.experts_norm == nullptr) {
        add_shared(a, shared_factor(a, h + t * s.d, w), t, {0, s.d}, sum, memory, w);
      }
      finish_token(a, output, t, h + t * s.d, sum, memory, w);
    }
  });
}

void run_many(const MoeMlpArgs& a, const Sizes& s, const Worker& w) noexcept {
  const Places at(a, s);
  std::byte* local = after_kernels(a, s, w);
  (void)project_router(a, s, at, local, w);
  const auto f32 = [&](int64_t place) { return reinterpret_cast<float*>(w.shared + place); };
  const float* h = a.norm != nullptr ? f32(at.input) : a.x.f32();
  auto* ids = reinterpret_cast<int32_t*>(w.shared + at.ids);
  const Range mine = w.slice(s.tokens);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    route(a, s, at, t, reinterpret_cast<float*>(local), ids + t * s.used, f32(at.weights) + t * s.used, w);
  }
  w.barrier();
  const Groups g = group_pairs(s, ids, local);
  auto* rows_memory = reinterpret_cast<float*>(local + groups_bytes(s));
  gather_inputs(a, s, at, g, h, rows_memory, w);
  w.barrier();

  for_expert_rows(g, s.ffn, step_of_both(a), kGateUp, w, [&](int64_t e, int64_t first, int64_t tokens, Range rows) {
    const std::byte* gate_input = w.shared + at.gate_input + first * at.gate_pair;
    const std::byte* up_input = shares_input(a) ? gate_input : w.shared + at.up_input + first * at.up_pair;
    activate_expert(a, e, gate_input, up_input, tokens, rows, f32(at.activated) + first * s.ffn,
                    f32(at.up) + first * s.ffn, w);
  });
  w.barrier();

  const ActivationLayout& down = *cpu(a.down).kernel().activation;
  for (int64_t i = w.next_item(kConvertAgain, -1); i < g.count; i = w.next_item(kConvertAgain, i)) {
    const int64_t first = g.begin[g.active[i]];
    const int64_t tokens = g.begin[g.active[i] + 1] - first;
    down.prepare(f32(at.activated) + first * s.ffn, s.ffn, tokens, s.ffn, 0, tokens,
                 w.shared + at.down_input + first * at.down_pair);
  }
  w.barrier();

  const int64_t step = cpu(a.down).slice_step();
  for_expert_rows(g, s.d, step, kDown, w, [&](int64_t e, int64_t first, int64_t tokens, Range rows) {
    multiply_expert(a.down, a.bias[2], e, w.shared + at.down_input + first * at.down_pair, tokens, rows,
                    f32(at.y) + first * s.d, s.d, w);
  });
  w.barrier();
  sum_experts(a, s, at, g, h, rows_memory, w);
}

}  // namespace

OpScratch scratch_of(const MoeMlpArgs& a, const KernelTable& /*kernels*/, int /*threads*/) {
  const Sizes s(a);
  const int64_t many = std::max(groups_bytes(s), matrix_bytes(2, s.experts)) + matrix_bytes(s.tokens, s.d);
  return {
      .shared = Places(a, s).bytes,
      .local = kernel_scratch({a.router, a.gate, a.up, a.down}, s.tokens) + std::max(LocalPlaces(a, s).bytes, many)};
}

void run(const MoeMlpArgs& a, const Worker& w) noexcept {
  const Sizes s(a);
  if (s.tokens == 1) {
    run_one(a, s, w);
  } else {
    run_many(a, s, w);
  }
}

}  // namespace inferno::cpu
