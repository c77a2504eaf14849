#include "backend/cpu/joined_layers.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_rows.h"
#include "backend/cpu/products.h"
#include "backend/op_extras.h"
#include "base/checked.h"

namespace inferno::cpu {
namespace {

// The fewest tokens of a block.
constexpr int64_t kMinBlockTokens = 32;
// The fewest blocks: with one, every stage waits for the end of the one before it. That is short with few threads, for
// whom it costs more that each block unpacks the weights.
constexpr int64_t least_blocks(int threads) {
  constexpr int kManyThreads = 4;
  return threads < kManyThreads ? 1 : 2;
}
// Tokens per sequence, at least: attention of single tokens reads memory, and prefetches more where it is an op of its
// own.
constexpr int64_t kTokensPerSequence = 8;
// The most rows of a unit of a product: activations of a block stay in a near cache for so many rows. Of long rows
// fewer, so that a unit takes no longer.
constexpr int64_t kUnitRows = 128;
constexpr int64_t kUnitRowsLong = 64;
constexpr int64_t kLongRow = 1024;
// Units are made smaller while a stage has fewer per worker than this, but not smaller than kMinUnitRows.
constexpr int64_t kUnitsPerWorker = 2;
constexpr int64_t kMinUnitRows = 32;
// Tokens of a unit of a conversion: a tile of the kernels that have tiles.
constexpr int64_t kUnitTokens = 16;

enum class LayerStage : uint8_t { input, project, attend, attended, output, mlp_input, gate, down };
static_assert(static_cast<int32_t>(LayerStage::down) + 1 == kLayerStages);
constexpr std::array<size_t, kLayerStages> kOpOfStage = {0, 0, 1, 2, 2, 3, 3, 3};
// A conversion is short: it is claimed directly before the products that read it.
constexpr std::array<int32_t, kLayerStages> kDelayOfStage = {0, 0, 1, 2, 2, 3, 3, 4};
constexpr int32_t kLayerDelay = 5;

LayerStage stage_of(int32_t stage) {
  return static_cast<LayerStage>(stage % kLayerStages);
}
template <typename T>
T of_stage(const std::array<T, kLayerStages>& values, int32_t stage) {
  return values[static_cast<size_t>(stage % kLayerStages)];
}

struct LayerArgs {
  const QkvRopeStoreArgs& qkv;
  const AttentionArgs& attention;
  const LinearArgs& output;
  const GatedMlpArgs& mlp;

  [[nodiscard]] int64_t tokens() const { return qkv.x.rows(); }
  [[nodiscard]] std::array<const Weight*, 7> weights() const {
    return {qkv.w[0], qkv.w[1], qkv.w[2], output.w[0], mlp.gate, mlp.up, mlp.down};
  }
};
LayerArgs layer_at(const Plan& plan, size_t op) {
  return {plan[op].args<QkvRopeStoreArgs>(), plan[op + 1].args<AttentionArgs>(), plan[op + 2].args<LinearArgs>(),
          plan[op + 3].args<GatedMlpArgs>()};
}

// ---- which layers

bool is_layer(const Plan& plan, size_t op) {
  if (op + kLayerOps > plan.size() || plan[op].op() != OpId::qkv_rope_store || plan[op + 1].op() != OpId::attention ||
      plan[op + 2].op() != OpId::linear || plan[op + 3].op() != OpId::gated_mlp) {
    return false;
  }
  const LayerArgs layer = layer_at(plan, op);
  const auto& [qkv, attention, output, mlp] = layer;
  if (!is_plain(qkv) || !is_plain(attention) || !is_plain(output) || !is_plain(mlp)) return false;
  const void* x = qkv.x.data;
  const bool one_stream = output.out[0].data == x && output.residual.data == x && mlp.x.data == x &&
                          mlp.out.data == x && mlp.residual.data == x && output.x.rows() == layer.tokens() &&
                          mlp.x.rows() == layer.tokens();
  const bool connected = attention.q.data == qkv.q.data && attention.kv.k == qkv.kv.k && !qkv.kv.v_in_k &&
                         output.x.data == attention.out.data && output.rows.empty() && output.w[1] == nullptr &&
                         output.epilogue == Epilogue::none;
  if (!one_stream || !connected) return false;
  // The results of a unit of whole heads are no larger than those of gate and up.
  for (const Weight* w : qkv.w) {
    if (round_up(kUnitRows, std::lcm(cpu(w).slice_step(), qkv.kv.head_dim)) > 2 * kUnitRows) return false;
  }
  const auto weights = layer.weights();
  return std::all_of(weights.begin(), weights.end(),
                     [](const Weight* w) { return cpu(w).kernel().activation->token_block > 0; }) &&
         cpu(mlp.down).kernel().activation->bytes(layer.tokens(), mlp.down->cols()) <=
             matrix_bytes(layer.tokens(), mlp.down->cols());
}

// Where a worker's memory for the results of a unit begins, after the scratch memory of the kernels.
int64_t results_begin(const LayerArgs& layer) {
  return kernel_scratch({layer.qkv.w[0], layer.qkv.w[1], layer.qkv.w[2], layer.mlp.gate, layer.mlp.up}, layer.tokens());
}

// Columns of the hidden rows that are converted together.
int64_t hidden_part(const GatedMlpArgs& mlp) {
  return cpu(mlp.down).kernel().activation->block;
}

// The blocks that so many tokens are divided into: none if there are too few.
int32_t block_count(int64_t tokens, int64_t block_tokens, int threads) {
  const auto count =
      static_cast<int32_t>(std::clamp<int64_t>(tokens / block_tokens, least_blocks(threads), kMaxTokenBlocks));
  return slice(tokens, count - 1, count, kUnitTokens).size() < kMinBlockTokens ? 0 : count;
}

// ---- units

// One worker's view of the pipeline.
struct Pipeline {
  const JoinedLayers& joined;
  const Worker& w;
  AttentionPlan attention;

  [[nodiscard]] Range tokens_of(const LayerArgs& layer, int32_t block) const {
    return slice(layer.tokens(), block, joined.grid.blocks, kUnitTokens);
  }
  // Rows of a unit of a product, a multiple of `step` too.
  [[nodiscard]] int64_t unit_rows(const Weight* weight, int64_t step = 1) const {
    int64_t rows = weight->cols() > kLongRow ? kUnitRowsLong : kUnitRows;
    while (rows > kMinUnitRows && ceil_div(weight->rows(), rows) * joined.grid.blocks < kUnitsPerWorker * w.nth) {
      rows /= 2;
    }
    return round_up(rows, std::lcm(cpu(weight).slice_step(), step));
  }
  [[nodiscard]] int64_t row_units(const Weight* weight, int64_t step = 1) const {
    return ceil_div(weight->rows(), unit_rows(weight, step));
  }
  [[nodiscard]] Range rows_of_unit(const Weight* weight, int64_t number, int64_t step = 1) const {
    const int64_t rows = unit_rows(weight, step);
    return {number * rows, std::min((number + 1) * rows, weight->rows())};
  }
  // Gate and up have the same rows.
  [[nodiscard]] static int64_t gate_step(const LayerArgs& layer) { return cpu(layer.mlp.up).slice_step(); }

  // The worker that computes the heads of a kv head converts them, if they are whole blocks; else that is a stage.
  [[nodiscard]] static bool converts_heads(const LayerArgs& layer) {
    const int64_t columns = layer.attention.out.cols() / layer.attention.kv.kv_heads;
    return columns % cpu(layer.output.w[0]).kernel().activation->block == 0;
  }

  [[nodiscard]] int64_t units(const LayerArgs& layer, LayerStage stage, int32_t block) const {
    const Range tokens = tokens_of(layer, block);
    switch (stage) {
      case LayerStage::project:
        return std::accumulate(
            std::begin(layer.qkv.w), std::end(layer.qkv.w), int64_t{0},
            [&](int64_t sum, const Weight* weight) { return sum + row_units(weight, layer.qkv.kv.head_dim); });
      case LayerStage::attend: {
        int64_t items = 0;
        for_each_block(layer.attention, attention, tokens,
                       [&](const QueryBlock& /*queries*/) { items += layer.attention.kv.kv_heads; });
        return items;
      }
      case LayerStage::attended:
        return converts_heads(layer) ? 0 : ceil_div(tokens.size(), kUnitTokens);
      case LayerStage::output:
        return row_units(layer.output.w[0]);
      case LayerStage::gate:
        return row_units(layer.mlp.gate, gate_step(layer));
      case LayerStage::down:
        return row_units(layer.mlp.down);
      case LayerStage::input:
      case LayerStage::mlp_input:
        break;
    }
    return ceil_div(tokens.size(), kUnitTokens);
  }
};

enum class HeadKind : uint8_t { query, key, value };

// A head of a token as the product gives it: norm, rotation, and the row of the cache.
void finish_product(const QkvRopeStoreArgs& a, HeadKind kind, int64_t token, int64_t head, float* x,
                    const KernelTable& kernels) noexcept {
  const int64_t d = a.kv.head_dim;
  if (kind != HeadKind::value) {
    const Weight* norm = kind == HeadKind::query ? a.q_norm : a.k_norm;
    if (norm != nullptr) kernels.rms_norm(x, cpu(norm).vector(), a.eps, x, d);
    rope_head(x, a.rope, a.batch.pos[token], kernels);
  }
  const int64_t slot = a.batch.slot[token];
  if (kind == HeadKind::query || slot < 0) return;
  void* rows = kind == HeadKind::key ? a.kv.k : a.kv.v;
  kernels.store_row[static_cast<int>(a.kv.dtype)](x, static_cast<char*>(rows) + a.kv.row_offset(slot, head), d);
}

// The units of one layer.
class LayerUnits {
 public:
  LayerUnits(const LayerArgs& layer, const Pipeline& pipeline)
      : layer_(layer),
        pipeline_(pipeline),
        w_(pipeline.w),
        activated_(reinterpret_cast<float*>(shared(2))),
        input_(input_of(layer.qkv.x, layer.qkv.norm, layer.qkv.eps), {layer.qkv.w[0], layer.qkv.w[1], layer.qkv.w[2]},
               shared(0)),
        attended_(input_of(layer.output.x), {layer.output.w[0]}, shared(1)),
        hidden_({.x = activated_, .stride = ffn(), .tokens = layer.tokens(), .k = ffn()}, {layer.mlp.down},
                shared(2) + matrix_bytes(layer.tokens(), ffn())),
        mlp_input_(input_of(layer.mlp.x, layer.mlp.norm, layer.mlp.eps), {layer.mlp.gate, layer.mlp.up},
                   shared(2) + 2 * matrix_bytes(layer.tokens(), ffn())) {}

  void run(const Unit& unit) const noexcept {
    const Range block = pipeline_.tokens_of(layer_, unit.block);
    const Range tokens = {block.begin + unit.number * kUnitTokens,
                          std::min(block.begin + (unit.number + 1) * kUnitTokens, block.end)};
    switch (stage_of(unit.stage)) {
      case LayerStage::input:
        return input_.convert(tokens, *w_.kernels);
      case LayerStage::project:
        return project_heads(block, unit.number);
      case LayerStage::attend:
        return attend(block, unit.number);
      case LayerStage::attended:
        return attended_.convert(tokens, *w_.kernels);
      case LayerStage::output:
        return project({layer_.output.w[0], attended_.prepared.buffer[0], layer_.output.residual.f32(),
                        vector_or_null(layer_.output.bias[0]), layer_.output.out[0].f32()},
                       block, unit.number);
      case LayerStage::mlp_input:
        return mlp_input_.convert(tokens, *w_.kernels);
      case LayerStage::gate:
        return gate_and_up(block, unit);
      case LayerStage::down:
        return project(
            {layer_.mlp.down, hidden_.prepared.buffer[0], layer_.mlp.residual.f32(), nullptr, layer_.mlp.out.f32()},
            block, unit.number);
    }
  }

 private:
  [[nodiscard]] int64_t ffn() const { return layer_.mlp.up->rows(); }
  [[nodiscard]] std::byte* shared(size_t part) const { return w_.shared + pipeline_.joined.shared[part]; }
  [[nodiscard]] float* result_memory() const { return reinterpret_cast<float*>(w_.local + results_begin(layer_)); }
  // One product of a unit: out [tokens of the block, rows].
  void multiply_block(const Weight* weight, const void* activations, const Range& block, const Range& rows,
                      float* out) const noexcept {
    multiply(weight, tokens_from(weight, activations, block.begin), block.size(), rows, out - rows.begin, rows.size(),
             false, w_.local, w_);
  }
  void project(const Projection& product, const Range& block, int64_t number) const noexcept {
    project_rows(product, block, pipeline_.rows_of_unit(product.weight, number), w_.local, w_);
  }

  // Some heads of q, k or v. They are finished where they are contiguous, before they go to q or to the cache.
  void project_heads(const Range& block, int64_t number) const noexcept {
    const QkvRopeStoreArgs& a = layer_.qkv;
    const int64_t d = a.kv.head_dim;
    size_t i = 0;
    for (; number >= pipeline_.row_units(a.w[i], d); ++i) number -= pipeline_.row_units(a.w[i], d);
    const Range rows = pipeline_.rows_of_unit(a.w[i], number, d);
    float* out = result_memory();
    multiply_block(a.w[i], input_.prepared.buffer[i], block, rows, out);

    const float* bias = vector_or_null(a.bias[i]);
    for (int64_t t = block.begin; t < block.end; ++t, out += rows.size()) {
      if (bias != nullptr) w_.kernels->add(out, bias + rows.begin, out, rows.size());
      for (int64_t h = rows.begin / d; h < rows.end / d; ++h) {
        finish_product(a, static_cast<HeadKind>(i), t, h, out + h * d - rows.begin, *w_.kernels);
      }
      if (i == 0) std::copy_n(out, rows.size(), a.q.f32() + t * a.q.cols() + rows.begin);
    }
  }

  void attend(const Range& block, int64_t number) const noexcept {
    const AttentionArgs& a = layer_.attention;
    for_each_block(a, pipeline_.attention, block, [&](const QueryBlock& queries) {
      if (number >= 0 && number < a.kv.kv_heads) {
        attend_block(a, pipeline_.attention, queries, number, w_.local, *w_.kernels);
        if (Pipeline::converts_heads(layer_)) convert_heads(queries, number);
      }
      number -= a.kv.kv_heads;
    });
  }
  void convert_heads(const QueryBlock& queries, int64_t kv_head) const noexcept {
    const Tensor& out = layer_.attention.out;
    const int64_t columns = out.cols() / layer_.attention.kv.kv_heads;
    attended_.convert_part(out.f32() + queries.first_token * out.cols() + kv_head * columns, out.cols(),
                           {queries.first_token, queries.first_token + queries.tokens},
                           {kv_head * columns, (kv_head + 1) * columns});
  }

  void gate_and_up(const Range& block, const Unit& unit) const noexcept {
    const GatedMlpArgs& a = layer_.mlp;
    const Range rows = pipeline_.rows_of_unit(a.gate, unit.number, Pipeline::gate_step(layer_));
    float* gate = result_memory();
    float* up = gate + block.size() * rows.size();
    multiply_block(a.gate, mlp_input_.prepared.buffer[0], block, rows, gate);
    multiply_block(a.up, mlp_input_.prepared.buffer[1], block, rows, up);
    const auto gated_product = w_.kernels->gated[static_cast<size_t>(a.activation)];
    const int64_t columns = hidden_part(a);
    if (rows.size() % columns == 0) {
      gated_product(gate, up, gate, block.size() * rows.size());
      hidden_.convert_part(gate, rows.size(), block, rows);
      return;
    }
    for (int64_t t = block.begin; t < block.end; ++t, gate += rows.size(), up += rows.size()) {
      gated_product(gate, up, activated_ + t * ffn() + rows.begin, rows.size());
    }
    // The worker that completes a part converts it.
    for (int64_t begin = rows.begin / columns * columns; begin < rows.end; begin += columns) {
      const Range part = {begin, std::min(begin + columns, ffn())};
      const auto mine = static_cast<uint32_t>(std::min(part.end, rows.end) - std::max(part.begin, rows.begin));
      std::atomic<uint32_t>& completed =
          pipeline_.joined.completed[unit.block * pipeline_.joined.hidden_parts + begin / columns];
      if (completed.fetch_add(mine, std::memory_order_acq_rel) + mine < static_cast<uint32_t>(part.size())) continue;
      hidden_.convert_part(activated_ + block.begin * ffn() + part.begin, ffn(), block, part);
      completed.store(0, std::memory_order_relaxed);  // for the next layer
    }
  }

  const LayerArgs layer_;
  const Pipeline& pipeline_;
  const Worker& w_;
  float* activated_;  // [tokens, ffn], where the hidden rows are not converted at once
  const Conversion input_;
  const Conversion attended_;
  const Conversion hidden_;
  const Conversion mlp_input_;
};

// Spins, then sleeps: the thread that is waited for may need this CPU.
void wait_for(const std::atomic<uint32_t>& done, uint32_t count) noexcept {
  constexpr int kSpins = 4000;
  constexpr std::chrono::microseconds kSleep{50};
  for (int i = 0; done.load(std::memory_order_acquire) < count; ++i) {
    if (i < kSpins) {
      cpu_relax();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

// One worker's times of the ops of a pipeline, none if they are null.
class PipelineTimes {
 public:
  PipelineTimes(WorkerTime* times, size_t ops, int workers) : times_(times), ops_(ops), workers_(workers) {
    if (times_ == nullptr) return;
    begin_ = last_ = cpu_ticks();
    for (size_t i = 0; i < ops_; ++i) of(i) = {};
  }
  void wait(const std::atomic<uint32_t>& done, uint32_t count) noexcept {
    if (done.load(std::memory_order_acquire) >= count) return;
    const uint64_t from = times_ != nullptr ? cpu_ticks() : 0;
    wait_for(done, count);
    if (times_ != nullptr) waited_ += cpu_ticks() - from;
  }
  // A unit of the op, and the waits before it.
  void add_unit(size_t op) {
    if (times_ == nullptr) return;
    const uint64_t now = cpu_ticks();
    of(op).end += now - last_;
    of(op).wait += waited_;
    last_ = now;
    waited_ = 0;
  }
  // Durations become times, one op after the other.
  void finish() {
    if (times_ == nullptr) return;
    for (size_t i = 0; i < ops_; ++i) {
      of(i).begin = begin_;
      begin_ = of(i).end += begin_;
    }
  }

 private:
  WorkerTime& of(size_t op) { return times_[op * static_cast<size_t>(workers_)]; }

  WorkerTime* times_;
  size_t ops_;
  int workers_;
  uint64_t begin_ = 0;
  uint64_t last_ = 0;  // the end of the last unit
  uint64_t waited_ = 0;
};

}  // namespace

JoinedLayers find_joined_layers(const Plan& plan, size_t op, const KernelTable& kernels, int threads) {
  JoinedLayers joined{.first_op = op};
  if (plan[op].op() != OpId::qkv_rope_store) return joined;
  const auto& first = plan[op].args<QkvRopeStoreArgs>();
  const int64_t tokens = first.x.rows();
  if (block_count(tokens, tokens, threads) == 0 || tokens < kTokensPerSequence * first.batch.sequences) return joined;
  std::array<int64_t, 3> bytes = {};
  int64_t block_tokens = kMinBlockTokens;
  for (size_t at = op; joined.layers < kMaxJoinedLayers && is_layer(plan, at); at += kLayerOps, ++joined.layers) {
    const LayerArgs layer = layer_at(plan, at);
    if (layer.qkv.x.data != first.x.data || layer.tokens() != tokens) break;
    const std::array<OpScratch, kLayerOps> scratch = {
        scratch_of(layer.qkv, kernels, threads), scratch_of(layer.attention, kernels, threads),
        scratch_of(layer.output, kernels, threads), scratch_of(layer.mlp, kernels, threads)};
    const std::array<int64_t, 3> own = {scratch[0].shared, scratch[2].shared, scratch[3].shared};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::max(bytes[i], round_up(own[i], 64));
    for (const OpScratch& s : scratch) joined.local_bytes = std::max(joined.local_bytes, s.local);
    joined.local_bytes = std::max(joined.local_bytes, results_begin(layer) + matrix_bytes(tokens, 2 * kUnitRows));
    for (const Weight* w : layer.weights()) {
      block_tokens = std::max(block_tokens, cpu(w).kernel().activation->token_block);
    }
    joined.hidden_parts = std::max(joined.hidden_parts, ceil_div(layer.mlp.down->cols(), hidden_part(layer.mlp)));
  }
  if (joined.layers == 0) return joined;
  joined.grid = {.stages = static_cast<int32_t>(joined.layers) * kLayerStages,
                 .blocks = block_count(tokens, block_tokens, threads)};
  for (size_t i = 0; i < bytes.size(); ++i) {
    joined.shared[i] = joined.shared_bytes;
    joined.shared_bytes += bytes[i];
  }
  return joined;
}

void run(const Plan& plan, const JoinedLayers& joined, const Worker& w, WorkerTime* times) noexcept {
  Pipeline pipeline{joined, w, plan_of(plan[joined.first_op + 1].args<AttentionArgs>(), *w.kernels, w.nth)};
  pipeline.attention.next_head = 0;
  const auto first_op_of = [](int32_t stage) { return static_cast<size_t>(stage / kLayerStages) * kLayerOps; };
  const auto layer_of = [&](int32_t stage) { return layer_at(plan, joined.first_op + first_op_of(stage)); };
  PipelineTimes timer(times, joined.layers * kLayerOps, w.nth);
  run_units(
      UnitCounts(joined.counts, joined.grid), joined.grid,
      [](int32_t stage) { return stage / kLayerStages * kLayerDelay + of_stage(kDelayOfStage, stage); },
      [&](int32_t stage, int32_t block) { return pipeline.units(layer_of(stage), stage_of(stage), block); },
      [](int32_t stage) { return stage_of(stage) == LayerStage::attend; },
      [&](const Unit& unit) {
        LayerUnits(layer_of(unit.stage), pipeline).run(unit);
        timer.add_unit(first_op_of(unit.stage) + of_stage(kOpOfStage, unit.stage));
      },
      [&](const std::atomic<uint32_t>& done, uint32_t count) { timer.wait(done, count); });
  timer.finish();
}

}  // namespace inferno::cpu
